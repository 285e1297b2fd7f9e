"""The journal: what was said, offered and chosen, as lines of files, off by default.

`lines` has the form of a line. `writer` redacts and writes the lines of a running replica. `files`
reads the lines of all replicas; `export` joins them into dialogues, `proposals` makes examples of
choices, and `compact` removes the lines of deleted sessions. The package knows nothing of Redis.
"""

from turnwise.service.journal.lines import (
    DeletionLine,
    FeedbackLine,
    Line,
    Offered,
    TurnLine,
    UndoLine,
)
from turnwise.service.journal.writer import Journal

__all__ = [
    "DeletionLine",
    "FeedbackLine",
    "Journal",
    "Line",
    "Offered",
    "TurnLine",
    "UndoLine",
]
