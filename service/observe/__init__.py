"""`metrics`, `logs`, traces (`tracing`), the `timings` of an answer, and file `descriptors`."""
