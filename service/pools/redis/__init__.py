"""Pools in Redis: their values, records, names and scripts, and the replay of their logs."""
