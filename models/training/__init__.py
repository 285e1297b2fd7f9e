"""Training: encoders (CCL, C3L, running query, reach, NLI) and both re-rankers, by recipes."""
