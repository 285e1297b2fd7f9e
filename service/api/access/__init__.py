"""Access to routes: who may call them, and when.

- `keys`: API keys and their scopes. `audit`: the log of who changed or deleted what.
- `admission`: limits of a namespace. `concurrency`: limits of the requests in progress.
- `dependencies`: all of these as annotations of routes.
"""
