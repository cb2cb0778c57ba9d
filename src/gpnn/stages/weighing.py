"""Several laws of the same rows as one: how much each counts, and what the whole is worth.

Weights and calibration are fitted to some of the judges, and judged on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gpnn.common.types import Array, Prediction
from gpnn.stages.candidates import losses_of_rows
from gpnn.stages.judges import fitted_calibration

FEWEST = 500
"""Judges that can tell weights from noise."""
_PARTS = 5
_LEAST = 0.05  # of a weight beside the first: with less it is not worth its time


@dataclass(frozen=True)
class Weighing:
    """One law of several: the weighted mean, and the variance of the mixture, which their spread is part of."""

    weights: Array
    alpha: float = 1.0
    floor: float = 0.0

    def __call__(self, laws: Sequence[Prediction]) -> Prediction:
        law = self.mixed(laws)
        return law.with_own(self.alpha * law.own + self.floor)

    def mixed(self, laws: Sequence[Prediction]) -> Prediction:
        """Before the whole is calibrated. Not as a product of matrices, whose last digits depend on how many rows
        there are."""
        pairs = list(zip(self.weights, laws, strict=True))
        mean: Any = sum(weight * law.mean for weight, law in pairs)
        own: Any = sum(weight * (law.own + (law.mean - mean) ** 2) for weight, law in pairs)
        return replace(laws[0], mean=mean).with_own(own)


class Trial(NamedTuple):
    """What judges say of a weighing that was fitted to others."""

    gain: float
    """Of NLL + log RMSE, over the winner alone."""
    error: float
    """Its standard error, from what each judge says of both."""
    residuals: Array
    """Standardised."""

    def exceeds(self, sure: float, least: float = -np.inf) -> bool:
        """Whether that is so many standard errors, and no less than something."""
        return self.gain > max(sure * self.error, least)


def fit_weighing(y: Array, laws: Sequence[Prediction], local: bool) -> Weighing:
    """Weights, none below zero and one in all, of the lowest NLL + log RMSE, and the calibration of the whole. Who
    counts for next to nothing counts for nothing; the winner, who comes first, always answers."""
    weights = _best_weights(y, laws)
    kept = np.flatnonzero(weights >= _LEAST)
    if len(kept) < len(laws):
        kept = np.union1d(kept, [0])
        weights = np.zeros(len(laws))
        weights[kept] = _best_weights(y, [laws[int(k)] for k in kept])
    law = Weighing(weights).mixed(laws)
    # No innovations: each member has its own α(x) already.
    found = fitted_calibration(y, law, np.zeros((len(y), 0)), local)
    return Weighing(weights, found.alpha, found.floor)


def _best_weights(y: Array, laws: Sequence[Prediction]) -> Array:
    n = len(laws)
    if n == 1:
        return np.ones(1)

    def loss(weights: Array) -> float:
        """Whatever factor the variances still need."""
        law = Weighing(weights).mixed(laws)
        squared, variance = (y - law.mean) ** 2, np.maximum(law.variance, 1e-300)
        nll = np.mean(np.log(variance)) + np.log(np.mean(squared / variance) + 1e-300)
        return 0.5 * float(nll + np.log(np.mean(squared) + 1e-300))

    one_in_all = {"type": "eq", "fun": lambda weights: weights.sum() - 1}
    found = minimize(loss, np.full(n, 1 / n), method="SLSQP", bounds=[(0, 1)] * n, constraints=[one_in_all]).x
    found = np.clip(found, 0, 1)
    return found / found.sum()


def judged(y: Array, laws: Sequence[Prediction], local: bool, rng: np.random.Generator) -> Trial:
    """Weights and calibration fitted to some of the rows y (n,) and judged on the others, in turn; beside the winner,
    calibrated in the same way."""
    part = rng.permutation(len(y)) % _PARTS
    alone, together = (_out_of_part(y, some, local, part) for some in (laws[:1], laws))
    gains = losses_of_rows(y, alone) - losses_of_rows(y, together)
    error = float(np.std(gains, ddof=1) / np.sqrt(len(y)))
    return Trial(float(np.mean(gains)), error, (y - together.mean) / together.std)


def _out_of_part(y: Array, laws: Sequence[Prediction], local: bool, part: NDArray[np.integer]) -> Prediction:
    mean, variance = np.empty((2, len(y)))
    for k in range(_PARTS):
        inside, outside = part == k, part != k
        law = fit_weighing(y[outside], [law[outside] for law in laws], local)([law[inside] for law in laws])
        mean[inside], variance[inside] = law.mean, law.variance
    return Prediction(mean, variance)
