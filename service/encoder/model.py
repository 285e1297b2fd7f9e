"""The models that the encoder queue calls: `Model`, and `Encoder` for texts in roles."""

from collections.abc import Sequence, Sized
from typing import Any, Protocol

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Calibration
from turnwise.models.example_confidence import ExampleCalibration
from turnwise.models.fusion import Fusion
from turnwise.models.roles import EncoderKind, RoleText
from turnwise.models.scores import Aggregation

REMOTE = "remote"
"""The device of an encoder that another process runs."""


class TextError(ValueError):
    """The model rejects one text of a batch; it may accept the others."""


class Model(Protocol):
    """Computes a row of numbers for each text: the encoder, or a cross-encoder for pairs."""

    dimension: int

    def tokenize(self, items: Sequence[Any], /) -> Sequence[Sized]:
        """Return the tokens of each text."""

    def forward(self, tokens: list[Any], /) -> Float32:
        """Return (n, dimension) rows of one padded batch, n ≥ 1.

        Raises:
            TextError: It cannot read one of the texts.
        """


class Encoder(Model, Protocol):
    """The encoder of a service: `UtteranceEncoder`, or `RemoteEncoder` in another process.

    Attributes:
        name: The model's name.
        kind: Which roles and relations it distinguishes, and how.
        aggregation: The aggregation that its card recommends.
        calibration: The calibration of its confidences, if its card has one.
        fusion: How reply scores and example scores meet.
        example_calibration: Corrects the confidences in pools with examples, if its card has it.
    """

    name: str
    kind: EncoderKind
    aggregation: Aggregation
    calibration: Calibration | None
    fusion: Fusion
    example_calibration: ExampleCalibration | None

    @property
    def device(self) -> str:
        """The type of the device ("cpu", "cuda"), or `REMOTE`."""

    @property
    def threads(self) -> int | None:
        """Threads that compute a batch on a CPU; None on other devices."""

    @property
    def runtime(self) -> str:
        """Library, arithmetic and device that run the model."""

    @property
    def fingerprint(self) -> str:
        """Digest of the model; vectors of equal fingerprints can be compared."""

    def prefixed(self, item: RoleText) -> str:
        """Return a text as the model reads it."""

    def knows_script(self, item: RoleText) -> bool:
        """Return whether the model's vocabulary knows the script of a text."""

    def is_too_long(self, item: RoleText) -> bool:
        """Return whether a text is longer than what the model reads."""

    def in_roles(self, vectors: Float32, items: Sequence[RoleText]) -> Float32:
        """Return the (n, d) vectors of n texts in their roles, from what `forward` returned."""

    def as_examples(self, said: Float32) -> Float32:
        """Return (n, d) places of utterances in the space of examples."""
