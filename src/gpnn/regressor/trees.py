"""Boosted trees that have a say in means and widths where judges gain by it: `trees=`."""

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
from gpnn.stages.trees import Few, Learned, Trees, grow_few, learn_trees
from gpnn.stages.widths import Widths, learn_widths

BESIDE = ("_trees", "_widths")
"""Of what a fit leaves: not there until it is complete."""


class BesideTrees:
    trees: bool
    _trees: Trees | None = None
    _widths: Widths | None = None
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
    ) -> Callable[[], Learned | None]:  # fmt: skip
        """verdict: of all others that answer."""
        if "candidates" not in report:
            return lambda: None
        told = report["trees"] = {}
        y, local = self.whitener_.transform_y(y), self.calibration == "local"
        return partial(learn_trees, X, y, verdict.rows, verdict.law, local, self.n_jobs, rng, told, few)

    def _take_trees(
        self: Any, found: Learned | None, X: Array, y: Array, verdict: Verdict, rng: np.random.Generator, report: dict
    ) -> None:
        """_trees and _widths, if judges gain by them, and the shape of errors with them. X, y: the whole table."""
        self._trees = self._widths = None
        rows, law = verdict.rows, verdict.law
        if found is not None:
            self._trees, residuals, some, law = found
            rows = rows[some]
            self.shape_, report["shapes"] = fit_shape(residuals, rng)
        if "trees" not in report or self.calibration != "local":
            return
        told = report["widths"] = {}
        wider = learn_widths(X[rows], self.whitener_.transform_y(y[rows]), law, self.n_jobs, rng.spawn(1)[0], told)
        if wider is not None:
            self._widths, residuals = wider
            self.shape_, report["shapes"] = fit_shape(residuals, rng)
