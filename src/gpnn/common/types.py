"""The small values that stages hand to each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.scales import ScaleColumns, TargetScale

Array = NDArray[np.floating]


class _Values:
    """Numbers and arrays that are checked when they are set, and compared by value."""

    lengthscale: float | Array
    _limits: ClassVar[dict[str, tuple[str, Callable]]]

    def __post_init__(self):
        if np.ndim(self.lengthscale):
            object.__setattr__(self, "lengthscale", np.asarray(self.lengthscale, dtype=float))
        for name, (wanted, is_right) in self._limits.items():
            value = np.asarray(getattr(self, name), dtype=float)
            if not (np.isfinite(value) & is_right(value)).all():
                raise InvalidInputError(
                    f"Hyperparameters: {name} = {value} must be finite and {wanted}. "
                    "They are in whitened units, where inputs and targets have a variance of about one."
                )

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            np.array_equal(mine, theirs) for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]


_POSITIVE, _NOT_NEGATIVE = ("positive", lambda value: value > 0), ("≥ 0", lambda value: value >= 0)
_SHARE = "between 0 and 1", lambda value: (value >= 0) & (value <= 1)


@dataclass(frozen=True, eq=False)
class Broad(_Values):
    """The second part of a sum of two kernels."""

    share: float
    """Of σ_f²."""
    lengthscale: float | Array

    _limits: ClassVar = {"share": _SHARE, "lengthscale": _POSITIVE}


@dataclass(frozen=True, eq=False)
class Hyperparameters(_Values):
    """θ̂ = (l, σ_f², σ_ξ²), in whitened units (inputs and targets scaled as `Whitener` does)."""

    lengthscale: float | Array
    """One number, or one per input column."""
    kernel_variance: float
    noise_variance: float
    broad: Broad | None = None
    """Where the kernel is a sum of two."""

    _limits: ClassVar = {"lengthscale": _POSITIVE, "kernel_variance": _POSITIVE, "noise_variance": _NOT_NEGATIVE}

    def as_vector(self, d: int) -> Array:
        """(l_1 … l_d, σ_f², σ_ξ²); for a sum of kernels also (L_1 … L_d, share) of its second part."""
        vector = [*np.broadcast_to(self.lengthscale, d), self.kernel_variance, self.noise_variance]
        if self.broad is not None:
            vector += [*np.broadcast_to(self.broad.lengthscale, d), self.broad.share]
        return np.array(vector)

    @classmethod
    def from_vector(cls, vector: Array, d: int) -> "Hyperparameters":
        broad = None if len(vector) == d + 2 else Broad(float(vector[-1]), vector[d + 2 : -1])
        return cls(vector[:d], float(vector[d]), float(vector[d + 1]), broad)

    @property
    def metric(self) -> float | Array:
        """The lengthscales in which the nearest rows are the most correlated: for a sum of kernels, something between
        those of its parts."""
        if self.broad is None:
            return self.lengthscale
        share = self.broad.share
        return 1 / np.sqrt((1 - share) / np.square(self.lengthscale) + share / np.square(self.broad.lengthscale))

    def in_metric(self) -> "Hyperparameters":
        """The same for rows whose columns were divided by `metric`."""
        if self.broad is None:
            return replace(self, lengthscale=1.0)
        broad = replace(self.broad, lengthscale=self.broad.lengthscale / self.metric)
        return replace(self, lengthscale=self.lengthscale / self.metric, broad=broad)

    def scaled(self, alpha: float) -> "Hyperparameters":
        """Both variances times `alpha` (Alg. 2's output): the same means, variances times `alpha`."""
        return replace(self, kernel_variance=alpha * self.kernel_variance, noise_variance=alpha * self.noise_variance)

    def unbiasing(self, n_neighbors):
        """Γ = (σ_ξ² + mσ_f²)/(mσ_f²): what takes the shrinkage towards zero out of means from m neighbours."""
        prior = n_neighbors * self.kernel_variance
        return (self.noise_variance + prior) / prior


@dataclass(frozen=True)
class Prediction:
    """Predictive law of y*: means and variances (noise included), both of shape (n,). Gaussian, Student-t, or that of
    a Gaussian on another scale."""

    mean: Array
    variance: Array
    degrees_of_freedom: float | None = None
    """None: Gaussian. A number above 2: Student-t, scaled so that its variance is `variance`."""
    support: Array | None = None
    """(n,) where the model knows: the share of random rows that lie as far from the data as the query does, or farther.
    0.5 is as near as rows usually are to each other; below 0.01 a query lies outside the support."""
    known: Array | None = None
    """(n,) where some of the noise is known: that part of `variance`, which no calibration changes."""
    inner: "Prediction | None" = None
    """The Gaussian law of T(y*), where that is what was learned; quantiles and densities are made from it."""
    scale: TargetScale | ScaleColumns | None = None
    """T, and limits that y* never passes."""

    @classmethod
    def through(cls, scale: TargetScale, inner: "Prediction") -> "Prediction":
        """The law of y*, whose T(y*) has the law `inner`; which is not centred farther out than T(y) reached."""
        if scale.plain:
            return replace(inner, scale=scale) if scale.limited else inner
        inner = replace(inner, mean=np.clip(inner.mean, *scale.reach))
        mean, variance = scale.moments(inner.mean, inner.std)
        return cls(mean, variance, support=inner.support, inner=inner, scale=scale)

    def at(self, z: Array) -> Array:
        """mean + z·std for each row (n,), or (n, k) for z (k,) or (n, k); within the limits of y*."""
        mean, std = (self.mean, self.std) if np.ndim(z) < 2 else (self.mean[:, None], self.std[:, None])
        found = mean + std * z
        if isinstance(self.scale, TargetScale) and self.scale.limited:
            return np.clip(found, self.scale.low, self.scale.high)
        return found

    def __getitem__(self, rows) -> "Prediction":
        support, known = (None if of is None else of[rows] for of in (self.support, self.known))
        inner = None if self.inner is None else self.inner[rows]
        mean, variance = self.mean[rows], self.variance[rows]
        return replace(self, mean=mean, variance=variance, support=support, known=known, inner=inner)

    @classmethod
    def joined(cls, laws: "Sequence[Prediction]") -> "Prediction":
        """One after the other, all of one kind: with support or without, with noise that is known or without."""

        def whole(name: str) -> Array | None:
            parts = [getattr(law, name) for law in laws]
            return None if any(part is None for part in parts) else np.concatenate(parts)

        mean, variance = (np.concatenate([getattr(law, name) for law in laws]) for name in ("mean", "variance"))
        inner = [law.inner for law in laws if law.inner is not None]
        joined = cls.joined(inner) if inner else None
        return cls(mean, variance, None, whole("support"), whole("known"), joined, laws[0].scale)

    def with_noise(self, known: Array | None) -> "Prediction":
        """The law of y* + noise of that variance, which is known."""
        return self if known is None else replace(self, variance=self.variance + known, known=known)

    @property
    def own(self) -> Array:
        """The variance without what is known of the noise."""
        return self.variance if self.known is None else self.variance - self.known

    def with_own(self, variance: Array) -> "Prediction":
        """The same law with another variance beside what is known."""
        return replace(self, variance=variance if self.known is None else variance + self.known)

    @property
    def std(self) -> Array:
        return np.sqrt(self.variance)

    def affine(self, shift: float, scale: float) -> "Prediction":
        """The law of shift + scale·y*."""
        known = None if self.known is None else scale**2 * self.known
        mean, variance = shift + scale * self.mean, scale**2 * self.variance
        moved = self.scale.affine(shift, scale) if isinstance(self.scale, TargetScale) else None
        return replace(self, mean=mean, variance=variance, known=known, scale=moved)

    def __len__(self) -> int:
        return len(self.mean)


@dataclass(frozen=True)
class Neighbors:
    """The nearest rows of each query, nearest first: `indices` and Euclidean `distances`, both (queries, m)."""

    indices: NDArray[np.integer]
    distances: Array
