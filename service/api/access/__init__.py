"""Who may call a route, and when: API keys, admission, the audit log, dependencies of routes."""
