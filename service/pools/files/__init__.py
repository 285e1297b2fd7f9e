"""Pools as files: snapshots, catalogues to encode in bulk, and encoded parts."""
