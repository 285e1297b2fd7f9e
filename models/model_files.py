"""Checks of a model's files before a library reads them, and the errors of those libraries."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Event, Thread

import httpx
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from turnwise.models.arrays import Float32
from turnwise.models.errors import ModelError

UNREADABLE = (
    OSError,
    SafetensorError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
)
"""Exceptions that libraries raise for files that are broken or do not fit together."""
PROMPTS_FILE = "config_sentence_transformers.json"

_LARGE_FILES = ("*.safetensors", "*/*.safetensors", "*.onnx", "tokenizer.json")
_PICKLES = tuple(
    f"{folder}{name}*.bin"
    for folder in ("", "*/", "*/*/")  # the modules of sentence-transformers
    for name in ("pytorch_model", "adapter_model")
)
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
HUB_SECONDS = 5.0
"""Time that the hub has to answer. Its library tries for minutes."""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def load_arrays(file: Path, names: Iterable[str], what: str) -> list[Float32]:
    """Return the arrays of a file of weights by their names, in float32.

    Args:
        file: A safetensors file.
        names: The names of the arrays to return.
        what: The content of the file, for the error.

    Raises:
        ModelError: The file cannot be read, or lacks an array.
    """
    try:
        arrays = load_file(file)
        return [arrays[name].astype(np.float32) for name in names]
    except UNREADABLE as error:
        raise ModelError(f"'{file}' holds no {what}: {error}") from error


def check_place(name: str | Path, where: str | Path) -> None:
    """Raise ModelError if a name is neither a folder that exists nor a possible name of the hub.

    `runs/mine` is a folder that does not exist, and no name of the hub, where there is a folder
    `runs`: somebody else may have a model of that name there.
    """
    folder = Path(where)
    if folder.is_dir():
        return
    in_a_folder = len(folder.parts) > 1 and folder.parent.is_dir()
    if in_a_folder or not _HUB_NAME.fullmatch(str(where)):
        raise ModelError(f"model '{name}': there is no folder '{where}'")


def check_weights(name: str | Path, folder: str | Path) -> None:
    """Check that the weights in a folder are files of safetensors, and present.

    Args:
        name: The model, for error messages.
        folder: The folder of the model. A hub name passes unchecked.

    Raises:
        ModelError: There is no such folder, a file is only a pointer of Git LFS, or weights exist
            only as a pickle, which could run code.
    """
    check_place(name, folder)
    folder = Path(folder)
    for file in (file for pattern in _LARGE_FILES for file in folder.glob(pattern)):
        with file.open("rb") as opened:
            if opened.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise ModelError(
                    f"model '{name}': '{file}' is a pointer of Git LFS, not the file itself; run "
                    "`git lfs pull` in the repository"
                )
    for pickle in (file for pattern in _PICKLES for file in folder.glob(pattern)):
        weights = "adapter_model" if pickle.name.startswith("adapter_model") else "model"
        if not any(pickle.parent.glob(f"{weights}*.safetensors")):
            raise ModelError(
                f"model '{name}': '{pickle}' is a pickle, which could run code; only weights in "
                "safetensors are read"
            )


def check_prompts(name: str | Path, file: Path | None) -> None:
    """Check that a model of sentence-transformers has no default prompt.

    The model was trained on texts with the prompt, which no role of ours adds.

    Args:
        name: The model, for error messages.
        file: The model's `PROMPTS_FILE`; None without one.

    Raises:
        ModelError: It has one.
        ValueError: The file is not JSON.
    """
    if file is None:
        return
    settings = json.loads(file.read_text(encoding="utf-8"))
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name"))
    if prompt:
        raise ModelError(
            f"model '{name}' needs the prompt '{prompt}' before every text (default_prompt_name in "
            f"{PROMPTS_FILE}), which Turnwise does not add"
        )


@cache
def hub_answers() -> bool:
    """Return whether the hub can be reached; otherwise only models in its cache can be loaded."""
    from huggingface_hub import constants  # noqa: PLC0415 - an extra

    if constants.HF_HUB_OFFLINE:
        return False
    answers = Event()

    def ask() -> None:
        # ImportError and ValueError come from a proxy that cannot be used.
        with suppress(httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError):
            httpx.head(constants.ENDPOINT, timeout=HUB_SECONDS)
            answers.set()

    # The time-out does not cover the look-up of the address, which may take more than a minute.
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HUB_SECONDS)
    return answers.is_set()


def explain_unreadable(error: Exception) -> str:
    """Return why a library could not load a model; never the advice to run code of the model."""
    if "trust_remote_code" in str(error):
        return "it needs code of its own, which Turnwise does not run"
    return str(error)
