"""Phase 2 (Algorithm 2): one factor α on the variances of any Gaussian predictor, how sure it is, and α(x)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpnn.common import metrics
from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Prediction

__all__ = [
    "Calibration",
    "LocalScale",
    "calibrate",
    "factor_for_a_new_part",
    "fit_calibration",
    "interval",
    "variance_factor",
]

_NEIGHBORS = (8, 16, 24, 32, 48, 64, 100, 200)  # k from which α(x) may be made, and all of them
_SHARES = (0.01, 0.03, 0.1, 0.2, 0.4)  # of the global α in it
_FLOORS = np.geomspace(1e-3, 3, 11)  # relative to the median variance
_SURPRISED, _ENOUGH = 0.01, 4000
"""One row in a hundred is taken to err like any other, however sure its neighbours are: held-out rows may have been
lucky, and a variance that is far too small costs more than one that is somewhat too large. The more rows were held out,
the less it was luck: of more than so many, no more such rows than of these."""
_WORTH_IT = 0.005  # nats; less is noise
_COVERED, _MOST_COVERED = 0.9, 0.99
_STEPS, _LEAST, _BEGUN = 12, 1e-6, 100  # of α beside noise that is known; rows that it begins with


def variance_factor(y: Array, prediction: Prediction) -> float:
    """α = mean of (y* − μ*)²/σ*² over rows that were not used to make the prediction (Alg. 2, step 2)."""
    if len(prediction) == 0:
        raise InvalidInputError("Calibration needs at least one held-out row; got none.")
    if prediction.known is not None:
        return _checked(factor_beside((y - prediction.mean) ** 2, prediction.own, prediction.known))
    return _checked(metrics.calibration(y, prediction))


def _checked(alpha: float) -> float:
    if not (np.isfinite(alpha) and alpha > 0):
        raise InvalidInputError(
            f"Calibration gave α = {alpha}: every held-out row was predicted exactly, or a variance is zero. "
            "Check for rows that stand in the data twice; calibration_size=0 leaves this step out."
        )
    return alpha


def calibrate(prediction: Prediction, alpha: float | Array) -> Prediction:
    """The same means, variances times α (Alg. 2's output, seen from the prediction)."""
    return replace(prediction, variance=alpha * prediction.variance)


@dataclass(frozen=True)
class LocalScale:
    """How much rougher or noisier the data are around a query than θ̂ says: α(x)/α, from the neighbours' innovations.

    The mean innovation of the k nearest rows, mixed with a share of what is typical: never below that share, and never
    above what neighbours really did, also far from all data. The first neighbour is left out: its innovation says how
    high y is, not how rough.
    """

    n_neighbors: int
    share: float
    typical: float

    def __call__(self, innovations: Array) -> Array:
        return self.of(_roughness(innovations, self.n_neighbors))

    def of(self, local: Array) -> Array:
        """From the mean innovation of each query's neighbours."""
        return (1 - self.share) * local / self.typical + self.share


@dataclass(frozen=True)
class Calibration:
    """Variances α(α(x)/α · σ*² + c): Algorithm 2, told where the data are rough, with a floor under every variance.

    A prediction next to a repeated row claims hardly any variance; a few of those that are wrong would drive α up for
    all rows. The floor answers for them instead.
    """

    alpha: float = 1.0
    floor: float = 0.0
    """αc."""
    scale: LocalScale | None = None

    def __call__(self, law: Prediction, innovations: Array) -> Prediction:
        factors = 1.0 if self.scale is None else self.scale(innovations)
        return law.with_own(self.alpha * factors * law.own + self.floor)


def fit_calibration(y: Array, law: Prediction, innovations: Array) -> Calibration:
    """The one that gives held-out rows the lowest NLL; what does not help by more than noise stays out."""
    squared_errors = (y - law.mean) ** 2
    surprised = surprise_in(squared_errors)
    m = innovations.shape[1]
    scales: list[tuple[LocalScale | None, Array]] = [(None, law.own)]
    for k in [k for k in _NEIGHBORS if k < m] + [m] * (m > 1):
        local = _roughness(innovations, k)
        typical = float(np.mean(local))
        some = [LocalScale(k, share, typical) for share in _SHARES] if typical > 0 else []
        scales += [(scale, law.own * scale.of(local)) for scale in some]
    best, best_loss = Calibration(), np.inf
    for scale, variance in scales:
        floors = np.append(0.0, float(np.median(variance)) * _FLOORS)
        with_floor = variance + floors[:, None]
        if law.known is not None:
            alphas = np.array([factor_beside(squared_errors, own, law.known) for own in with_floor])
            total = alphas[:, None] * with_floor + law.known
            losses = 0.5 * np.mean(np.log(total) + surprised / total, axis=1)
        else:
            alphas = np.mean(squared_errors / with_floor, axis=1)  # the best for scale and floor: Alg. 2, step 2
            surprise, bounded = np.mean(surprised / with_floor, axis=1), np.maximum(alphas, 1e-300)
            losses = 0.5 * (np.mean(np.log(with_floor), axis=1) + np.log(bounded) + surprise / bounded)
        losses += _WORTH_IT * ((scale is not None) + (floors > 0))
        at = int(np.argmin(np.where(np.isnan(losses), np.inf, losses)))
        if losses[at] < best_loss:
            alpha, floor = float(alphas[at]), float(floors[at])
            best, best_loss = Calibration(alpha, alpha * floor, scale), losses[at]
    _checked(best.alpha)
    return best


def surprise_in(squared_errors: Array) -> float:
    """What each row's squared error is taken to be more than it was, since held-out rows may have been lucky."""
    return _SURPRISED * min(1.0, _ENOUGH / len(squared_errors)) * float(np.mean(squared_errors))


def factor_beside(squared_errors: Array, variance: Array, known: Array) -> float:
    """α of the highest likelihood for variances αv + known, by Fisher's scoring. Rows whose noise is known to be large
    say little of it: so it begins as if some rows without any had shown that it is 1."""
    alpha = float(np.mean(squared_errors) / np.mean(variance))
    for _ in range(_STEPS):
        total = alpha * variance + known
        share = variance / total
        slope = float(np.sum(share * (squared_errors / total - 1))) + _BEGUN * (1 / alpha - 1) / alpha
        step = slope / (float(np.sum(share**2)) + _BEGUN / alpha**2)
        alpha = min(max(alpha + step, alpha / 10, _LEAST), 10 * alpha + _LEAST)
    return alpha


def _roughness(innovations: Array, k: int) -> Array:
    return innovations[:, 1:k].mean(axis=1)


def factor_for_a_new_part(z_squared: Array, n_parts: int) -> float:
    """What variances are multiplied by so that nine in ten rows of a new part lie in their intervals, given judges of n
    others. One time in n + 1 it is harder than all of them; how many of its rows are missed then is not known: half are
    taken to be, so more of the judges must lie in theirs."""
    share = min(_COVERED * (n_parts + 0.5) / n_parts, _MOST_COVERED)
    usual, needed = np.quantile(z_squared, [_COVERED, max(share, _COVERED)])
    return float(needed / max(usual, _LEAST * needed, 1e-300))


def interval(z_squared: Array) -> tuple[float, float]:
    """Where α lies with probability 95 %, from the scatter of z²: wide where tails are heavy or rows are few."""
    alpha = float(np.mean(z_squared))
    if len(z_squared) < 2:
        return 0.0, np.inf
    error = 1.96 * float(np.std(z_squared, ddof=1)) / np.sqrt(len(z_squared))
    return max(alpha - error, 0.0), alpha + error
