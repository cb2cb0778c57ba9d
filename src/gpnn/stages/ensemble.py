"""Several candidates that answer together, where that beats the winner of the choice by more than noise.

Each predicts the very same judges, rows that none has learned from, from their nearest rows in its own metric. These
say how much each counts, and what the whole is worth (`stages.weighing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gpnn.common.kernels import get_kernel_or_sum
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, Noise
from gpnn.engines.index import NeighborIndex
from gpnn.stages.calibration import LocalScale
from gpnn.stages.candidates import Candidate, best_of_kinds
from gpnn.stages.far import Far
from gpnn.stages.judges import Verdict
from gpnn.stages.near import Answer, Near
from gpnn.stages.weighing import Weighing
from gpnn.stages.whitening import Whitener, in_metric_of

SURE = 1.0
"""Standard errors that the gain must exceed."""


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
