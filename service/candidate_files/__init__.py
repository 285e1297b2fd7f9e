"""Files of candidates, as a team has them: JSON Lines, a JSON array, a table, or one text a line.

`turnwise pool load` and `encode`, the default pool, and the API's uploads of files read them here.

- `formats`: the records of a file, whatever its format.
- `columns`: which columns, or fields, of a record make a candidate.
- `reader`: the candidates of a file; the records of one answer become one candidate.
- `projects`: the projects of other tools, for `turnwise pool convert`.
"""

from turnwise.service.candidate_files.columns import Columns, split_names
from turnwise.service.candidate_files.formats import read_records
from turnwise.service.candidate_files.reader import (
    CandidateFile,
    CandidateReader,
    Row,
    note_candidates,
    parse_candidate,
    read_ids,
)

__all__ = [
    "CandidateFile",
    "CandidateReader",
    "Columns",
    "Row",
    "note_candidates",
    "parse_candidate",
    "read_ids",
    "read_records",
    "split_names",
]
