"""Boosted trees that have a say where judges gain by it: `trees=`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpnn.common.types import Array
from gpnn.engines import Noise
from gpnn.engines.parallel import meanwhile
from gpnn.stages.few import FEW
from gpnn.stages.holdout import Rows
from gpnn.stages.judges import Verdict
from gpnn.stages.shapes import fit_shape
from gpnn.stages.trees import Few, Trees, grow_few, learn_trees

Found = tuple[Trees, Array] | None
"""By `learn_trees`."""


class BesideTrees:
    trees: bool
    _trees: Trees | None = None
    """None: the process answers by itself."""

    def _ask_trees(self: Any, queries: object, noise: Noise | None) -> bool:
        """Whether they may have a say."""
        alike = self.holdout == "random" and self.return_rows and queries is None
        return self.trees and self.params is None and alike and noise is None

    def _grow_few(self: Any, X: Array, y: Array, rows: Rows) -> Callable[[], Few] | None:
        """From some of the rows, none of them a judge; begun now. y: in whitened units. None where every row will be a
        judge."""
        return meanwhile(partial(grow_few, X, y, rows), self.n_jobs) if len(X) >= FEW else None

    def _learn_trees(
        self: Any, X: Array, y: Array, verdict: Verdict, few: Callable[[], Few] | None, rng: np.random.Generator,
        report: dict,
    ) -> Callable[[], Found]:  # fmt: skip
        """verdict: of all others that answer."""
        if "candidates" not in report:
            return lambda: None
        told = report["trees"] = {}
        y, local = self.whitener_.transform_y(y), self.calibration == "local"
        return partial(learn_trees, X, y, verdict.rows, verdict.law, local, self.n_jobs, rng, told, few)

    def _take_trees(self: Any, found: Found, rng: np.random.Generator, report: dict) -> None:
        """_trees, if judges gain by them, and the shape of errors with them."""
        self._trees = None
        if found is not None:
            self._trees, residuals = found
            self.shape_, report["shapes"] = fit_shape(residuals, rng)
