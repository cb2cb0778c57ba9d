"""Places on the globe and values that come round again, as columns in which distance is what it should be."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array

EARTH_RADIUS = 6371.0088
"""km"""
_FLAT = np.radians(15)
"""Within so much of their middle, places are put on a plane: distances are off by a hundredth at most."""


def directions(latitude: Array, longitude: Array) -> Array:
    """Unit vectors (n, 3) of places in degrees."""
    phi, theta = np.radians(latitude), np.radians(longitude)
    return np.column_stack([np.cos(phi) * np.cos(theta), np.cos(phi) * np.sin(theta), np.sin(phi)])


def check_places(latitude: Array, longitude: Array, names: tuple[str, str] = ("latitude", "longitude")) -> None:
    for name, values, low, high in ((names[0], latitude, -90, 90), (names[1], longitude, -180, 360)):
        wrong = np.flatnonzero((values < low) | (values > high))  # false for NaN
        if len(wrong):
            raise InvalidInputError(
                f"{name} = {values[wrong[0]]:g} in row {wrong[0]} lies outside {low} to {high} degrees. Check the "
                "order (latitude first) and the unit: metres of a projection are plain numbers, not degrees."
            )


def middle(sums: Array) -> tuple[float, float]:
    """Latitude and longitude of the mean direction, from sums (3,) of directions."""
    x, y, z = sums
    return float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))


def angles(unit: Array, centre: tuple[float, float]) -> Array:
    """Between directions (n, 3) and the centre, in radians."""
    return 2 * np.arcsin(np.minimum(1, np.linalg.norm(unit - directions(*map(np.atleast_1d, centre)), axis=1) / 2))


def is_flat(widest_angle: float) -> bool:
    return bool(widest_angle <= _FLAT)


def on_columns(unit: Array, centre: tuple[float, float], flat: bool) -> Array:
    """Kilometres east and north of the centre (n, 2), distances from it true; or, for more of the globe, up too (n, 3):
    distances through the earth, which grow with those along its surface."""
    theta = np.radians(centre[1])
    up = directions(*map(np.atleast_1d, centre))[0]
    east = np.array([-np.sin(theta), np.cos(theta), 0.0])
    local = unit @ np.column_stack([east, np.cross(up, east), up])
    if not flat:
        return EARTH_RADIUS * local
    angle = angles(unit, centre)
    stretch = np.where(angle > 1e-9, angle / np.maximum(np.sin(angle), 1e-9), 1.0)
    return EARTH_RADIUS * stretch[:, None] * local[:, :2]


def circle(values: Array, period: float) -> Array:
    """(n, 2): sine and cosine, on a circle as long as the period: near values are as far apart as they were."""
    angle = 2 * np.pi * np.mod(np.asarray(values, dtype=float) / period, 1.0)
    return period / (2 * np.pi) * np.column_stack([np.sin(angle), np.cos(angle)])


class _Columns(TransformerMixin, BaseEstimator):
    def _checked(self, X, reset: bool) -> Array:
        return validate_data(self, X, dtype=np.float64, reset=reset, ensure_min_samples=int(reset))

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        check_is_fitted(self, "n_features_in_")
        return np.array(self._names(), dtype=object)


class GlobeCoordinates(_Columns):
    """Latitude and longitude (n, 2), in degrees, as kilometres in which distances are those along the globe.

    A region becomes a plane (east, north), more than that points on a sphere (east, north, up); 359° is near 1°.
    """

    def fit(self, X, y=None) -> GlobeCoordinates:
        unit = self._directions(X, reset=True)
        self.centre_ = middle(unit.sum(axis=0))
        self.flat_ = is_flat(float(angles(unit, self.centre_).max()))
        return self

    def transform(self, X) -> Array:
        check_is_fitted(self, "n_features_in_")
        return on_columns(self._directions(X, reset=False), self.centre_, self.flat_)

    def _directions(self, X, reset: bool) -> Array:
        X = self._checked(X, reset)
        if X.shape[1] != 2:
            raise InvalidInputError(f"X has {X.shape[1]} columns. Give two: latitude and longitude, in degrees.")
        check_places(X[:, 0], X[:, 1])
        return directions(X[:, 0], X[:, 1])

    def _names(self) -> list[str]:
        return ["east", "north"] if self.flat_ else ["east", "north", "up"]


class PeriodicColumns(_Columns):
    """Columns whose values come round again (hour: 24, wind direction: 360, day of the year: 365.2425) as circles, two
    columns each.

    Parameters
    ----------
    period : one number, or one for each column
    """

    def __init__(self, period=1.0):
        self.period = period

    def fit(self, X, y=None) -> PeriodicColumns:
        d = self._checked(X, reset=True).shape[1]
        periods = np.asarray(self.period, dtype=float)
        if periods.shape not in ((), (d,)) or not (np.isfinite(periods) & (periods > 0)).all():
            raise InvalidInputError(
                f"period = {self.period!r} must be a positive number, or one for each of {d} columns."
            )
        self.periods_ = np.broadcast_to(periods, d).copy()
        return self

    def transform(self, X) -> Array:
        check_is_fitted(self, "n_features_in_")
        X = self._checked(X, reset=False)
        return np.hstack([circle(column, period) for column, period in zip(X.T, self.periods_, strict=True)])

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)])
        return [f"{name}_{part}" for name in names for part in ("sin", "cos")]
