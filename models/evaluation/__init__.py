"""Evaluation: selection and ranking of responses, planning, and similarity in conversations.

A task gives examples; systems (`systems.py`) score their candidates; metrics (`metrics.py`) of the
scores make the rows of a report (`report.py`). Each task has a module of its own name.
"""

from turnwise.models.evaluation.language_model import sampled_replies
from turnwise.models.evaluation.long_term import (
    GoalSet,
    Setting,
    evaluate_long_term,
    long_term_average_rank,
    make_goal_sets,
)
from turnwise.models.evaluation.next_utterance import evaluate_next_utterance
from turnwise.models.evaluation.report import Report, Row
from turnwise.models.evaluation.short_term import evaluate_short_term, short_term_average_rank
from turnwise.models.evaluation.short_term_examples import (
    ShortTermExample,
    make_examples,
    read_examples,
    retrieved_replies,
    write_examples,
)

__all__ = [
    "GoalSet",
    "Report",
    "Row",
    "Setting",
    "ShortTermExample",
    "evaluate_long_term",
    "evaluate_next_utterance",
    "evaluate_short_term",
    "long_term_average_rank",
    "make_examples",
    "make_goal_sets",
    "read_examples",
    "retrieved_replies",
    "sampled_replies",
    "short_term_average_rank",
    "write_examples",
]
