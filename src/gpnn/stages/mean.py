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
    """Least squares with a trace of ridge, so that collinear columns do no harm; `value` is the mean of y."""

    centre: Array = field(default_factory=lambda: np.zeros(0))
    weights: Array = field(default_factory=lambda: np.zeros(0))
    value: float = 0.0

    def fit(self, X: Array, y: Array, sample_weight: Array | None = None) -> Linear:
        from sklearn.linear_model import Ridge  # which few fits and no prediction need
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(X, sample_weight=sample_weight)
        ridge = Ridge(alpha=1e-6).fit(scaler.transform(X), y, sample_weight)
        return Linear(scaler.mean_, ridge.coef_ / scaler.scale_, float(ridge.intercept_))

    def predict(self, X: Array) -> Array:
        return (X - self.centre) @ self.weights + self.value


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
