"""The learners, one module a kind of model: what it reads, how it learns, what it keeps.

`turnwise.models.training.trainer` has the loop that trains them all.
"""
