"""What users know of the noise: variances that instruments report, and weights. How it is checked and carried."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array
from gpnn.engines import Noise
from gpnn.stages.suspects import Suspects


@dataclass(frozen=True)
class Weightless:
    """Rows of weight 0, by number: as if they were not there."""

    rows: NDArray[np.int64]

    def taken_from(self, X: Array, y: Array, queries, noise: Noise | None):
        """All but them, and the numbers of the others."""
        kept = np.delete(np.arange(len(y)), self.rows)
        if len(self.rows) == 0:
            return X, y, queries, noise, kept
        if len(kept) < 2:
            raise InvalidInputError(
                f"sample_weight is zero in {len(self.rows)} of {len(y)} rows: nothing is left to learn."
            )
        of_kept = None if noise is None else noise[kept]
        return X[kept], y[kept], None if queries is None else queries.of(kept), of_kept, kept

    def number_rows_of(self, model, kept: NDArray[np.int64], report: dict) -> None:
        """A model fitted to the `kept` rows speaks of them by their numbers in the user's table from now on."""
        if len(self.rows) == 0:
            return
        Suspects(self.rows).number_rows_of(model, kept)
        if model._row_means is not None:
            means = np.zeros(report["n"])
            means[kept] = model._row_means
            model._row_means = means
        for one in report.get("suspicious", ()):
            one["row"] = int(kept[one["row"]])


def check_noise(n: int, noise_variance, sample_weight) -> tuple[Noise | None, Weightless]:
    """Of n training rows, in units of y²; None if nothing was said."""
    nobody = Weightless(np.zeros(0, np.int64))
    if noise_variance is None and sample_weight is None:
        return None, nobody
    known = np.zeros(n) if noise_variance is None else _checked("noise_variance", noise_variance, n)
    weights = np.ones(n) if sample_weight is None else _checked("sample_weight", sample_weight, n)
    without = np.flatnonzero(weights == 0)
    return Noise(1 / np.where(weights > 0, weights, 1.0), known), Weightless(without)


def check_new_noise(model, n: int, noise_variance) -> Array | None:
    """Of n rows to predict, in units of y²."""
    if noise_variance is None:
        return None
    if model._typical_noise is None:
        raise InvalidInputError(
            "noise_variance was given for rows to predict, but the model was fitted without: what noise it saw is "
            "learned, and part of every law. Fit with noise_variance=… too (0 for rows whose noise is only learned)."
        )
    return _checked("noise_variance", noise_variance, n)


def _checked(name: str, values, n: int) -> Array:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must be numbers: {error}.") from error
    if array.shape not in ((), (n,)):
        raise InvalidInputError(f"{name} has the shape {array.shape}; give one number for each of the {n} rows.")
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InvalidInputError(
            f"{name} must be finite and not negative; {int(wrong.sum())} values are not, the first of them "
            f"{array.reshape(-1)[first]} in row {first}."
            + (" Variances are squares of standard deviations." if name == "noise_variance" else "")
        )
    return np.broadcast_to(array, (n,)).copy()


def known_noise(given: Array | None, n: int, typical: float | None, y_std: float) -> Array | None:
    """Of n rows to predict, in whitened units: as given in those of y, or as much as training rows have on average."""
    if typical is None:
        return None
    return np.full(n, typical) if given is None else given / y_std**2


def moments(y: Array, weights: Array | None) -> tuple[float, float]:
    """Mean and standard deviation."""
    if weights is None:
        return float(np.mean(y)), float(np.std(y))
    mean = float(np.average(y, weights=weights))
    return mean, float(np.sqrt(np.average((y - mean) ** 2, weights=weights)))
