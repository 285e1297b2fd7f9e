"""Pools as files: snapshots, backups, catalogues to encode in bulk, and encoded parts."""
