"""What joint laws are asked for: thresholds passed, regions that pass them as one, and where to measure next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from gpnn.common.errors import InvalidInputError
from gpnn.common.scales import TargetScale
from gpnn.common.types import Array, Prediction
from gpnn.stages.far import OUTSIDE
from gpnn.stages.joint import JointPrediction
from gpnn.stages.shapes import GAUSSIAN, Shape

_PLAIN = TargetScale()
CRITERIA = ("variance", "ei", "ucb")


class Excursion(NamedTuple):
    """Of q rows."""

    inside: NDArray[np.bool_]
    """Whether each belongs to the region, all of which lies above the threshold with the probability asked for."""
    joint_probability: Array
    """That each, and all rows more likely than it, lie above: the region for any other level is where this is high."""
    probability: Array
    """That each lies above, by itself."""


def exceedance(
    law: Prediction, latent_share: Array, shape: Shape, threshold, noise: bool, scale: TargetScale = _PLAIN
) -> Array:
    """P(y* > threshold), or P(f > threshold), for each row of a law of y* (or, on a scale, of T(y*)), of whose own
    variance a share is f's."""
    asked = _checked_threshold(threshold, len(law))
    sure = np.where(asked < scale.low, 1.0, np.where(asked >= scale.high, 0.0, np.nan))
    threshold = asked if scale.plain else scale(asked)
    return np.where(np.isnan(sure), _above(law, latent_share, shape, threshold, noise), sure)


def _above(law: Prediction, latent_share: Array, shape: Shape, threshold: Array, noise: bool) -> Array:
    if not noise:
        return ndtr((law.mean - threshold) / np.sqrt(latent_share * law.own))
    z = (threshold - law.mean) / law.std
    above = 1 - shape.cdf(z)
    if law.support is None or shape.name == GAUSSIAN.name:
        return above
    return np.where(law.support < OUTSIDE, ndtr(-z), above)


def excursion(law: JointPrediction, threshold, level: float, n_samples: int, random_state, noise: bool) -> Excursion:
    if not 0 < level < 1:
        raise InvalidInputError(f"level = {level} must lie strictly between 0 and 1, such as 0.9.")
    threshold = _checked_threshold(threshold, len(law))
    above = law.sample(n_samples, random_state, noise) > threshold[:, None]
    probability = above.mean(axis=1)
    # Ties, of which there are many where all draws agree, by how far the mean lies above.
    order = np.lexsort((-(law.mean - threshold) / law.std, -probability))
    so_far = np.logical_and.accumulate(above[order], axis=0).mean(axis=1)
    joint = np.empty(len(law))
    joint[order] = so_far
    return Excursion(joint >= level, joint, probability)


def suggest(
    law: JointPrediction, n: int, criterion: str, batch: bool, maximize: bool, best: float | None, kappa: float
) -> NDArray[np.int64]:
    """Greedy: a row that was chosen is taken as measured, with the outcome that is expected of it, and leaves the
    others less variance, which follows from its covariances alone."""
    if criterion not in CRITERIA:
        raise InvalidInputError(f"criterion = {criterion!r} is unknown. Choose one of: {', '.join(CRITERIA)}.")
    if n > len(law):
        raise InvalidInputError(f"n = {n} rows were asked for, but there are {len(law)} candidates.")
    sign = 1.0 if maximize else -1.0
    gain = sign * law.mean
    highest = gain.max() if best is None else sign * best
    noise = law.variance - law.latent_variance
    left, known = law.latent_variance.copy(), np.zeros((len(law), 0))
    chosen: list[int] = []
    for _ in range(n):
        std = np.sqrt(np.maximum(left, 0))
        worth = {"variance": left, "ucb": gain + kappa * std}.get(criterion)
        if worth is None:
            worth = expected_improvement(gain - highest, std)
        worth[chosen] = -np.inf
        at = int(np.argmax(worth))
        chosen.append(at)
        if batch and len(chosen) < n:  # one more column of a pivoted Cholesky factor
            column = law.latent_covariance(at) - known @ known[at]
            known = np.column_stack([known, column / np.sqrt(max(left[at], 0) + noise[at])])
            left = law.latent_variance - (known**2).sum(axis=1)
            highest = max(highest, gain[at]) if best is not None else highest
    return np.array(chosen)


def expected_improvement(gain: Array, std: Array) -> Array:
    """E max(g, 0) for Gaussian g."""
    z = gain / np.maximum(std, 1e-300)
    return gain * ndtr(z) + std * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)


def _checked_threshold(threshold, q: int) -> Array:
    found = np.asarray(threshold, dtype=float)
    if found.shape not in ((), (q,)) or not np.isfinite(found).all():
        raise InvalidInputError(f"threshold = {threshold} must be one finite number, or one for each of {q} rows.")
    return np.broadcast_to(found, q)
