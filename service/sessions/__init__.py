"""Sessions in Redis: reading one, and committing a change of one.

`store` does all the I/O; its Lua scripts are in `scripts/`. `turns` joins turns into utterances.
`update` is a value: from a session and its next turns to the texts to encode and the change to
commit. The package imports `redis`, `observe`, `wire`, `errors` and `models`.
"""
