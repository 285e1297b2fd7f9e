"""Pools in the memory of a replica: contents, indexes, and their upkeep."""
