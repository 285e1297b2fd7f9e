"""The connection to Redis, and the private Redis of a service that has no other.

It may import `observe`, `settings` and `errors`.
"""
