"""Boosted trees that have a say where judges gain by it: `trees=`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from gpnn.common.types import Array
from gpnn.engines import Noise
from gpnn.stages.few import FEW
from gpnn.stages.judges import Verdict
from gpnn.stages.shapes import fit_shape
from gpnn.stages.trees import Begun, Trees, begin_trees, learn_trees


class BesideTrees:
    trees: bool
    _trees: Trees | None = None
    """None: the process answers by itself."""

    def _begin_trees(
        self: Any, X: Array, y: Array, verdict: Verdict, rng: np.random.Generator, report: dict, noise: Noise | None
    ) -> Callable[[], Begun | None]:
        """Grown at the first call, whoever has a thread to spare. None if trees may have no say."""
        learned = "candidates" in report and self.holdout == "random" and self.return_rows
        asked = self.trees and learned and len(X) >= FEW and noise is None
        y = self.whitener_.transform_y(y)
        return cache(lambda: begin_trees(X, y, verdict.rows, verdict.law, rng) if asked else None)

    def _learn_trees(
        self: Any,
        X: Array,
        y: Array,
        verdict: Verdict,
        begin: Callable[[], Begun | None],
        rng: np.random.Generator,
        report: dict,
    ) -> None:
        """_trees, if judges gain by them, and the shape of errors with them. verdict: of all others that answer."""
        self._trees = None
        if self._far is not None and self._far.mixture.edge == -np.inf:
            return
        if (begun := begin()) is None:
            return
        y, local = self.whitener_.transform_y(y), self.calibration == "local"
        told = report["trees"] = {}
        found = learn_trees(X, y, verdict.rows, verdict.law, local, self.n_jobs, rng, told, begun)
        if found is not None:
            self._trees, residuals = found
            self.shape_, report["shapes"] = fit_shape(residuals, rng)
