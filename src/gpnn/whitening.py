"""Pre-whitening (appendix "Pre-whitening of Data"): x → M⁻¹(x − μ)/√d with MMᵀ = Cov(x), and y → (y − μ)/σ."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpnn._parallel import blocks, for_each_block
from gpnn._types import Array, Prediction
from gpnn.errors import GPnnWarning, InvalidInputError

_BLOCK = 65_536
_RIDGE = 1e-5  # added to the eigenvalues, as in the authors' code
_COLLINEAR = 1e-10  # an eigenvalue of the correlation matrix below this is rounding noise
_FARTHEST = 1e15  # far outside any data, and its square still fits float32


@dataclass(frozen=True)
class Whitener:
    """What was learned from the training rows; `transform` applies it to any rows."""

    x_mean: Array
    x_map: Array
    """(d, d) matrix, or (d,) factors: whitened rows are (x − x_mean) times this."""
    y_mean: float
    y_std: float

    @classmethod
    def fit(
        cls, X: Array, y: Array, mode: str = "full", columns: Sequence[str] | None = None, n_jobs: int | None = None
    ) -> Whitener:
        """`mode`: "full" decorrelates the columns, "diagonal" only scales them, "none" leaves X as it is."""
        d = X.shape[1]
        y_mean, y_std = float(np.mean(y)), float(np.std(y))
        if mode == "none":
            return cls(np.zeros(d), np.ones(d), y_mean, y_std)
        if mode not in ("full", "diagonal"):
            raise InvalidInputError(f"whitening = {mode!r} is unknown. Choose 'full', 'diagonal' or 'none'.")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, covariance = _moments(X, n_jobs, diagonal=mode == "diagonal")
        variance = covariance if mode == "diagonal" else np.diag(covariance)
        names = [str(name) for name in columns] if columns is not None else [f"column {k}" for k in range(d)]
        if not np.isfinite(variance).all():
            worst = names[int(np.argmin(np.isfinite(variance)))]
            raise InvalidInputError(
                f"The variance of {worst} overflows: its values are beyond about 1e150. Rescale or transform it."
            )
        # Columns are standardised first, so that nothing below depends on their units.
        spread = np.sqrt(variance)
        constant = spread <= 1e-12 * np.abs(mean)
        scale = np.where(constant, 0.0, 1 / np.where(constant, 1.0, spread))
        _warn("constant", [name for name, is_constant in zip(names, constant, strict=True) if is_constant])
        if mode == "diagonal":
            return cls(mean, scale / np.sqrt(d), y_mean, y_std)
        correlation = covariance * scale * scale[:, None]
        eigenvalues, vectors = np.linalg.eigh(correlation)
        _warn("linear combinations of others", _dependent(eigenvalues, vectors, names, constant))
        x_map = scale[:, None] * vectors / np.sqrt(np.maximum(eigenvalues, 0) + _RIDGE) / np.sqrt(d)
        return cls(mean, x_map, y_mean, y_std)

    def transform(self, X: Array, out: Array | None = None) -> Array:
        """Whitened rows in float32, written to `out` if given."""
        centred = np.asarray(X, dtype=np.float64) - self.x_mean
        rows = centred * self.x_map if self.x_map.ndim == 1 else centred @ self.x_map
        np.clip(rows, -_FARTHEST, _FARTHEST, out=rows)
        if out is None:
            return rows.astype(np.float32)
        out[...] = rows
        return out

    def transform_y(self, y: Array) -> Array:
        return (y - self.y_mean) / self.y_std

    def inverse(self, prediction: Prediction) -> Prediction:
        """A prediction of whitened y, in the user's units."""
        return Prediction(self.y_mean + self.y_std * prediction.mean, self.y_std**2 * prediction.variance)


def _moments(X, n_jobs, diagonal: bool):
    """Mean and covariance (only its diagonal if asked) in two passes of float64 blocks, summed in a fixed order."""
    n = len(X)
    mean = sum(np.sum(X[block], axis=0, dtype=np.float64) for block in blocks(n, _BLOCK)) / n
    parts = [np.zeros(0)] * -(-n // _BLOCK)

    def add(block):
        centred = X[block] - mean
        parts[block.start // _BLOCK] = (centred**2).sum(axis=0) if diagonal else centred.T @ centred

    for_each_block(add, n, _BLOCK, n_jobs)
    return mean, sum(parts) / n


def _dependent(eigenvalues, vectors, names, constant) -> list[str]:
    """Names of the columns that take part in an exact linear relation."""
    null = vectors[:, (eigenvalues < _COLLINEAR)]
    involved = (np.abs(null) > 1e-4).any(axis=1) & ~constant
    return [name for name, yes in zip(names, involved, strict=True) if yes]


def _warn(what: str, names: list[str]) -> None:
    if names:
        listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        warnings.warn(
            f"{len(names)} input columns are {what}: {listed}. They add nothing to the prediction; "
            "drop them to be rid of this warning.",
            GPnnWarning,
            stacklevel=4,
        )
