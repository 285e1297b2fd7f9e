"""Evaluation: selection and ranking of responses, planning, and similarity in conversations."""

from turnwise.models.evaluation.generator import sampled_replies
from turnwise.models.evaluation.long_term import evaluate_long_term, long_term_average_rank
from turnwise.models.evaluation.long_term_problems import GoalSet, Setting, make_goal_sets
from turnwise.models.evaluation.next_utterance import average_ranks, evaluate_next_utterance
from turnwise.models.evaluation.report import Report, Row
from turnwise.models.evaluation.short_term import evaluate_short_term, short_term_average_rank
from turnwise.models.evaluation.short_term_problems import (
    Problem,
    make_problems,
    read_problems,
    retrieved_replies,
    write_problems,
)

__all__ = [
    "GoalSet",
    "Problem",
    "Report",
    "Row",
    "Setting",
    "average_ranks",
    "evaluate_long_term",
    "evaluate_next_utterance",
    "evaluate_short_term",
    "long_term_average_rank",
    "make_goal_sets",
    "make_problems",
    "read_problems",
    "retrieved_replies",
    "sampled_replies",
    "short_term_average_rank",
    "write_problems",
]
