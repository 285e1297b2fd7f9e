"""Metrics, logs, traces, and the timings of an answer.

Any other package may import this one. It imports only `models.roles` and `models.errors`.
"""
