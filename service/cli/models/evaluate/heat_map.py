"""`turnwise evaluate heat-map`."""

from pathlib import Path

import typer

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.errors import DataError
from turnwise.models.evaluation.report import draw_heat_map
from turnwise.models.pairwise import PairwiseModel, dialogue_heat_map
from turnwise.service.cli.options import read_files


def draw(
    data: list[Path], form: DialogueFormat, model: Path, wanted: list[str], *, out: Path
) -> None:
    """Draw how well each utterance of some dialogues follows each of its contexts."""
    read = read_files(data, None if wanted else 1, form)
    dialogues = {dialogue.id: dialogue for dialogue in read}
    if not dialogues:
        raise DataError("no dialogue in it", ", ".join(map(str, data)))
    chosen = wanted or list(dialogues)
    if missing := [name for name in chosen if name not in dialogues]:
        raise typer.BadParameter(f"no dialogue '{missing[0]}' in the data")
    pairwise = PairwiseModel.load(model)
    for name in chosen:
        texts = dialogues[name].texts
        file = name.replace("%", "%25").replace("/", "%2F")  # each id gets a file of its own
        path = out / f"{file}.png"
        draw_heat_map(dialogue_heat_map(pairwise, texts), texts, path)
        typer.echo(f"written to {path}")
