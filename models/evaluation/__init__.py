"""Evaluation: selection and ranking of responses, planning, and similarity in conversations.

A task gives examples; systems (`systems.py`) score their candidates; metrics (`metrics.py`) of the
scores make the rows of a report (`report.py`). Each task has a module of its own name.
"""
