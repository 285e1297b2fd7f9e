"""Learners, one module for each type of model: the data it reads, its losses, what it saves.

`turnwise.models.training.trainer` has the loop that trains them all.
"""
