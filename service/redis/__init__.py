"""The connection to Redis (`connection`), listing its keys (`scan`), the private Redis (`private`).

Keys and scripts belong to `sessions` and `pools`, which use this connection.
"""
