"""The values that go over HTTP, by resource: the API, the use cases and the client share them.

`fields` holds the annotated types that the others share. Only values enter, without any behaviour
of the service. The package imports `models.errors` and `models.data`, which need nothing, and
pydantic: no FastAPI, no numpy, no torch.
"""
