"""Pre-whitening (appendix "Pre-whitening of Data"): x → M⁻¹(x − μ)/√d with MMᵀ = Cov(x), and y → (y − μ)/σ.

Beyond the paper, columns may be replaced by their ranks first, where a few huge values would make all others alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpnn.common.errors import GPnnWarning, InvalidInputError, listed
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines.local import FARTHEST
from gpnn.engines.parallel import blocks, for_each_block

WHITENINGS = ("full", "diagonal", "ranks", "none")

_BLOCK = 65_536
_RIDGE = 1e-5  # added to the eigenvalues, as in the authors' code
_COLLINEAR = 1e-10  # an eigenvalue of the correlation matrix below this is rounding noise
_KNOTS, _RANKED_ROWS = 512, 20_000


@dataclass(frozen=True)
class Ranks:
    """Each column by where its values stand among those of the training rows, as a number from 0 to k − 1.

    Outside the training values the number goes on growing, a standard deviation of the column for one of the ranks:
    a query far from all data stays far.
    """

    knots: Array
    """(d, k): quantiles of each column."""
    reach: Array
    """(d,): how far outside one rank is."""

    @classmethod
    def fit(cls, X: Array) -> tuple[Ranks, Array]:
        """Also the ranks of the rows that were looked at."""
        looked_at = np.random.default_rng(0).choice(len(X), min(len(X), _RANKED_ROWS), replace=False)
        X = X[np.sort(looked_at)].astype(np.float64)
        knots = np.ascontiguousarray(np.quantile(X, np.linspace(0, 1, _KNOTS), axis=0, method="nearest").T)
        ranked = cls(knots, np.ones(len(knots)))(X)
        spread = np.std(ranked, axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            reach = np.std(X, axis=0) / np.where(spread > 0, spread, 1.0)
        return cls(knots, np.where(reach > 0, reach, 1.0)), ranked

    def __call__(self, X: Array) -> Array:
        from gpnn.engines.compiled.rows import rank_rows  # numba comes with it: not before it is needed

        ranked = np.empty(X.shape)
        rank_rows(np.ascontiguousarray(X, dtype=np.float64), self.knots, self.reach, ranked)
        return ranked


@dataclass(frozen=True)
class Whitener:
    """What was learned from the training rows; `transform` applies it to any rows."""

    x_mean: Array
    x_map: Array
    """(d, d) matrix, or (d,) factors: whitened rows are (x − x_mean) times this."""
    y_mean: float
    y_std: float
    ranks: Ranks | None = None
    """What rows go through before all else."""

    @classmethod
    def fit(
        cls,
        X: Array,
        y: Array,
        mode: str = "full",
        columns: Sequence[str] | None = None,
        n_jobs: int | None = None,
        warn: bool = True,
        progress: str | None = None,
        weights: Array | None = None,
    ) -> Whitener:
        """`mode`: "full" decorrelates the columns, "diagonal" scales them, "ranks" their ranks, "none" keeps X as is.

        `warn`: name constant and dependent columns in a warning. weights (n,): of the rows in all moments; ranks count
        every row once.
        """
        d = X.shape[1]
        y_mean, y_std = float(np.mean(y)), float(np.std(y))
        if weights is not None:
            y_mean = float(np.average(y, weights=weights))
            y_std = float(np.sqrt(np.average((y - y_mean) ** 2, weights=weights)))
        if mode == "none":
            return cls(np.zeros(d), np.ones(d), y_mean, y_std)
        if mode not in WHITENINGS:
            raise InvalidInputError(f"whitening = {mode!r} is unknown. Choose one of: {', '.join(WHITENINGS)}.")
        ranks = None
        if mode == "ranks":
            (ranks, X), weights = Ranks.fit(X), None
        only_scaled = mode != "full"
        with np.errstate(over="ignore", invalid="ignore"):
            mean, covariance = _moments(X, n_jobs, only_scaled, progress, weights)
        variance = covariance if only_scaled else np.diag(covariance)
        names = [str(name) for name in columns] if columns is not None else [f"column {k}" for k in range(d)]
        if not np.isfinite(variance).all():
            worst = names[int(np.argmin(np.isfinite(variance)))]
            raise InvalidInputError(
                f"The variance of {worst} overflows: its values are beyond about 1e150. Rescale or transform it."
            )
        # Columns are standardised first, so that nothing below depends on their units.
        spread = np.sqrt(variance)
        constant = spread <= 1e-14 * np.abs(mean)
        scale = np.where(constant, 0.0, 1 / np.where(constant, 1.0, spread))
        _warn(warn, [name for name, is_constant in zip(names, constant, strict=True) if is_constant],
              "constant, which adds nothing; without what is named here there is no warning")  # fmt: skip
        if only_scaled:
            return cls(mean, scale / np.sqrt(d), y_mean, y_std, ranks)
        correlation = covariance * scale * scale[:, None]
        eigenvalues, vectors = np.linalg.eigh(correlation)
        _warn(warn, _dependent(eigenvalues, vectors, names, constant),
              "linearly dependent on each other; of each relation, one column can be dropped without loss")  # fmt: skip
        x_map = scale[:, None] * vectors / np.sqrt(np.maximum(eigenvalues, 0) + _RIDGE) / np.sqrt(d)
        return cls(mean, x_map, y_mean, y_std)

    def stretched(self, factors: Array | float) -> Whitener:
        """Whitened columns times `factors`: with 1/l, distances come out in lengthscales."""
        return replace(self, x_map=self.x_map * factors)

    def after(self, x_map: Array | None) -> Whitener:
        """With whitened rows multiplied by a map (d, d); None changes nothing."""
        if x_map is None:
            return self
        return replace(self, x_map=self.x_map[:, None] * x_map if self.x_map.ndim == 1 else self.x_map @ x_map)

    def transform(self, X: Array, out: Array | None = None) -> Array:
        """Whitened rows in float32, written to `out` if given."""
        X = np.ascontiguousarray(X, dtype=np.float64) if self.ranks is None else self.ranks(X)
        if out is None:
            out = np.empty(X.shape, np.float32)
        if self.x_map.ndim == 1:
            out[...] = np.clip((X - self.x_mean) * self.x_map, -FARTHEST, FARTHEST)
        else:
            from gpnn.engines.compiled.rows import map_rows

            map_rows(X, self.x_mean, self.x_map, out)
        return out

    def transform_y(self, y: Array) -> Array:
        return (y - self.y_mean) / self.y_std

    def inverse(self, prediction: Prediction) -> Prediction:
        """A prediction of whitened y, in the user's units."""
        return prediction.affine(self.y_mean, self.y_std)


