"""What goes over HTTP, field by field: shared by the API, the use cases and the client.

It imports `errors` and nothing else of the service, and neither torch nor FastAPI.
"""
