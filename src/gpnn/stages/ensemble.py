"""Several candidates that answer together, where that beats the winner of the choice by more than noise.

Each predicts the very same judges, rows that none has learned from, from their nearest rows in its own metric. These
say how much each counts, and what the whole is worth: weights and calibration are fitted to some of them, and judged on
the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gpnn.common.kernels import get_kernel_or_sum
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, Noise
from gpnn.engines.index import NeighborIndex
from gpnn.stages.calibration import LocalScale
from gpnn.stages.far import Far
from gpnn.stages.judges import Verdict, fitted_calibration
from gpnn.stages.near import Answer, Near
from gpnn.stages.selection import Candidate, best_of_kinds
from gpnn.stages.whitening import Whitener, in_metric_of

FEWEST = 500  # judges that can tell weights from noise
_PARTS = 5
_LEAST = 0.05  # of a companion's weight: with less it is not worth its time
_SURE = 1.0  # standard errors that the gain must exceed


class Contender(NamedTuple):
    """A candidate that stood for election, in the metric that it has learned."""

    kernel: str
    whitener: Whitener
    params: Hyperparameters
    told: dict
    """For the report."""

    @classmethod
    def of(cls, candidate: Candidate, whitener: Whitener) -> Contender:
        told = {name: candidate.row()[name] for name in ("whitening", "kernel", "mapped")}
        return cls(candidate.kernel, *in_metric_of(candidate.params, whitener.after(candidate.x_map)), told)


def contenders(tried: Sequence[Candidate], whiteners: Mapping[str, Whitener], n: int) -> list[Contender]:
    """The leaders of the n best kinds. tried: the best first, those of the last comparison before those of others."""
    return [Contender.of(one, whiteners[one.whitening]) for one in best_of_kinds(tried)[:n]]


@dataclass(frozen=True)
class Companion:
    """A contender beside the winner, calibrated, with the rows in its own metric."""

    kernel: str
    whitener: Whitener
    params: Hyperparameters
    n_neighbors: int
    alpha: float
    """That is in the variances already."""
    floor: float
    scale: LocalScale | None
    unbiased: bool
    index: NeighborIndex
    y: Array
    noise: Noise | None = None

    def law(self, engine: Engine, X: Array) -> Answer:
        kernel = get_kernel_or_sum(self.kernel)
        fitted = self.whitener, kernel, self.params, self.n_neighbors, self.floor, self.scale, self.unbiased
        return Near(*fitted).law(engine.hold(self.index, self.y, self.noise), X)

    def with_rows_of(self, engine: Engine) -> Companion:
        noise = None if engine.noise is None else engine.noise.scaled(self.alpha)
        return replace(self, index=engine.index, y=engine.y, noise=noise)


def companion(one: Contender, verdict: Verdict, unbiased: bool, engine: Engine) -> Companion:
    """verdict: of the judges; the engine holds the rows."""
    found = verdict.calibration
    settings = found.alpha, found.floor, found.scale, unbiased
    params, rows = one.params.scaled(found.alpha), (engine.index, engine.y)
    return Companion(one.kernel, one.whitener, params, verdict.n_neighbors, *settings, *rows).with_rows_of(engine)


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

    @property
    def worth_it(self) -> bool:
        return self.gain > _SURE * self.error


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
    gains = _losses(y, alone) - _losses(y, together)
    error = float(np.std(gains, ddof=1) / np.sqrt(len(y)))
    return Trial(float(np.mean(gains)), error, (y - together.mean) / together.std)


def _out_of_part(y: Array, laws: Sequence[Prediction], local: bool, part: NDArray[np.integer]) -> Prediction:
    mean, variance = np.empty((2, len(y)))
    for k in range(_PARTS):
        inside, outside = part == k, part != k
        law = fit_weighing(y[outside], [law[outside] for law in laws], local)([law[inside] for law in laws])
        mean[inside], variance[inside] = law.mean, law.variance
    return Prediction(mean, variance)


def _losses(y: Array, law: Prediction) -> Array:
    """Of each row: their mean is NLL + log RMSE, their scatter that of its estimate."""
    squared = (y - law.mean) ** 2
    mse = float(np.mean(squared))
    nll = 0.5 * (np.log(2 * np.pi * law.variance) + squared / law.variance)
    return nll + 0.5 * (np.log(mse) + squared / mse - 1)


@dataclass(frozen=True)
class Ensemble:
    companions: list
    weighing: Weighing
    """The winner's weight first."""


@dataclass(frozen=True)
class Together(Near):
    """The winner, as one of several. Beyond the support, it is left alone with the models learned for gaps."""

    ensemble: Ensemble = field(default_factory=lambda: Ensemble([], Weighing(np.ones(1))))
    far: Far | None = None

    def law(self, engine: Engine, X: Array, progress: Any = None) -> Answer:
        winner = super().law(engine, X, progress)
        law = winner.law
        alone = np.zeros(len(X)) if self.far is None else self.far.mixture.ramp(winner.claimed)
        asked = np.flatnonzero(alone < 1)
        found = [one.law(engine, X[asked]) for one in self.ensemble.companions]
        together, share = self.ensemble.weighing([law[asked], *(of.law for of in found)]), alone[asked]
        mean, variance, jitter = law.mean.copy(), law.variance.copy(), winner.jitter.copy()
        mean[asked] = share * mean[asked] + (1 - share) * together.mean
        variance[asked] = variance[asked] ** share * together.variance ** (1 - share)
        for of in found:
            jitter[asked] = np.maximum(jitter[asked], of.jitter)
        return winner._replace(law=Prediction(mean, variance), jitter=jitter)