def in_metric_of(params: Hyperparameters, whitener: Whitener) -> tuple[Whitener, Hyperparameters]:
    """Lengthscales by column go into the whitener, so that the nearest rows are the most correlated."""
    if not np.ndim(params.metric):
        return whitener, params
    return whitener.stretched(1 / np.asarray(params.metric)), params.in_metric()


def _moments(X, n_jobs, diagonal: bool, progress: str | None, weights: Array | None = None):
    """Mean and covariance (only its diagonal if asked) in two passes of float64 blocks, summed in a fixed order."""
    n = len(X)
    origin = X[0].astype(np.float64)  # so that a constant column sums to exactly zero
    if weights is not None:
        return _weighted_moments(X, weights, diagonal)
    mean = origin + sum(np.sum(X[block] - origin, axis=0) for block in blocks(n, _BLOCK)) / n
    parts = [np.zeros(0)] * -(-n // _BLOCK)

    def add(block):
        centred = X[block] - mean
        parts[block.start // _BLOCK] = (centred**2).sum(axis=0) if diagonal else centred.T @ centred

    for_each_block(add, n, _BLOCK, n_jobs, progress)
    return mean, sum(parts) / n


def _weighted_moments(X, weights: Array, diagonal: bool):
    origin, total = X[0].astype(np.float64), weights.sum()
    mean = origin + sum(weights[block] @ (X[block] - origin) for block in blocks(len(X), _BLOCK)) / total
    covariance = 0.0
    for block in blocks(len(X), _BLOCK):
        centred = X[block] - mean
        weighted = weights[block, None] * centred
        covariance = covariance + ((weighted * centred).sum(axis=0) if diagonal else weighted.T @ centred)
    return mean, covariance / total


def _dependent(eigenvalues, vectors, names, constant) -> list[str]:
    """Names of the columns that take part in an exact linear relation."""
    null = vectors[:, (eigenvalues < _COLLINEAR)]
    involved = (np.abs(null) > 1e-4).any(axis=1) & ~constant
    return [name for name, yes in zip(names, involved, strict=True) if yes]


def _warn(wanted: bool, names: list[str], problem: str) -> None:
    if wanted and names:
        are = "1 input column is" if len(names) == 1 else f"{len(names)} input columns are"
        warnings.warn(f"{are} {problem}: {listed(names)}.", GPnnWarning, stacklevel=4)
