"""Training: CCL, C3L and the contrastive objective over the running query."""
