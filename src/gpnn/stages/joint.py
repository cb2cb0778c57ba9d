"""Laws of many queries together: covariances, draws and sums, whose marginals are those of `predict`.

The errors of the local process have a covariance that its weights and its kernel give (`engines.JointErrors`). What
calibration, floor and far models make of a query's variance multiplies that query's errors; what is noise stays apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from sklearn.utils import check_random_state

from gpnn.common.errors import InvalidInputError
from gpnn.common.provenance import free_memory
from gpnn.common.types import Array, Prediction
from gpnn.engines import Engine, JointErrors
from gpnn.stages.far import OUTSIDE
from gpnn.stages.near import Answer, Near
from gpnn.stages.shapes import GAUSSIAN, Shape
from gpnn.stages.togetherness import Togetherness

MOST_TOGETHER = 5000
"""Queries whose covariances are held as one matrix."""
_LOOKED_AT, _EXACT = 32, 1024  # queries whose variance along the chain is computed
_AS_GOOD_AS_ONE = 0.02
_PROBES = 256
_ROWS = 4096  # of draws that are finished at a time
_NORMAL = np.linspace(-6.5, 6.5, 2601)


@dataclass(frozen=True)
class Listening(Near):
    """The local process, which notes the variances that it claims."""

    claimed: list = field(default_factory=list)

    def law(self, engine: Engine, X: Array, progress: Any = None) -> Answer:
        found = super().law(engine, X, progress)
        self.claimed.append(found.claimed)
        return found

    @property
    def latent(self) -> Array:
        """Variances of f (q,), before calibration."""
        claimed = np.concatenate([np.zeros(0), *self.claimed])
        return np.maximum(claimed - self.params.noise_variance, 1e-12 * self.params.kernel_variance)

    @property
    def latent_share(self) -> Array:
        """Of the variance of y*, beside what is known of its noise, that is f's (q,)."""
        return self.latent / (self.latent + self.params.noise_variance)


class Sums(NamedTuple):
    """Of weighted sums of y*, over all queries (numbers) or over each group (k,)."""

    mean: Any
    std: Any
    naive_std: Any
    """What independent errors would have: too little for sums of neighbours, too much for differences."""
    groups: Any = None
    """Labels, sorted; None where there are no groups."""


