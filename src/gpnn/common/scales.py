"""The scale on which a target is learned: as it is, its logarithm, its square root, or Yeo and Johnson's power of it.

A law of t = T(y) is a law of y: quantiles go through T's inverse, densities gain its slope, and mean and variance are
integrals over the law of t. Limits are values that y never passes: a count is not negative, a share not above one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpnn.common.errors import InvalidInputError

SCALES = ("identity", "log", "sqrt", "yeo-johnson")

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_BLOCK = 8192
_LEAST_SPREAD = 1e-6  # of y's: where all of a law lies at a limit, a standard deviation is not zero all the same


@dataclass(frozen=True)
class TargetScale:
    """t = T((y − centre)/unit); "identity" is t = y, whatever they are."""

    kind: str = "identity"
    centre: float = 0.0
    unit: float = 1.0
    power: float = 1.0
    """Yeo and Johnson's λ, from 0 to 2: their map is then one of all numbers onto all numbers."""
    least: float = 0.0
    """Of (y − centre)/unit: what is below counts as this, where T goes no farther."""
    low: float = -np.inf
    high: float = np.inf
    """Limits of y."""
    reach: tuple[float, float] = (-np.inf, np.inf)
    """Of t: values beyond count as these in means and variances. A Gaussian tail that no row has reached would decide
    them otherwise, through the exponential."""
    spread: float = 0.0
    """The standard deviation of y."""

    def __post_init__(self):
        if self.kind not in SCALES or not self.unit > 0 or not 0 <= self.power <= 2 or not self.low < self.high:
            raise InvalidInputError(f"{self!r} is no scale: kind must be one of {', '.join(SCALES)}, unit positive, "
                                    "power from 0 to 2, low below high.")  # fmt: skip

    @property
    def plain(self) -> bool:
        """Whether t is y itself; limits may be there all the same."""
        return self.kind == "identity"

    @property
    def limited(self) -> bool:
        return np.isfinite(self.low) or np.isfinite(self.high)

    def __call__(self, y):
        """T."""
        if self.plain:
            return np.asarray(y, dtype=float)
        u = self._standard(y)
        if self.kind == "log":
            return np.log(u)
        if self.kind == "sqrt":
            return np.sqrt(u)
        far = np.abs(u)
        return np.where(u >= 0, _box_cox(far, self.power), -_box_cox(far, 2 - self.power))

    def back(self, t):
        """T's inverse, within the limits."""
        t = np.asarray(t, dtype=float)
        if self.plain:
            return np.clip(t, self.low, self.high)
        with np.errstate(over="ignore"):
            if self.kind == "log":
                u = np.exp(t)
            elif self.kind == "sqrt":
                u = np.maximum(t, 0) ** 2
            else:
                far = np.abs(t)
                u = np.where(t >= 0, _box_cox_back(far, self.power), -_box_cox_back(far, 2 - self.power))
            return np.clip(self.centre + self.unit * u, self.low, self.high)

    def log_slope(self, y):
        """log dT/dy, by which densities of t become densities of y."""
        if self.plain:
            return np.zeros(np.shape(y))
        u = self._standard(y)
        if self.kind == "log":
            slope = -np.log(u)
        elif self.kind == "sqrt":
            slope = -0.5 * np.log(u) - np.log(2)
        else:
            slope = np.where(u >= 0, self.power - 1, 1 - self.power) * np.log1p(np.abs(u))
        return slope - np.log(self.unit)

    def moments(self, mean, std):
        """Mean and variance of y, for Gaussian t of this mean and standard deviation (n,)."""
        found = np.empty((2, len(mean)))
        for first in range(0, len(mean), _BLOCK):
            part = slice(first, first + _BLOCK)
            t = np.clip(mean[part, None] + std[part, None] * _NODES, *self.reach)
            y = self.back(t)
            found[0, part] = y @ _WEIGHTS
            found[1, part] = (y - found[0, part, None]) ** 2 @ _WEIGHTS
        return found[0], np.maximum(found[1], (_LEAST_SPREAD * self.spread) ** 2)

    def affine(self, shift: float, scale: float) -> TargetScale:
        """The scale of shift + scale·y, whose t is that of y."""
        if scale <= 0:
            raise InvalidInputError(f"A law of limited or mapped y can be multiplied by positive numbers, not {scale}.")
        centre, low, high = (shift + scale * value for value in (self.centre, self.low, self.high))
        return replace(self, centre=centre, unit=scale * self.unit, low=low, high=high, spread=scale * self.spread)

    def _standard(self, y):
        u = (np.asarray(y, dtype=float) - self.centre) / self.unit
        return u if self.kind == "yeo-johnson" else np.maximum(u, self.least)


@dataclass(frozen=True)
class ScaleColumns:
    """Those of several targets: the last axis of whatever they are asked for."""

    each: tuple[TargetScale, ...]

    def __call__(self, y):
        return self._columns("__call__", y)

    def back(self, t):
        return self._columns("back", t)

    def log_slope(self, y):
        return self._columns("log_slope", y)

    def _columns(self, what: str, values):
        columns = np.moveaxis(np.asarray(values, dtype=float), -1, 0)
        return np.stack([getattr(scale, what)(of) for scale, of in zip(self.each, columns, strict=True)], axis=-1)


def _box_cox(u, power: float):
    """((1 + u)^λ − 1)/λ for u ≥ 0."""
    return np.log1p(u) if power == 0 else np.expm1(power * np.log1p(u)) / power


def _box_cox_back(t, power: float):
    return np.expm1(t) if power == 0 else np.expm1(np.log1p(power * t) / power)
