"""HTTP around the routes.

- `protocol`, `exchange`: a connection, and one request on it with its answer.
- `middleware`, `flood`: what happens to every request before and after its route.
- `bodies`, `limits`, `uploads`: bodies of JSON, checks of them, and uploads of candidates.
- `problems`, `headers`: errors as problem documents, and the headers of answers.
- `docs`, `openapi`: the documentation at `/docs`.
"""
