"""What operators see: metrics, logs, traces and the timings of an answer.

Every room may import it; it imports `errors` and `models.roles` only.
"""
