"""Of a wide table, the columns that are learned from; the others are as if they were not there. Trees see more of them
than the process does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array
from gpnn.engines import Engine
from gpnn.stages.screening import columns_that_matter


class Screened:
    columns_: NDArray[np.int64] | None
    _tree_columns: NDArray[np.int64] | None = None
    _ranges: Array | None

    def _screen(self: Any, X: Array, y: Array, engine: Engine, report: dict) -> None:
        """columns_, that the process learns from, and those that trees do; None for all."""
        self.columns_ = self._tree_columns = self._ranges = None
        if (leader := self.__dict__.get("_leader")) is not None:
            self.columns_, self._tree_columns = leader.columns_, leader._tree_columns
        elif self.screen_columns and self.params is None and isinstance(self.mean, str):
            self.columns_, self._tree_columns = columns_that_matter(X, y, engine) or (None, None)
        if self.columns_ is not None:
            self._ranges = np.stack([X.min(axis=0), X.max(axis=0), X.mean(axis=0)]).astype(float)
            report["columns"] = len(self.columns_)

    def _used(self: Any, X: Array) -> Array:
        """Rows (q, d) with the columns that the process looks at."""
        return X if self.columns_ is None else X[:, self.columns_]

    def _seen_by_trees(self: Any, X: Array) -> Array:
        """Rows (q, d) with the columns that trees look at."""
        return self._used(X) if self._tree_columns is None else X[:, self._tree_columns]

    def _n_used(self: Any, d: int) -> int:
        return d if self.columns_ is None else len(self.columns_)

    def _on_all_columns(self: Any, values: Array) -> Array:
        """Values whose last axis is the columns that count, with zeros for the others."""
        if self.columns_ is None:
            return values
        spread = np.zeros((*values.shape[:-1], self.n_features_in_))
        spread[..., self.columns_] = values
        return spread
