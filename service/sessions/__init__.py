"""The state of a session in Redis: what is read, what one mutation keeps and adds.

The Lua scripts stand beside the code that calls them. It may import `state`, `observe`, `models`.
"""
