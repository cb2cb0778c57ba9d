"""A few labels later: what outcomes that came after `fit` say of a model's variances. Nothing is learned anew."""

from __future__ import annotations

from collections import deque

import numpy as np

from gpnn.common import metrics
from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Prediction
from gpnn.stages.calibration import interval
from gpnn.stages.contract import DistributionRegressor
from gpnn.stages.far import OUTSIDE
from gpnn.stages.shapes import Shape, fit_shape

UNCHANGED = (1.0, 1.0)
"""What variances are multiplied by, inside the support and outside."""

_TRUST = 10
"""As many outcomes as the factors before count for: three lucky rows do not make a model sure of itself."""
_WINDOW, _FEWEST, _DEVIATIONS = 200, 30, 3.29  # of a stream's alarm: outcomes, and 99.9 %, as it is looked at often


def rescaled(law: Prediction, factors: tuple[float, float]) -> Prediction:
    if factors == UNCHANGED:
        return law
    inside, outside = factors
    factor = inside if law.support is None else np.where(law.support < OUTSIDE, outside, inside)
    return law.with_own(factor * law.own)


def recalibrated(
    factors: tuple[float, float], shape: Shape, y: Array, law: Prediction
) -> tuple[tuple[float, float], Shape, dict]:
    """Factors and shape as outcomes y (n,) ask for, of which `law` was predicted with the ones before; and a report.

    From few outcomes the shape stays what it was.
    """
    y = metrics.observed(y, law)
    if len(y) == 0:
        raise InvalidInputError("recalibrate needs at least one row whose outcome is known; got none.")
    z_squared = metrics.z_squared(y, law)
    outside = np.zeros(len(y), bool) if law.support is None else law.support < OUTSIDE
    inside = _factor(z_squared[~outside], 1.0)
    more = inside, _factor(z_squared[outside], inside)
    new = rescaled(law, more)
    found, scores = fit_shape((y - new.mean) / new.std, np.random.default_rng(0))
    low, high = interval(z_squared)
    report = {
        "rows": len(y), "outside": int(outside.sum()), "factor": more[0], "factor_outside": more[1],
        "z_squared": float(np.mean(z_squared)), "interval": (low, high), "alarm": not low <= 1 <= high,
    }  # fmt: skip
    return (factors[0] * more[0], factors[1] * more[1]), found if scores else shape, report


def _factor(z_squared: Array, before: float) -> float:
    return float((_TRUST * before + z_squared.sum()) / (_TRUST + len(z_squared)))


class AdaptiveIntervals:
    """Intervals over a stream that keep their coverage, whatever happens to it: every outcome outside widens the next
    ones, every one inside narrows them a little.

    However the stream drifts, the share of outcomes outside differs from 1 − coverage by at most |log width|/(rate·n)
    after n of them: the width must have gone where the difference came from.

    Parameters
    ----------
    model : a fitted regressor of this package
    coverage : the share of outcomes to lie inside
    rate : how fast the width follows; 0.05 takes some fifty outcomes to double it
    """

    def __init__(self, model: DistributionRegressor, coverage: float = 0.9, rate: float = 0.05):
        if not 0 < coverage < 1:
            raise InvalidInputError(f"coverage = {coverage} must lie strictly between 0 and 1, such as 0.9.")
        if not 0 < rate <= 1:
            raise InvalidInputError(f"rate = {rate} must lie between 0 and 1, such as 0.05.")
        self.model, self.coverage, self.rate = model, coverage, rate
        self.width = 1.0
        """What the model's own intervals are multiplied by."""
        self.n_observed, self.n_inside = 0, 0
        self._latest: deque[float] = deque(maxlen=_WINDOW)

    def predict_interval(self, X) -> tuple[Array, Array]:
        """Lower and upper ends (q,) for the next rows of the stream."""
        law = self.model.predict_distribution(X)
        lower, upper = self._standard_ends(law)
        return law.at(self.width * lower), law.at(self.width * upper)

    def observe(self, X, y) -> np.ndarray:
        """What came out at rows X (n, d), in the order of the stream: whether each lay inside its interval."""
        law = self.model.predict_distribution(X)
        z = (metrics.observed(y, law) - law.mean) / law.std
        lower, upper = (np.broadcast_to(end, z.shape) for end in self._standard_ends(law))
        inside = np.empty(len(z), bool)
        for k in range(len(z)):
            inside[k] = self.width * lower[k] <= z[k] <= self.width * upper[k]
            missed = 1.0 - float(inside[k])
            self.width *= float(np.exp(self.rate * (missed - (1 - self.coverage))))
        self._latest.extend(z**2)
        self.n_observed, self.n_inside = self.n_observed + len(z), self.n_inside + int(inside.sum())
        return inside

    @property
    def alarm(self) -> bool:
        """Whether the mean z² of the latest outcomes is farther from 1 than chance explains: time to recalibrate, or to
        fit again."""
        if len(self._latest) < _FEWEST:
            return False
        z_squared = np.array(self._latest)
        error = _DEVIATIONS * float(np.std(z_squared, ddof=1)) / np.sqrt(len(z_squared))
        return bool(abs(z_squared.mean() - 1) > error)

    def _standard_ends(self, law: Prediction) -> Array:
        return self.model._standard_quantile(np.array([0.5 - self.coverage / 2, 0.5 + self.coverage / 2]), law).T
