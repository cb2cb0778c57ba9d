"""Why a `GPnnRegressor` says what it says: rows, weights, columns. The arithmetic lives in `stages.explanation`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from gpnn.common.errors import InvalidInputError, listed
from gpnn.common.types import Array, Neighbors
from gpnn.stages.explanation import (
    Explanation,
    Influence,
    PartialDependence,
    Relevance,
    explained,
    influence,
    relevance,
)
from gpnn.stages.mean import Constant
from gpnn.stages.validation import check_new_rows

_GRID = 20


class Explaining:
    _row_means: Array | None

    def kneighbors(self: Any, X) -> Neighbors:
        """The training rows (numbers as in `fit`) that a prediction at each row of X uses, and their distances in the
        learned metric (of an ensemble, those of the leading candidate). Rows set aside for calibration are never
        among them."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        engine = self._holding_engine()
        found = engine.neighbors(engine.whiten(self.whitener_, self._used(X)), self.n_neighbors_, self._bar("search"))
        return Neighbors(self._numbered(found.indices), found.distances)

    def explain(self: Any, X) -> Explanation:
        """Which training rows made the prediction at each row of X (q, d): mean = offset + Σ weights·y[indices] to
        rounding, y as in `fit`, or on the scale that it was learned on (the answer's `scale`). Also the effective
        number of rows, what each column contributed to their distances, and the support. Beyond the support, rows that
        the models for gaps answer from are among them. What boosted trees say, which no few rows made, is part of the
        offset."""
        check_is_fitted(self)
        self._refuse_ensemble("Which rows made a prediction is a question")
        return self._explain(check_new_rows(self, X))

    def _explain(self: Any, X: Array) -> Explanation:
        """Of an ensemble: what the leading candidate says, and why."""
        engine, table, X = self._holding_engine(), X, self._used(X)
        constant = self.mean_.value if isinstance(self.mean_, Constant) else None
        if constant is None and self._row_means is None:
            raise InvalidInputError(
                "This model was fitted by a version of gpnn that did not keep the mean function at its rows, without "
                "which weights cannot be told from offsets. Fit again."
            )
        y_std = self.whitener_.y_std
        found = explained(
            self._near(), self._far, self._trees, engine, X, table, self._numbered, y_std, self._row_means
        )
        offset, level = found.offset + self.mean_.predict(X), constant or 0.0
        scale = self.target_scale_.kind
        found = replace(found, columns=self._on_all_columns(found.columns))
        return replace(found, scale=scale, y=found.y + level, offset=offset - level * found.weights.sum(axis=1))

    def influence(self: Any, rows, X) -> Influence:
        """Which of the predictions at X (q, d) the training rows (numbers as in `fit`) move, and how far each moves
        when that row's y moves by one."""
        rows = np.unique(np.atleast_1d(np.asarray(rows)))
        check_is_fitted(self)
        self._holding_engine()  # which several targets do not have
        n = self._n_seen
        if rows.dtype.kind not in "iu" or (len(rows) and not 0 <= rows[0] <= rows[-1] < max(n, 1)):
            raise InvalidInputError(
                f"rows = {listed([str(row) for row in rows])} must be numbers of training rows, 0 to {n - 1:,}, as "
                "they were given to fit."
            )
        return influence(self.explain(X), rows.astype(np.int64))

    def relevance(self: Any) -> Relevance:
        """Which columns tell rows apart: the share of each in the squared distance of two random training rows in the
        learned metric (of an ensemble, that of the leading candidate), and where that lies with probability 95 %."""
        check_is_fitted(self)
        self._consolidate()
        names = getattr(self, "feature_names_in_", [f"column {k}" for k in range(self.n_features_in_)])
        found = relevance(self._near(), self._holding_engine(), names)
        of_all = {name: self._on_all_columns(getattr(found, name)) for name in ("share", "lower", "upper")}
        return replace(found, **of_all)

    def partial_dependence(self: Any, X, column, grid=None, coverage: float = 0.9) -> PartialDependence:
        """The mean prediction over rows X (q, d) as `column` (its name or number) takes the values of the grid (g,), by
        default 20 quantiles of that column; and where this average of f lies with probability `coverage`."""
        check_is_fitted(self)
        if not 0 < coverage < 1:
            raise InvalidInputError(f"coverage = {coverage} must lie strictly between 0 and 1, such as 0.9.")
        X = np.array(check_new_rows(self, X))
        if len(X) == 0:
            raise InvalidInputError("partial_dependence averages over the rows of X, and there are none.")
        k = self._column_number(column)
        if grid is None:
            grid = np.unique(np.quantile(X[:, k], np.linspace(0.02, 0.98, _GRID)))
        grid = np.asarray(grid, dtype=float)
        if grid.ndim != 1 or not np.isfinite(grid).all():
            raise InvalidInputError("grid must be finite numbers (g,), values for the column to take.")
        noise, width = self.params_.noise_variance * self.whitener_.y_std**2, float(ndtri(0.5 + coverage / 2))
        mean, ends = np.empty(len(grid)), np.empty((2, len(grid)))
        engine = self._holding_engine()
        for at, value in enumerate(grid):
            X[:, k] = value
            law, _ = self._law(X, engine)
            mean[at] = law.mean.mean()
            if law.inner is None:
                off = width * np.sqrt(np.maximum(law.variance - noise, 0)).mean()
                ends[:, at] = mean[at] - off, mean[at] + off
            else:
                off = width * np.sqrt(np.maximum(law.inner.variance - noise, 0))
                ends[:, at] = [law.scale.back(law.inner.mean + side * off).mean() for side in (-1, 1)]
        return PartialDependence(grid, mean, *ends)

    def _column_number(self: Any, column) -> int:
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        if isinstance(column, str) and column in names:
            return names.index(column)
        if isinstance(column, int | np.integer) and 0 <= column < self.n_features_in_:
            return int(column)
        known = listed(names) if names else f"0 to {self.n_features_in_ - 1}"
        raise InvalidInputError(f"There is no column {column!r}. Choose one of: {known}.")

    def _numbered(self: Any, found: NDArray) -> NDArray[np.int64]:
        """Rows of the index by their numbers in `fit`."""
        kept = self.index_.order[found].astype(np.int64)
        # Of the rows kept, number i stood after as many set aside as lie before it.
        gaps = self._set_aside - np.arange(len(self._set_aside))
        return kept + np.searchsorted(gaps, kept, side="right")
