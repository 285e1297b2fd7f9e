"""The connection to Redis (`redis`), listing its keys (`scan`), and the private Redis.

`private_redis` starts that one where the settings name no other. Keys and scripts belong to
`sessions` and `pools`, which use this connection. The package imports `observe`, `settings` and
`errors`.
"""
