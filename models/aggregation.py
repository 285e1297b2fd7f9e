"""How the scores of one context fold up: what a request, or a model's card, may ask for."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from models.arrays import Float32
from models.mixture import contributions, max_sim, max_sim_contributions, rows, running_query


@dataclass(frozen=True, slots=True)
class Aggregation:
    """C3L eq. 3 over all rows or over the newest ones, or MaxSim (C3L appendix A).

    The context is b1 (n, d), or (0, d) of an encoder without pairs, and b2 (n, d), n ≥ 1.
    """

    name: Literal["mean", "last_rows", "max_sim"] = "mean"
    last_rows: Annotated[int, Field(ge=1)] = 2

    @property
    def summed(self) -> int | None:
        """Newest rows that the running query sums; None for all."""
        return self.last_rows if self.name == "last_rows" else None

    @property
    def rows_read(self) -> int | None:
        """Newest rows to know for that; None for all. One more tells whether there is an older."""
        return None if self.summed is None else self.summed + 1

    def query(self, first: Float32, second: Float32) -> Float32:
        """Return the running query (d,); MaxSim has none: that of the mean finds its short list."""
        start = 0 if self.rows_read is None else max(0, len(second) - self.rows_read)
        newest = rows(first, second[start:], start)
        return running_query(newest, self.summed, paired=len(first) > 0)

    def scores(self, first: Float32, second: Float32, candidates: Float32) -> Float32:
        """Return the next-utterance scores (C,) of candidates (C, d)."""
        if self.name == "max_sim":
            return max_sim(first, second, candidates)
        return np.asarray(candidates @ self.query(first, second))

    def contributions(self, first: Float32, second: Float32, candidates: Float32) -> Float32:
        """Return each utterance's part (n, C) in these scores; a column sums to its score."""
        if self.name == "max_sim":
            return max_sim_contributions(first, second, candidates)
        return contributions(first, second, candidates, self.summed)
