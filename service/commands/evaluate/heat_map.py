"""`turnwise evaluate heat-map`: the stages of a dialogue as a picture."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from turnwise.models.errors import DataError
from turnwise.service.commands.evaluate.options import Data, can_draw, read


def heat_map(
    *,
    data: Data,
    model: Annotated[Path, typer.Option(help="Folder of a pairwise model.")],
    dialogue: Annotated[
        list[str] | None, typer.Option(help="Ids of dialogues; by default the first one.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.", callback=can_draw)] = Path(
        "runs/heat-maps"
    ),
) -> None:
    """Draw how well each utterance of a dialogue follows each of its contexts."""
    from turnwise.models.evaluation.report import draw_heat_map  # noqa: PLC0415 - loads torch
    from turnwise.models.rerankers import PairwiseModel, dialogue_heat_map  # noqa: PLC0415

    dialogues = {each.id: each for each in read(data, None if dialogue else 1)}
    if not dialogues:
        raise DataError("no dialogue in it", ", ".join(map(str, data)))
    chosen = dialogue or list(dialogues)
    if missing := [name for name in chosen if name not in dialogues]:
        raise typer.BadParameter(f"no dialogue '{missing[0]}' in the data")
    pairwise = PairwiseModel.load(model)
    for name in chosen:
        texts = [said.text for said in dialogues[name].utterances]
        file = name.replace("%", "%25").replace("/", "%2F")  # each id gets a file of its own
        path = out / f"{file}.png"
        draw_heat_map(dialogue_heat_map(pairwise, texts), texts, path)
        Console().print(f"written to {path}", markup=False, highlight=False)
