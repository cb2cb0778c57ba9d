"""Few rows: every one of them judges, by cross-fitting.

A quarter of 600 rows is too few to say how wide intervals should be. So kernel, whitening and metric are chosen as
always, and then a metric is learned in each of several folds, from the rows outside the fold: those inside have taken
no part in it, not even as neighbours, and judge it, each predicted from all the others. All rows together say how many
neighbours to use, and calibrate. Those that chose are a little too kind to what they chose, and the other folds, whose
metrics nobody chose, a little too harsh.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import get_kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, LocalSolution, Noise
from gpnn.engines.parallel import for_each_block
from gpnn.stages.calibration import Calibration
from gpnn.stages.candidates import Candidate
from gpnn.stages.holdout import Holdout, Rows
from gpnn.stages.judges import Judges, fitted_calibration
from gpnn.stages.refinement import refine
from gpnn.stages.selection import Sample
from gpnn.stages.whitening import Whitener

FEW = 2000
_FOLDS = 3
_ROUNDS = (40, 60, 100, 100)
_PARTS, _HEDGE = 5, 0.5


@dataclass(frozen=True)
class Fold:
    """Rows that took no part in learning a metric, and that metric."""

    rows: Rows
    whitener: Whitener
    params: Hyperparameters


def cross_fit(
    X: Array,
    y: Array,
    holdout: Holdout,
    best: Candidate,
    whitener: Whitener,
    engine: Engine,
    rng: np.random.Generator,
    noise: Noise | None = None,
) -> list[Fold]:
    """The metric of the best candidate, learned anew in folds of the rows that it was learned from.

    The rows that chose it are the last fold: they took no part in learning it, and it is the one to predict with.
    """
    kernel, nobody = get_kernel(best.kernel), np.zeros(0, np.int64)
    parts = np.array_split(holdout.learn, _FOLDS)
    seeds = rng.integers(2**31, size=_FOLDS)
    spaces = []
    for part in parts:
        others = rng.permutation(np.setdiff1d(np.arange(len(X)), part))
        sample = Sample.draw(X, y, Holdout(others, nobody, nobody), rng, noise=noise)
        spaces.append(sample.whitened(whitener, rng, engine).branch(1))
    found = [best.params] * _FOLDS

    def learn(block: slice) -> None:
        for at in range(block.start, block.stop):
            space, own_rng = spaces[at], np.random.default_rng(seeds[at])
            start = space.phase_1(best.kernel, own_rng)
            found[at] = refine(space.learner, space.learn, kernel, start, _ROUNDS, own_rng)

    for_each_block(learn, _FOLDS, 1, engine.n_learners)
    return [
        Fold(part, whitener.stretched(1 / np.asarray(params.lengthscale)), replace(params, lengthscale=1.0))
        for part, params in zip([*parts, holdout.judge], [*found, best.params], strict=True)
    ]


def in_folds(judges: Judges, folds: list[Fold], index, n_neighbors: int) -> tuple[Judges, Rows]:
    """Judges that predict each row in the metric of its fold, and all rows."""

    def in_metric_of(fold: Fold) -> Judges:
        rows = judges.engine.whiten(fold.whitener, judges.X)
        y, probes = fold.whitener.transform_y(judges.y), np.arange(len(judges.X))
        engine = judges.engine.build(rows, y, index, n_neighbors, probes, 0, noise=judges.noise)
        return replace(judges, engine=engine, whitener=fold.whitener, params=fold.params)

    of_folds = tuple((fold.rows, in_metric_of(fold)) for fold in folds)
    return FoldedJudges(**vars(judges), folds=of_folds), np.concatenate([fold.rows for fold in folds])


@dataclass(frozen=True)
class FoldedJudges(Judges):
    folds: tuple[tuple[Rows, Judges], ...] = ()

    def _predict(self, rows, sizes: NDArray) -> LocalSolution:
        places = [np.flatnonzero(np.isin(rows, members)) for members, _ in self.folds]
        parts = [judges._predict(rows[at], sizes) for at, (_, judges) in zip(places, self.folds, strict=True)]
        back = np.argsort(np.concatenate(places))
        return LocalSolution(*(np.concatenate(column)[back] for column in zip(*parts, strict=True)))

    def _settle(
        self, y: Array, law: Prediction, innovations: Array, calibration: Calibration, local: bool, rng
    ) -> tuple[Calibration, Array]:
        """Floor and α(x) fit the rows they were fitted to a little too well. What they do to others is measured in
        parts, and α corrected; by half a standard error more, as too narrow is worse than too wide. Intervals are
        made from those errors, whatever α is."""
        part_of, errors = rng.permutation(len(y)) % _PARTS, np.empty(len(y))
        for k in range(_PARTS):
            inside, outside = part_of == k, part_of != k
            fitted = fitted_calibration(y[outside], law[outside], innovations[outside], local)
            errors[inside] = (y[inside] - law.mean[inside]) / fitted(law[inside], innovations[inside]).std
        squares = errors**2
        more = float(np.mean(squares) + _HEDGE * np.std(squares) / np.sqrt(len(y)))
        corrected = replace(calibration, alpha=more * calibration.alpha, floor=more * calibration.floor)
        return corrected, errors / np.sqrt(more)
