"""Phase 2 (Algorithm 2): one factor α on the variances of any Gaussian predictor, how sure it is, and α(x)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpnn import metrics
from gpnn._parallel import for_each_block
from gpnn._types import Array, Prediction
from gpnn.errors import InvalidInputError
from gpnn.neighbors import NeighborIndex, make_index, nearest_others

_NEIGHBORS = (25, 50, 100, 200, 400)  # k from which α(x) may be made
_WEIGHTS = (5.0, 10.0, 30.0)  # rows' worth of the global α mixed into it
_WORTH_IT = 0.005  # nats; less is noise
_QUERIES = 256


def variance_factor(y: Array, prediction: Prediction) -> float:
    """α = mean of (y* − μ*)²/σ*² over rows that were not used to make the prediction (Alg. 2, step 2)."""
    if len(prediction) == 0:
        raise InvalidInputError("Calibration needs at least one held-out row; got none.")
    alpha = metrics.calibration(y, prediction)
    if not (np.isfinite(alpha) and alpha > 0):
        raise InvalidInputError(
            f"Calibration gave α = {alpha}: every held-out row was predicted exactly, or a variance is zero. "
            "Check for rows that stand in the data twice; calibration_size=0 leaves this step out."
        )
    return alpha


def calibrate(prediction: Prediction, alpha: float | Array) -> Prediction:
    """The same means, variances times α (Alg. 2's output, seen from the prediction)."""
    return replace(prediction, variance=alpha * prediction.variance)


def fit_floor(squared_errors: Array, variance: Array) -> float:
    """c ≥ 0 such that α(σ*² + c), with its own α, has the lowest NLL on held-out rows.

    A prediction next to a repeated row claims hardly any variance; a few of those that are wrong would drive α up for
    all rows. A floor under the variances answers for them instead.
    """
    middle = float(np.median(variance))
    floors = np.concatenate([[0.0], middle * np.geomspace(1e-4, 3, 31)])
    losses = []
    for c in floors:
        with_floor = variance + c
        losses.append(np.mean(np.log(with_floor)) + np.log(np.mean(squared_errors / with_floor)))
    best = int(np.argmin(losses))
    return float(floors[best]) if losses[best] < losses[0] - 2 * _WORTH_IT else 0.0


def interval(z_squared: Array) -> tuple[float, float]:
    """Where α lies with probability 95 %, from the scatter of z²: wide where tails are heavy or rows are few."""
    alpha = float(np.mean(z_squared))
    if len(z_squared) < 2:
        return 0.0, np.inf
    error = 1.96 * float(np.std(z_squared, ddof=1)) / np.sqrt(len(z_squared))
    return max(alpha - error, 0.0), alpha + error


@dataclass(frozen=True)
class LocalFactors:
    """α(x)/α: the mean z² of the k calibration rows nearest to x, mixed with `weight` rows' worth of α.

    An average of at least k values: bounded, also far from all data.
    """

    index: NeighborIndex
    z_squared: Array
    """Of the calibration rows, after division by α, in the order of the index."""
    n_neighbors: int
    weight: float
    scale: float
    """Makes z² average 1 on the calibration rows, each seen without itself."""

    def __call__(self, X: Array) -> Array:
        found = self.index.query(X, self.n_neighbors).indices
        return self.scale * _mixed(self.z_squared[found].sum(axis=1), self.n_neighbors, self.weight)


def fit_local(X: Array, z_squared: Array, n_jobs: int | None = None) -> tuple[LocalFactors | None, Array]:
    """α(x)/α from calibration rows X (c, d), with z² (c,) averaging 1; k and the weight by their NLL, rows left out.

    None where one α is as good. Also the factor at each calibration row, as if that row were not there.
    """
    c = len(X)
    sizes = [k for k in _NEIGHBORS if 4 * k <= c]
    everywhere: Array = np.ones(c)
    if not sizes:
        return None, everywhere
    index = make_index("exact", c, X.shape[1], sizes[-1]).build(np.array(X, np.float32), sizes[-1] + 1, X[:0], n_jobs)
    ordered = z_squared[index.order]
    sums = np.empty((len(sizes), c))

    def add_up(part: slice) -> None:
        others = ordered[nearest_others(index, X[part], np.arange(part.start, part.stop), sizes[-1])]
        sums[:, part] = np.cumsum(others, axis=1)[:, np.array(sizes) - 1].T

    for_each_block(add_up, c, _QUERIES, n_jobs)
    best: LocalFactors | None = None
    best_loss, factors = 0.5 - _WORTH_IT, everywhere  # ½(log 1 + mean z²) without any factor
    for k, total in zip(sizes, sums, strict=True):
        for weight in _WEIGHTS:
            local = _mixed(total, k, weight)
            scale = float(np.mean(z_squared / local))
            loss = 0.5 * float(np.mean(np.log(scale * local)) + 1)
            if loss < best_loss:
                best, best_loss, factors = LocalFactors(index, ordered, k, weight, scale), loss, scale * local
    return best, factors


def _mixed(total: Array, k: int, weight: float) -> Array:
    return (total + weight) / (k + weight)
