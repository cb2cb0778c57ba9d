"""Boosted trees that have a say where judges gain by it: `trees=`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpnn.common.types import Array
from gpnn.engines import Noise
from gpnn.stages.few import FEW
from gpnn.stages.judges import Verdict
from gpnn.stages.shapes import fit_shape
from gpnn.stages.trees import Trees, learn_trees


class BesideTrees:
    trees: bool
    _trees: Trees | None = None
    """None: the process answers by itself."""

    def _learn_trees(
        self: Any, X: Array, y: Array, verdict: Verdict, rng: np.random.Generator, report: dict, noise: Noise | None
    ) -> None:
        """_trees, if judges gain by them, and the shape of errors with them. verdict: of all others that answer."""
        self._trees = None
        for_gaps = self._far is not None and self._far.mixture.edge == -np.inf
        if not self.trees or "candidates" not in report or self.holdout != "random" or not self.return_rows:
            return
        if len(X) < FEW or noise is not None or for_gaps:
            return
        y, local = self.whitener_.transform_y(y), self.calibration == "local"
        told = report["trees"] = {}
        found = learn_trees(X, y, verdict.rows, verdict.law, local, self.n_jobs, rng, told)
        if found is not None:
            self._trees, residuals = found
            self.shape_, report["shapes"] = fit_shape(residuals, rng)
