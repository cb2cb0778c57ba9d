"""One law from two beyond the support: of the local process, and of the models learned for gaps.

Neither knows how wrong it is there, but judges do: parts of the table that were out of sight. From them comes how large
the errors of each are, given the variance that it claims, and how far to lean from the one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri

from gpnn.common import metrics
from gpnn.common.types import Array, Prediction

_RAMP = np.log(1.5)  # of the claimed variance, from the edge of the support to where judges from gaps are believed
_FEWEST = 100  # judges that tell something
_LOWEST = 0.2  # of the judges had less variance claimed for them: less than that is not believed either
_STIFF, _STIFF_LEAN = 1.0, 0.05  # what a change of one in a slope must gain for each judge: they are of few parts
_RANDOM, _ENOUGH = 0.5, 50  # what random rows count for beside judges from gaps where laws are weighed, if so many
_SHRUNK = 0.8  # correlations, which differ from part to part
_MOST = 50.0  # a logarithm


@dataclass(frozen=True)
class Claims:
    """What is said of some queries: the laws of the local process, calibrated; the variances that it claimed before;
    and the mean of the members' laws, with the variance of their means. Only the first contain noise that is known."""

    near: Prediction
    claimed: Array
    members: Prediction
    spread: Array

    def __getitem__(self, chosen) -> Claims:
        return Claims(self.near[chosen], self.claimed[chosen], self.members[chosen], self.spread[chosen])


@dataclass(frozen=True)
class Mixture:
    edge: float
    """The logarithm of the claimed variance at which the support ends; −inf if every query is treated so."""
    near: Array
    """The logarithm of the local process's squared error: a constant, and slopes for the logarithms of what it claimed
    and of what calibration multiplied that by."""
    members: Array
    """That of the members': a constant, and a slope for the logarithm of their variance."""
    correlation: float
    """Of the two errors."""
    lean: float
    """Towards the members: added to the difference of these two logarithms where they are weighed."""
    lowest: Array
    """Claimed variance and members' variance, as logarithms, below which judges tell little: no law is narrower than
    there."""
    common: Array
    """Of random rows beyond the edge: claimed variance and the local process's squared error, as logarithms. From there
    to the lowest of the judges, it is given up only gradually."""
    widening: float = 1.0
    """What the variance is multiplied by."""

    def __call__(self, claims: Claims) -> Prediction:
        near_error, error = self._errors(claims)
        weight = self._weight_of(np.log(claims.claimed), near_error, error)
        # The error of a weighted sum is never larger than the sum of the weighted errors, whatever they have in common.
        std = (1 - weight) * np.exp(0.5 * near_error) + weight * np.exp(0.5 * error)
        ramp = self.ramp(claims.claimed)
        weight = ramp * weight
        law = replace(claims.near, mean=(1 - weight) * claims.near.mean + weight * claims.members.mean)
        return law.with_own(law.own ** (1 - ramp) * (self.widening * std**2) ** ramp)

    def weight(self, claims: Claims) -> Array:
        """That the members' mean has in the mixture's."""
        return self.ramp(claims.claimed) * self._weight_of(np.log(claims.claimed), *self._errors(claims))

    def ramp(self, claimed: Array) -> Array:
        """From 0 at the edge of the support to 1, where judges from gaps are believed."""
        return np.clip((np.log(claimed) - self.edge) / _RAMP, 0, 1)

    def _weight_of(self, claimed: Array, near_error: Array, error: Array) -> Array:
        return _best_weight(self._log_ratio(claimed, near_error, error) + self.lean, self.correlation)

    def _log_ratio(self, claimed: Array, near_error: Array, error: Array) -> Array:
        reach = self.lowest[0] - self.common[0]
        between = np.clip((self.lowest[0] - claimed) / reach, 0, 1) if reach > 0 else 0.0
        return near_error + between * (self.common[1] - near_error) - error

    def _errors(self, claims: Claims) -> tuple[Array, Array]:
        near, members = _terms(claims)
        near[1], members[1] = np.maximum(near[1], self.lowest[0]), np.maximum(members[1], self.lowest[1])
        # Judges are of one member each. Their mean errs less, unless queries are of a kind that judges were not.
        spread = 0.0 if self.edge == -np.inf else claims.spread
        return _line(self.near, near), np.log(np.exp(_line(self.members, members)) + spread)


def _terms(claims: Claims) -> tuple[list[Array], list[Array]]:
    claimed, members = np.log(claims.claimed), np.log(claims.members.variance)
    ones = np.ones_like(claimed)
    return [ones, claimed, np.log(claims.near.own) - claimed], [ones, members]


def _line(slopes: Array, terms: list[Array]) -> Array:
    """Not as a product of matrices, whose last digits depend on how many queries there are."""
    return np.clip(sum(slope * term for slope, term in zip(slopes, terms, strict=True)), -_MOST, _MOST)


@dataclass(frozen=True)
class Judges:
    """Outcomes (n,), and what was said of them."""

    y: Array
    claims: Claims

    def __getitem__(self, chosen) -> Judges:
        return Judges(self.y[chosen], self.claims[chosen])

    @property
    def errors(self) -> tuple[Array, Array]:
        """Of the local process, and of the members."""
        return self.y - self.claims.near.mean, self.y - self.claims.members.mean


