"""The routes, one module for each resource; a route calls one use case."""
