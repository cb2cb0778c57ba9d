"""Scores of rows that come in parts, as if they had come together."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpnn.common.types import Array
from gpnn.stages.far import OUTSIDE


@dataclass(frozen=True)
class Scored:
    """Scores of n rows, which came in parts."""

    n: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    outside: int | None = 0
    """Rows outside the support; None where the model does not know."""

    def and_also(self, scores: dict[str, float], support: Array | None, n: int) -> Scored:
        outside = None if support is None or self.outside is None else self.outside + int(np.sum(support < OUTSIDE))

        def mean(one: float, other: float) -> float:
            return (self.n * one + n * other) / (self.n + n)

        if self.n:
            squared = {"rmse": float(np.sqrt(mean(self.scores["rmse"] ** 2, scores["rmse"] ** 2)))}
            scores = {name: mean(self.scores[name], scores[name]) for name in scores} | squared
        return Scored(self.n + n, scores, outside)

    def as_dict(self) -> dict[str, float | None]:
        share = None if self.outside is None else self.outside / self.n
        return {"rows": self.n, **self.scores, "outside_support": share}
