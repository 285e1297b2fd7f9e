"""The connection to Redis (`redis`), listing its keys (`scan`), and a private Redis.

`private_redis` is a Redis that the service starts itself.

Keys and scripts belong to `sessions` and `pools`, which use this connection.

It may import `observe`, `settings` and `errors`.
"""
