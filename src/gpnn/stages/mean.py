"""Mean functions: what is taken out of y before the Gaussian process sees it, and added back to its predictions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array
from gpnn.engines.parallel import for_each_block

_ROWS = 65_536  # that a thread works on at a time
MEANS = ("constant", "zero", "linear")
_TRACE, _RIDGES = 1e-6, 50  # the least ridge, with which collinear columns do no harm; and how many are tried


class Constant:
    """The mean of y; with value=0.0, none at all."""

    def __init__(self, value: float | None = None):
        self.value = value

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Constant:
        return Constant(float(np.average(y, weights=sample_weight)) if self.value is None else self.value)

    def predict(self, X: Array) -> Array:
        return np.full(len(X), self.value)


@dataclass(frozen=True)
class Linear:
    """Least squares with as much ridge as generalised cross-validation asks for; `value` is the mean of y."""

    centre: Array = field(default_factory=lambda: np.zeros(0))
    weights: Array = field(default_factory=lambda: np.zeros(0))
    value: float = 0.0

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Linear:
        w = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
        centre, value = np.average(X, axis=0, weights=w), float(np.average(y, weights=w))
        Z, rest = X - centre, y - value
        scale = np.sqrt(np.average(Z**2, axis=0, weights=w))
        Z /= np.where(scale > 0, scale, 1.0)
        weighted = Z.T * w
        sizes, directions = np.linalg.eigh(weighted @ Z)
        sizes, pulls = np.maximum(sizes, 0.0), directions.T @ (weighted @ rest)
        ridge = _ridge(sizes, pulls, float(np.sum(w * rest**2)), float(np.sum(w)))
        return Linear(centre, directions @ (pulls / (sizes + ridge)) / np.where(scale > 0, scale, 1.0), value)

    def predict(self, X: Array) -> Array:
        """Each row by itself: the last digits of a product of matrices depend on how many there are."""
        return np.sum((X - self.centre) * self.weights, axis=1) + self.value


def _ridge(sizes: Array, pulls: Array, total: float, n: float) -> float:
    """That of the least generalised cross-validation error. sizes: eigenvalues of the n standardised rows' products;
    pulls: Z^T y in these directions; total: the squares of y."""
    ridges = np.geomspace(_TRACE, 10 * n, _RIDGES)[:, None]
    left = total - np.sum(pulls**2 * (sizes + 2 * ridges) / (sizes + ridges) ** 2, axis=1)
    freedom = n - 1 - np.sum(sizes / (sizes + ridges), axis=1)
    errors = np.where(freedom > 0.5, np.maximum(left, 1e-15 * total) / np.maximum(freedom, 0.5) ** 2, np.inf)
    return float(ridges[int(np.argmin(errors)), 0])


def make_mean(mean):
    """An object with fit(X, y), which returns a fitted one, and predict(X). Any scikit-learn regressor will do."""
    if isinstance(mean, str):
        if mean == "linear":
            return Linear()
        return Constant(0.0 if mean == "zero" else None)
    if not (hasattr(mean, "fit") and hasattr(mean, "predict")):
        raise InvalidInputError(
            f"mean = {mean!r} has no fit and predict. Give one of {', '.join(MEANS)}, or a scikit-learn regressor."
        )
    return clone(mean)


def fit_mean(mean, X: Array, y: Array, weights: Array | None):
    """A fitted mean; by weighted rows, if it can be."""
    if weights is None or not has_fit_parameter(mean, "sample_weight"):
        return mean.fit(X, y)
    return mean.fit(X, y, sample_weight=weights)


def add_mean(mean, X: Array, y: Array, sign: float = 1.0, n_jobs: int | None = None, progress: str | None = None):
    """y plus (or minus) the fitted mean function at X."""
    total = np.array(y, dtype=float)

    def add(part: slice) -> None:
        total[part] += sign * mean.predict(X[part])

    for_each_block(add, len(X), _ROWS, n_jobs, progress)
    return total


def means_at(mean, values: Array, rows: NDArray[np.integer], n: int) -> Array | None:
    """The mean function's values at some rows of a table of n, as a column of that table; None if it is one number."""
    if isinstance(mean, Constant):
        return None
    column = np.zeros(n)
    column[rows] = values
    return column
