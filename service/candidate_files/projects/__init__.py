"""Projects of other tools, as candidates.

- `files`: the files of a project: a folder, a zip archive or one file.
- `converted`: what comes out: candidates, and what was left out.
- `rasa`, `colang`, `dialogflow`, `qna_maker`, `semantic_router`, `chatterbot`, `chatwoot`: one tool
  each. A module knows its tool's files by `is_project`, and `convert` reads them.

Nothing in a project is ever run: YAML becomes strings, lists and dictionaries only.
"""

from pathlib import Path

from turnwise.models.errors import DataError
from turnwise.service.candidate_files.projects import (
    chatterbot,
    chatwoot,
    colang,
    dialogflow,
    qna_maker,
    rasa,
    semantic_router,
)
from turnwise.service.candidate_files.projects.converted import Converted
from turnwise.service.candidate_files.projects.files import open_project

_TOOLS = {
    "Rasa": rasa,
    "Colang 1.0": colang,
    "Dialogflow ES": dialogflow,
    "QnA Maker": qna_maker,
    "semantic-router": semantic_router,
    "ChatterBot": chatterbot,
    "Chatwoot": chatwoot,
}


def convert_project(path: Path) -> Converted:
    """Return the candidates of a project, and what was left out of it.

    Args:
        path: A folder, a zip archive or a file.

    Raises:
        DataError: It is a project of no known tool, a file is malformed, or it is too large.
    """
    with open_project(path) as files:
        for tool, module in _TOOLS.items():
            if module.is_project(files):
                converted = Converted(tool)
                try:
                    module.convert(files, converted)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    what = f"a file is not as {tool} writes it: {error!r}"
                    raise DataError(what, str(path)) from error
                return converted
    what = (
        f"a project of none of these tools: {', '.join(_TOOLS)}; `turnwise pool load` takes tables"
    )
    raise DataError(what, str(path))