def fit_mixture(edge: float, judges: Judges, part: Array, random: Judges) -> Mixture:
    """From judges in gaps, with the part of the table that was out of sight with each; and random rows, those for which
    the local process claims most."""
    beyond = np.flatnonzero(np.log(judges.claims.claimed) > edge)
    if len(beyond) < _FEWEST:  # the local process is as sure in gaps as it is elsewhere
        beyond = np.argsort(judges.claims.claimed)[-_FEWEST:]
    judges, part = judges[beyond], part[beyond]
    y, claims = judges.y, judges.claims
    near, members = _terms(claims)
    lowest = np.quantile([near[1], members[1]], _LOWEST, axis=1)
    near_errors, errors = judges.errors
    known = claims.near.variance - claims.near.own
    lines = _log_squares(near_errors, near, (1.0, 0.5), known), _log_squares(errors, members, (1.0,), known)
    mixture = Mixture(edge, *lines, 0.0, 0.0, lowest, _of_random(random))
    foreseen = edge == -np.inf
    share = 0.0 if foreseen else _RANDOM * min(1.0, len(random.y) / _ENOUGH)
    mixture = replace(mixture, correlation=_correlation(mixture, judges))
    mixture = replace(mixture, lean=_lean(mixture, ((1 - share, judges), (share, random))))
    widening = _widening(metrics.z_squared(y, replace(mixture, edge=-np.inf)(claims)), part, foreseen)
    return replace(mixture, widening=widening)


def _of_random(random: Judges) -> Array:
    """`Mixture.common`."""
    near = random.claims.near
    squared = float(np.mean((random.y - near.mean) ** 2 - (near.variance - near.own)))
    return np.log([float(np.median(random.claims.claimed)), max(squared, 1e-300)])


def _log_squares(error: Array, columns: list[Array], slopes: Sequence[float], known: Array) -> Array:
    """The line through the logarithms of expected squared errors that is likeliest, were they Gaussian; beside noise
    that is known."""
    terms = np.stack(columns, axis=1)
    squared = error**2 + 1e-12 * np.mean(error**2) + 1e-300
    start = np.array([np.log(np.mean(squared * np.exp(-terms[:, 1:] @ slopes))), *slopes])

    def loss(line: Array) -> tuple[float, Array]:
        own = np.exp(np.clip(terms @ line, -_MOST, _MOST))
        variance = own + known
        bent = np.append(0.0, line[1:] - slopes)
        value = np.mean(0.5 * (np.log(variance) + squared / variance)) + _STIFF * bent @ bent
        slope = 0.5 * (1 - squared / variance) * own / variance
        return value, slope @ terms / len(terms) + 2 * _STIFF * bent

    bounds = [(None, None), (0.0, 1.5), (0.0, 1.0)][: len(start)]
    return minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x


def _best_weight(log_ratio: Array, correlation: float) -> Array:
    """Of the second of two answers, for the least expected squared error of their weighted sum, given the logarithm of
    the ratio of their squared errors and how these are correlated."""
    ratio = np.exp(-0.5 * np.clip(log_ratio, -_MOST, _MOST))
    return np.clip((1 - correlation * ratio) / (1 + ratio**2 - 2 * correlation * ratio), 0, 1)


def _correlation(mixture: Mixture, judges: Judges) -> float:
    pairs = zip(judges.errors, mixture._errors(judges.claims), strict=True)
    standard = [error * np.exp(-0.5 * log_square) for error, log_square in pairs]
    return _SHRUNK * float(np.clip(np.nan_to_num(np.corrcoef(*standard)[0, 1]), 0, 1))


def _lean(mixture: Mixture, shares: Sequence[tuple[float, Judges]]) -> float:
    """By which the weighted sum errs least, beside the better of the two answers to each; over judges of several kinds,
    with what these count for."""
    counted = []
    for share, judges in shares:
        near, members = judges.errors
        ratio = mixture._log_ratio(np.log(judges.claims.claimed), *mixture._errors(judges.claims))
        scale = np.mean(np.minimum(near**2, members**2)) + 1e-300
        counted.append((share / scale, near, members, ratio))

    def loss(lean: Array) -> float:
        total = _STIFF_LEAN * lean[0] ** 2
        for per_square, near, members, ratio in counted:
            error = near + (members - near) * _best_weight(ratio + lean[0], mixture.correlation)
            total += per_square * np.mean(error**2)
        return float(total)

    return float(minimize(loss, np.zeros(1), bounds=[(-4, 4)], method="L-BFGS-B").x[0])


def _widening(z_squared: Array, part: Array, foreseen: bool) -> float:
    """So that nine in ten of the judges lie in their intervals. If it was not said which parts of the table queries are
    like: more, the more these differ and the fewer they are, and so that z² is 1 at least."""
    covering = float(np.quantile(z_squared, 0.9)) / ndtri(0.95) ** 2
    if foreseen:
        return covering
    by_part = [float(np.mean(z_squared[part == one])) for one in np.unique(part)]
    unsure = 1 + float(np.std(by_part)) / max(float(np.mean(by_part)), 1e-30) / np.sqrt(len(by_part))
    return unsure * max(float(np.mean(z_squared)), covering)
