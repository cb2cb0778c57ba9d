"""Candidates of the choice by evidence: how each did on the judges, and who goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from gpnn.common.types import Array, Hyperparameters, Prediction

_MAP_PRICE, _SUM_PRICE = 0.01, 0.03  # what they must gain in `score`: without, a metric is easier to read, and quicker
_RIVALS, CLOSE = ("exponential", "matern32"), 0.1  # kernels; how far behind in `priced_score` to go on to the largest
_AS_GOOD = 0.03  # in `priced_score` on a larger sample: less is chance
_IN_VAIN, _SURELY = 0.02, 2.0  # in `priced_score`, and in standard errors, by which more steps did worse
_CLEARLY_WORSE = 0.2  # of a whitening with one kernel, in `priced_score`: it is not tried with the others


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to predict, and how it did on the judges, with the variances calibrated there."""

    whitening: str
    kernel: str
    refined: bool
    params: Hyperparameters
    rmse: float = np.inf
    nll: float = np.inf
    crps: float = np.inf
    x_map: Array | None = None
    """What whitened rows are multiplied by before `params` apply: (d, d), None for nothing."""
    losses: Array | None = None
    """Of each judge: their mean is `score`."""
    begun: Candidate | None = None
    """What it was refined from."""

    @property
    def is_sum(self) -> bool:
        """Of two kernels."""
        return "+" in self.kernel

    @property
    def price(self) -> float:
        return (0.0 if self.x_map is None else _MAP_PRICE) + (_SUM_PRICE if self.is_sum else 0.0)

    def row(self) -> dict:
        """For the report: what was tried, and its scores."""
        told = {name: value for name, value in vars(self).items() if name not in ("params", "x_map", "losses", "begun")}
        return told | {"mapped": self.x_map is not None}


def settled(candidates: list[Candidate]) -> list[Candidate]:
    """The best first; of those that are as good as the best, the one whose means are: variances will be calibrated,
    and nothing mends a mean (House Electric)."""
    candidates = sorted(candidates, key=priced_score)
    good = [one for one in candidates if priced_score(one) <= priced_score(candidates[0]) + _AS_GOOD]
    first = min(good, key=lambda one: one.rmse)
    return [first] + [one for one in candidates if one is not first]


def best_of_whitenings(candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    """Of those that are not clearly worse than others. candidates: the best first."""
    enough = priced_score(candidates[0]) + _CLEARLY_WORSE
    return {candidate.whitening: candidate for candidate in reversed(candidates) if priced_score(candidate) < enough}


def leaders_of(candidates: Sequence[Candidate], n: int, behind: float = np.inf) -> list[Candidate]:
    """The best refined candidate of each of the n leading pairs, of which no whitening has more than half if n > 2:
    what is behind on few rows may be ahead on many, but not if it is too far behind."""
    best = best_of_kinds([candidate for candidate in sorted(candidates, key=priced_score) if candidate.refined])
    most = n // 2 if n > 2 else n
    places: Counter[str] = Counter()
    leaders: list[Candidate] = []
    for candidate in best:
        if leaders and priced_score(candidate) > priced_score(leaders[0]) + behind:
            break
        places[candidate.whitening] += 1
        if places[candidate.whitening] <= most:
            leaders.append(candidate)
    return leaders[:n]


def best_of_kinds(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first of each whitening and kernel, with a map or without. candidates: the best first."""
    best: dict[tuple[str, str, bool], Candidate] = {}
    for candidate in candidates:
        best.setdefault((candidate.whitening, candidate.kernel, candidate.x_map is None), candidate)
    return list(best.values())


def rivals_of(candidates: Sequence[Candidate], leaders: Sequence[Candidate], behind: float) -> list[Candidate]:
    """The leader's whitening with each of `_RIVALS` that is not among the leaders, if no farther behind than that.
    Which is best changes with the number of rows, for the rougher (House Electric) or the smoother one (covtype)."""
    kinds, best = {(one.whitening, one.kernel) for one in leaders}, priced_score(leaders[0]) + behind
    rest = [one for one in sorted(candidates, key=priced_score) if one.refined and priced_score(one) < best]
    wanted = [kind for kernel in _RIVALS if (kind := (leaders[0].whitening, kernel)) not in kinds]
    alike = ([one for one in rest if (one.whitening, one.kernel) == kind] for kind in wanted)
    return [those[0] for those in alike if those]


def score(rmse: float, nll: float) -> float:
    """Mean and law count alike: a tenth of a nat of NLL is worth a tenth of RMSE."""
    return nll + float(np.log(max(rmse, 1e-12)))


def losses_of_rows(y: Array, law: Prediction) -> Array:
    """Their mean is `score`, their scatter that of its estimate."""
    squared = (y - law.mean) ** 2
    mse = max(float(np.mean(squared)), 1e-24)
    return 0.5 * (np.log(2 * np.pi * law.variance) + squared / law.variance + np.log(mse) + squared / mse - 1)


def hope(one: Candidate, leader: Candidate) -> float:
    """What is to be expected of one that is behind, as its judges and the leader's are the same: the mean of the gain,
    where there is one, given the standard error of their differences."""
    error = _error_of_difference(one, leader)
    if np.isinf(error):
        return np.inf
    behind = (priced_score(one) - priced_score(leader)) / error
    return error * float(np.exp(-0.5 * behind**2) / np.sqrt(2 * np.pi) - behind * ndtr(-behind))


def in_vain(one: Candidate, candidates: Sequence[Candidate]) -> bool:
    """Whether it was refined further, and did clearly worse: where columns are many, metrics overfit."""
    further = [other for other in candidates if other.begun is one]
    least = (max(_IN_VAIN, _SURELY * _error_of_difference(one, other)) for other in further)
    return any(priced_score(other) - priced_score(one) > by for other, by in zip(further, least, strict=True))


def _error_of_difference(one: Candidate, other: Candidate) -> float:
    """Of their scores, from what each judge says of both; infinite where that is not known."""
    if one.losses is None or other.losses is None:
        return np.inf
    return max(float(np.std(one.losses - other.losses)) / np.sqrt(len(one.losses)), 1e-12)


def priced_score(candidate: Candidate) -> float:
    return score(candidate.rmse, candidate.nll) + candidate.price
