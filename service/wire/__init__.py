"""Schemas of requests and answers, by resource. The API, the use cases and the client share them.

`fields` holds the annotated types that the other modules share, `filters` the filters of
candidates, `problems` the errors, and `keys` the API keys of the settings. The package contains
only values, and no behaviour of the service. It imports pydantic, and neither FastAPI nor numpy nor
torch.
"""

DEFAULT_NAMESPACE = "default"
"""The namespace of all callers if the service has no API keys."""
