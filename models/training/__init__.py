"""Training: encoders (CCL, C3L, running query, reach, order, NLI), both re-rankers, by recipes."""
