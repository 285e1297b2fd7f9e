"""The errors of libraries that read a model's files."""

from safetensors import SafetensorError

UNREADABLE = (
    OSError, SafetensorError, RuntimeError, ValueError, LookupError, TypeError, AttributeError,
    AssertionError,
)  # fmt: skip
"""What they raise for files that are broken or do not fit together."""
