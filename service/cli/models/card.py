"""`turnwise card`: writes the card and the graph (ONNX) of a model into its folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.errors import TurnwiseError
from turnwise.service.cli.options import read_files


def card(
    model: Annotated[str, typer.Argument(help="A sentence-transformers folder or hub name.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="A folder for what a replica needs.", show_default="MODEL")
    ] = None,
    emoji: Annotated[
        bool,
        typer.Option("--emoji", help="Let the model read the Unicode names of emoji; a new model."),
    ] = False,
    words: Annotated[
        list[Path] | None,
        typer.Option(help="Dialogues whose words are right, to correct others; a new model."),
    ] = None,
) -> None:
    """Write the card and the graph (`model.onnx`) of a model into its folder.

    With both, a service runs the model on a CPU without torch. With --out the command writes only
    the small files, which are all that a replica with TURNWISE_ENCODER_URL needs.

    With --emoji the folder gets `emoji.json`, with --words it gets `words.txt`, or more words in
    it. The fingerprint of the model changes, so that a service encodes its pools again.
    """
    from turnwise.models.card import CARD, reranker_kind, update_card
    from turnwise.models.encoder.emoji_words import EmojiWords
    from turnwise.models.encoder.torch import UtteranceEncoder

    folder = out or Path(model)
    if not (out or folder.is_dir()):
        raise TurnwiseError(f"'{model}' is not a folder: name one for its card with --out")
    if kind := reranker_kind(model):
        raise TurnwiseError(f"'{model}' is of kind {kind}: only an encoder has a card")
    if (emoji or words) and out:
        raise TurnwiseError("--emoji and --words change the model: they do not go with --out")
    if emoji:
        EmojiWords.of_unicode().save(folder)
    if words:
        _add_words(folder, words)
    encoder = UtteranceEncoder(model, device="cpu")
    facts = encoder.facts
    if out:
        _copy_small_files(model, out)
    else:
        encoder.write_graph(folder)
    update_card(folder, "encoder", facts)
    typer.echo(f"{folder / CARD}: {facts.kind}, dimension {facts.dimension}, {facts.fingerprint}")


def _add_words(folder: Path, files: Sequence[Path]) -> None:
    """Write the words of dialogues into the list of a model's folder, which may be a new one."""
    from turnwise.models.encoder.spelling import Spelling
    from turnwise.models.encoder.torch import UtteranceEncoder

    dialogues = read_files(files)
    encoder = UtteranceEncoder(folder, device="cpu")
    vocabulary = encoder.model.tokenizer.get_vocab()
    spelling = encoder.rewriting.spelling or Spelling.of_vocabulary(vocabulary)
    texts = (said.text for dialogue in dialogues for said in dialogue.utterances)
    spelling.with_words_of(texts).save(folder)


def _copy_small_files(model: str, out: Path) -> None:
    """Copy the files that a replica with a remote encoder needs, as far as the model has them."""
    from turnwise.models.card import CARD, find_file
    from turnwise.models.encoder.emoji_words import EMOJI_FILE
    from turnwise.models.encoder.example_space import EXAMPLES_FILE
    from turnwise.models.encoder.head_arrays import HEADS_FILE
    from turnwise.models.encoder.spelling import WORDS_FILE
    from turnwise.models.encoder.stated import TOKENIZER

    out.mkdir(parents=True, exist_ok=True)
    for name in (CARD, TOKENIZER, HEADS_FILE, EMOJI_FILE, WORDS_FILE, EXAMPLES_FILE):
        if file := find_file(model, name):
            shutil.copyfile(file, out / name)
