"""What rows that come after `fit` say of the calibration: each is predicted before it is learned, so it is honest."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gpnn.common.errors import GPnnWarning, InvalidInputError
from gpnn.common.types import Array, Prediction
from gpnn.stages.far import OUTSIDE
from gpnn.stages.recalibration import UNCHANGED

LEVEL = 0.9
WINDOW = 1000  # outcomes that count
_TRUST = 200  # as many outcomes as the calibration of `fit` counts for, to begin with
_FEWEST_OUTSIDE = 50
_ALARM, _FEWEST = 1.5, 200  # times the errors that `fit` promised, over so many outcomes at least


def _promised() -> Array:
    """Errors in units of the 90 % interval as they are if calibration holds."""
    return ndtri(0.5 + (np.arange(_TRUST) + 0.5) / (2 * _TRUST)) / ndtri(0.5 + LEVEL / 2)


@dataclass(frozen=True)
class Recent:
    """The latest outcomes: how far each lay from its mean, in units of the 90 % interval's end on that side, as `fit`
    (or the last `recalibrate`) would have it."""

    ratios: Array = field(default_factory=_promised)
    outside: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(_TRUST, bool))
    """Of each: whether the support said so."""
    factors: tuple[float, float] = UNCHANGED
    """Of the variances then, inside the support and outside."""
    n_seen: int = 0

    def after(self, ratios: Array, outside: NDArray[np.bool_]) -> Recent:
        latest, flags = np.append(self.ratios, ratios)[-WINDOW:], np.append(self.outside, outside)[-WINDOW:]
        return replace(self, ratios=latest, outside=flags, n_seen=self.n_seen + len(ratios))

    def followed(self) -> tuple[float, float]:
        """Factors with which nine in ten of the latest outcomes would have lain in their intervals."""
        inside = self._factor(~self.outside)
        outside = self._factor(self.outside) if self.outside.sum() >= _FEWEST_OUTSIDE else inside
        return self.factors[0] * inside, self.factors[1] * outside

    def _factor(self, rows: NDArray[np.bool_]) -> float:
        ratios = self.ratios[rows]
        return float(np.quantile(ratios, LEVEL) ** 2) if len(ratios) else 1.0

    @property
    def alarm(self) -> bool:
        """Whether errors have grown so much that the metric itself no longer fits, not only the width."""
        real = self.ratios[-min(self.n_seen, len(self.ratios)) :] if self.n_seen else self.ratios[:0]
        return len(real) >= _FEWEST and float(np.quantile(real, LEVEL)) > _ALARM


def outcomes(y: Array, law: Prediction, factors: tuple[float, float], recent: Recent, ends: Array) -> Recent:
    """`recent` after outcomes y (n,), predicted as `law` with these factors. ends (n, 2): of its standardised 90 %
    intervals."""
    outside = np.zeros(len(y), bool) if law.support is None else law.support < OUTSIDE
    now, then = (np.where(outside, pair[1], pair[0]) for pair in (factors, recent.factors))
    std = np.sqrt(law.with_own(law.own * then / now).variance)
    z = (y - law.mean) / std
    lower, upper = ends.T
    ratios = np.where(z < 0, z / np.minimum(lower, -1e-6), z / np.maximum(upper, 1e-6))
    return recent.after(ratios, outside)


def warn_of_drift(recent: Recent) -> None:
    warnings.warn(
        f"The latest outcomes are {np.quantile(recent.ratios, LEVEL):.1f} times as far from their predictions as the "
        "fit promised. Intervals follow, but the learned metric no longer fits: fit again, on the rows that count now.",
        GPnnWarning,
        stacklevel=4,
    )


def check_outcomes(y, n: int) -> Array:
    values = np.asarray(y, dtype=float)
    if values.shape != (n,):
        raise InvalidInputError(f"y has the shape {values.shape}; give one target for each of the {n} rows.")
    if not np.isfinite(values).all():
        wrong = ~np.isfinite(values)
        raise InvalidInputError(
            f"y is NaN or infinite in {int(wrong.sum())} of {n} rows, first in row {int(np.argmax(wrong))}. Leave "
            "those rows out until their target is known."
        )
    return values


def check_forgotten(rows, where, before, n_seen: int) -> NDArray[np.int64]:
    """Numbers of rows, however they were named."""
    given = [name for name, value in (("rows", rows), ("where", where), ("before", before)) if value is not None]
    if len(given) != 1:
        named = ", ".join(given) or "none"
        raise InvalidInputError(f"Say what to forget by one of rows, where, before; got {named}.")
    if where is not None:
        mask = np.asarray(where)
        if mask.shape != (n_seen,) or mask.dtype != bool:
            raise InvalidInputError(
                f"where must be {n_seen:,} times True or False, one for each row that ever came (fit and partial_fit); "
                f"got {mask.dtype} of the shape {mask.shape}."
            )
        return np.flatnonzero(mask)
    if before is not None:
        if not isinstance(before, int | np.integer) or not 0 <= before <= n_seen:
            raise InvalidInputError(f"before = {before!r} must be the number of a row, 0 to {n_seen:,}.")
        return np.arange(before)
    numbers = np.unique(np.atleast_1d(np.asarray(rows)))
    if numbers.dtype.kind not in "iu" or (len(numbers) and not 0 <= numbers[0] <= numbers[-1] < n_seen):
        raise InvalidInputError(
            f"rows must be numbers of rows, 0 to {n_seen - 1:,}, in the order in which they came through fit and "
            "partial_fit."
        )
    return numbers.astype(np.int64)
