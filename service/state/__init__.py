"""The connection to Redis (`redis`), and a Redis that the service starts itself (`private_redis`).

Keys and scripts belong to `sessions` and `pools`, which use this connection.

It may import `observe`, `settings` and `errors`.
"""
