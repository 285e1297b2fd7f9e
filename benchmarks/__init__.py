"""Benchmarks; each module is a program."""

import os

# As `turnwise serve` does, for the benchmarks that run the service in their own process.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
