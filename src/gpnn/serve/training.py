"""What a model file still knows of its training rows: their values, up to float32, and how they are spread.

The file holds whitened rows; whitening is undone here. Ranks are undone by the quantiles that they were counted in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array
from gpnn.regressor import GPnnRegressor
from gpnn.stages.whitening import Whitener
from gpnn.tables.columns import Boolean, Column, Date, Number, OneHot

_SURVEYED = 200_000  # rows, evenly spaced among all: more would slow down loading, and tell little


@dataclass(frozen=True)
class Spread:
    """Of each encoded column, over the training rows (or as many of them as were looked at)."""

    n_rows: int
    low: Array
    high: Array
    mean: Array
    sd: Array
    middle: Array
    """Medians."""


class Training:
    """The training rows of a regressor, in the columns that it was fitted to."""

    def __init__(self, regressor: GPnnRegressor):
        self._regressor = regressor
        self._index: Any = regressor.index_  # one of ours, as model files hold them
        self._inverse = None if regressor.whitener_.x_map.ndim == 1 else np.linalg.pinv(regressor.whitener_.x_map)

    @property
    def n_rows(self) -> int:
        return len(self._index.order)

    @cached_property
    def spread(self) -> Spread:
        step = -(-self.n_rows // _SURVEYED)
        X = self._inputs(np.arange(0, self.n_rows, step))
        low, high = X.min(axis=0), X.max(axis=0)
        if self._regressor._ranges is not None:
            low, high = np.minimum(low, self._regressor._ranges[0]), np.maximum(high, self._regressor._ranges[1])
        return Spread(len(X), low, high, X.mean(axis=0), X.std(axis=0), np.median(X, axis=0))

    def rows(self, numbers: NDArray[np.integer]) -> tuple[Array, Array]:
        """Inputs (k, d) and targets (k,) of training rows by their number in `fit`."""
        places = self._places[numbers]
        X = self._inputs(places)
        y = self._regressor.whitener_.y_mean + self._regressor.whitener_.y_std * self._regressor._y[places]
        y = y + self._regressor.mean_.predict(self._regressor._used(X))
        scale = self._regressor.target_scale_
        return X, y if scale.plain else scale.back(y)

    @cached_property
    def _places(self) -> NDArray[np.integer]:
        """Where each row of `fit` lies in the index; −1: set aside. Made when it is first asked for."""
        aside = self._regressor._set_aside
        n = max(self._regressor._n_seen, self.n_rows + len(aside))  # shards are without rows left out, and number all
        kept = np.delete(np.arange(n), aside)
        places = np.full(n, -1, dtype=self._index.order.dtype)
        places[kept[np.asarray(self._index.order)]] = np.arange(self.n_rows)
        return places

    def _inputs(self, places: NDArray[np.integer]) -> Array:
        used = unwhitened(self._regressor.whitener_, self._index.points(places).astype(float), self._inverse)
        ranges, columns = self._regressor._ranges, self._regressor.columns_
        if ranges is None:
            return used
        X = np.tile(ranges[2], (len(used), 1))  # of a column that does not count, its mean
        X[:, columns] = used
        return X


def unwhitened(whitener: Whitener, Z: Array, inverse: Array | None) -> Array:
    """x from z = (x − mean)·map; of a column that whitening took out, its mean."""
    if inverse is None:
        factors = whitener.x_map
        X = whitener.x_mean + np.divide(Z, factors, out=np.zeros_like(Z), where=factors != 0)
    else:
        X = whitener.x_mean + Z @ inverse
    if whitener.ranks is None:
        return X
    knots, reach = whitener.ranks.knots, whitener.ranks.reach
    last = knots.shape[1] - 1
    values = np.empty_like(X)
    for k, places in enumerate(X.T):
        beyond = np.minimum(places, 0.0) + np.maximum(places - last, 0.0)
        values[:, k] = np.interp(places, np.arange(last + 1), knots[k]) + beyond * reach[k]
    return values


def value_of(column: Column, encoded: Array, sd: Array) -> Any:
    """What a person would have written for this part of an encoded row, as JSON; a mean target stays a number.

    `sd`: the spread of these encoded columns. Rows in the file are float32, so that a 0 may come back as 10⁻⁷ of it.
    """
    if isinstance(column, Boolean):
        return bool(encoded[0] > 0.5)
    if isinstance(column, Number):
        return _rounded(encoded[0], sd[0])
    if isinstance(column, OneHot):
        shares = np.append(1.0 - encoded.sum(), encoded)
        return column.levels[int(np.argmax(shares))]
    if isinstance(column, Date):
        return _moment(column, encoded)
    return _rounded(encoded[0], sd[0])


def _rounded(value: float, sd: float) -> float:
    return float(f"{value:.6g}") if abs(value) > 1e-5 * sd else 0.0


def _moment(column: Date, encoded: Array) -> str | None:
    """A date or time of day as ISO text."""
    if column.parts[:1] == ("days",):
        try:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=float(encoded[0]))
        except OverflowError:
            return None
        text = (moment + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M")
        return text if "day" in column.parts else text[:10]
    minutes = round(float(np.arctan2(encoded[0], encoded[1])) / (2 * np.pi) % 1.0 * 1440) % 1440
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