@dataclass(frozen=True)
class JointPrediction:
    """The law of y* at many queries together, in the units of y."""

    marginals: Prediction
    """Of y* at each query by itself, as `predict_distribution` gives them."""
    latent_variance: Array
    """(q,): of f; the rest of the variance is noise of each y*'s own."""
    shape: Shape
    """That of the errors of y*: draws of y* have quantiles as `predict_quantiles` says, draws of f are Gaussian."""
    errors: JointErrors = field(repr=False)
    error_variance: Array = field(repr=False)
    """(q,): of `errors`, by themselves."""
    togetherness: Callable[[], Togetherness] | None = field(default=None, repr=False)
    """What sums over held-out blocks say of covariances; learned when a sum is first asked for."""

    @property
    def mean(self) -> Array:
        return self.marginals.mean

    @property
    def variance(self) -> Array:
        return self.marginals.variance

    @property
    def std(self) -> Array:
        return self.marginals.std

    def __len__(self) -> int:
        return len(self.marginals)

    @property
    def learned(self) -> JointPrediction:
        """The same on the scale that was learned, where all of it is Gaussian."""
        inner = self.marginals.inner
        return self if inner is None else replace(self, marginals=inner)

    def covariance(self, noise: bool = True) -> Array:
        """(q, q): of y*, or of f without noise."""
        self._check_plain("Covariances")
        if len(self) > MOST_TOGETHER:
            raise InvalidInputError(
                f"A covariance matrix of {len(self):,} rows would take {8 * len(self) ** 2 / 2**30:.1f} GiB; the most "
                f"is {MOST_TOGETHER:,} rows. Ask for draws (sample_y) or sums (predict_sum) instead, without limit."
            )
        covariance = self.errors.covariances(np.arange(len(self)))
        covariance = (covariance + covariance.T) / 2
        scale = np.sqrt(self.latent_variance / np.diag(covariance))
        covariance *= scale * scale[:, None]
        if noise:
            covariance[np.diag_indices(len(self))] = self.variance
        return covariance

    def latent_covariance(self, at: int) -> Array:
        """(q,): of f at all queries with f at one of them."""
        column = self.errors.covariances(np.array([at]))[:, 0] * self._scale * self._scale[at]
        column[at] = self.latent_variance[at]
        return column

    def sample(self, n_samples: int = 1, random_state=None, noise: bool = True) -> Array:
        """Draws (q, n_samples) of y*, or of f without noise."""
        needed, free = 16 * len(self) * n_samples, free_memory()
        if free is not None and needed > free:
            raise InvalidInputError(
                f"{n_samples:,} draws of {len(self):,} rows need about {needed / 2**30:.1f} GiB, and "
                f"{free / 2**30:.1f} GiB of memory are free. Ask for fewer draws at a time, each time with another "
                "random_state."
            )
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        draws = np.empty((len(self), n_samples))
        self.errors.draws(n_samples, rng, draws)
        law, scale = self.learned.marginals, self.marginals.scale
        noise_std = np.sqrt(np.maximum(law.variance - self.latent_variance, 0))
        warped = self.shape.quantile(ndtr(_NORMAL)) if noise and self.shape.name != GAUSSIAN.name else None
        for first in range(0, len(self), _ROWS):
            rows = slice(first, first + _ROWS)
            draws[rows] *= self._scale[rows, None]
            if noise:
                draws[rows] += noise_std[rows, None] * rng.standard_normal(draws[rows].shape)
            if warped is not None:
                known = np.arange(first, min(first + _ROWS, len(self)))
                if self.marginals.support is not None:
                    known = known[self.marginals.support[known] >= OUTSIDE]
                std = law.std[known, None]
                draws[known] = std * np.interp(draws[known] / std, _NORMAL, warped)
            draws[rows] += law.mean[rows, None]
            if scale is not None and (noise or self.marginals.inner is not None):
                draws[rows] = scale.back(draws[rows])
        return draws

    def sum(self, weights=None, by=None, average: bool = False, noise: bool = True) -> Sums:
        """Of weights·y* (or ·f), over all queries or over each group of labels `by` (q,).

        weights (q,): None for 1 each. average: divided by their sum.
        """
        self._check_plain("Sums")
        weights = _checked_weights(weights, len(self))
        labels, groups = (None, np.zeros(len(self), np.int64)) if by is None else _groups(by, len(self))
        n_groups = 1 if labels is None else len(labels)

        def total(values: Array) -> Array:
            return np.bincount(groups, values, minlength=n_groups).astype(float)

        noise_variance = self.variance - self.latent_variance if noise else np.zeros(len(self))
        variance = self.errors.variances(weights * self._scale, groups, n_groups)
        variance += total(weights**2 * noise_variance)
        naive = total(weights**2 * (self.latent_variance + noise_variance))
        if self.togetherness is not None and len(self):
            latent = total(np.abs(weights) * self.error_variance) / np.maximum(total(np.abs(weights)), 1e-300)
            factor = self.togetherness()(np.maximum(latent, 1e-300))
            variance = np.where(variance > naive, naive + factor * (variance - naive), variance)
        size = total(weights) if average else np.ones(n_groups)
        if (size == 0).any():
            raise InvalidInputError(
                "There is no average where weights sum to zero. Ask for sums, or check the weights."
            )
        found = total(weights * self.mean) / size, np.sqrt(variance) / abs(size), np.sqrt(naive) / abs(size)
        return Sums(*found, labels) if labels is not None else Sums(*(float(values[0]) for values in found))

    def _check_plain(self, what: str) -> None:
        if self.marginals.inner is not None:
            raise InvalidInputError(
                f"{what} are of a target that was learned as it is, and this one was learned on another scale "
                f"({self.marginals.scale!r:.60}…). Make them from draws (sample_y(X, 1000)), or fit with "
                "target_scale='identity'."
            )

    @cached_property
    def _scale(self) -> Array:
        """(q,): what errors are multiplied by to have the latent variance."""
        return np.sqrt(self.latent_variance / (self.error_variance * self._inflation()))

    def _inflation(self) -> Array | float:
        """The variances that the chain of `errors` really has, against those of equation 7: 1 in few dimensions."""
        q, rng = len(self), np.random.default_rng(0)
        looked_at = np.arange(q) if q <= _LOOKED_AT else np.sort(rng.choice(q, _LOOKED_AT, replace=False))
        ratios = self._ratios(looked_at)
        if q <= _LOOKED_AT or np.abs(ratios - 1).max() < _AS_GOOD_AS_ONE:
            return ratios if q <= _LOOKED_AT else 1.0
        if q <= _EXACT:
            return self._ratios(np.arange(q))
        probes = np.empty((q, _PROBES))
        self.errors.draws(_PROBES, rng, probes)
        seen = np.mean(probes**2, axis=1) / self.error_variance
        typical, spread, unsure = np.mean(ratios), np.var(ratios), 2 * np.mean(ratios**2) / _PROBES
        return typical + (seen - typical) * spread / (spread + unsure)  # each by itself as far as it can be told

    def _ratios(self, numbers) -> Array:
        one = np.arange(len(numbers))
        sums, groups = np.zeros(len(self)), np.zeros(len(self), np.int64)
        sums[numbers], groups[numbers] = 1, one
        return self.errors.variances(sums, groups, len(numbers)) / self.error_variance[numbers]


def _checked_weights(weights, q: int) -> Array:
    if weights is None:
        return np.ones(q)
    found = np.asarray(weights, dtype=float)
    if found.shape != (q,) or not np.isfinite(found).all():
        raise InvalidInputError(
            f"weights has the shape {found.shape}; {q} finite numbers are needed, one for each row of X."
        )
    return found


def _groups(by, q: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.asarray(by)
    if labels.shape != (q,):
        raise InvalidInputError(f"by has the shape {labels.shape}; {q} labels are needed, one for each row of X.")
    return np.unique(labels, return_inverse=True)
