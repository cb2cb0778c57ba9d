"""Of a wide table, the columns that the process learns from; to it, the others are as if they were not there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array
from gpnn.engines import Engine
from gpnn.stages.screening import columns_that_matter


class Screened:
    columns_: NDArray[np.int64] | None
    _ranges: Array | None

    def _screen(self: Any, X: Array, y: Array, engine: Engine, report: dict) -> None:
        """columns_, None for all."""
        self.columns_ = self._ranges = None
        if (leader := self.__dict__.get("_leader")) is not None:
            self.columns_ = leader.columns_
        elif self.screen_columns and self.params is None and isinstance(self.mean, str):
            self.columns_ = columns_that_matter(X, y, engine)
        if self.columns_ is not None:
            self._ranges = np.stack([X.min(axis=0), X.max(axis=0), X.mean(axis=0)]).astype(float)
            report["columns"] = len(self.columns_)

    def _used(self: Any, X: Array) -> Array:
        """Rows (q, d) with the columns that the process looks at."""
        return X if self.columns_ is None else X[:, self.columns_]

    def _n_used(self: Any, d: int) -> int:
        return d if self.columns_ is None else len(self.columns_)

    def _on_all_columns(self: Any, values: Array) -> Array:
        """Values whose last axis is the columns that count, with zeros for the others."""
        if self.columns_ is None:
            return values
        spread = np.zeros((*values.shape[:-1], self.n_features_in_))
        spread[..., self.columns_] = values
        return spread
