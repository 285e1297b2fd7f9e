"""`metrics`, `logs`, traces (`tracing`), the `timings` of an answer, and file `descriptors`.

Any other package may import this one. It imports only `models.roles` and `models.errors`.
"""
