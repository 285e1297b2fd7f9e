"""The use cases: a turn of a session, ranking, planning, and what they share.

A use case takes and returns values of `wire`. It knows nothing of HTTP and nothing of Redis: it may
import `sessions`, `pools`, `encoder`, `observe`, `wire` and `models`.
"""
