"""The scale that the target is learned on: chosen in `fit`, and left again by whatever is told to users."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gpnn.common.errors import InvalidInputError
from gpnn.common.scales import TargetScale
from gpnn.common.types import Array, Prediction
from gpnn.engines import Engine
from gpnn.stages.far import standard_quantile
from gpnn.stages.near import Near
from gpnn.stages.scales import choose_scale, limits_of, make_scale
from gpnn.stages.suspects import first_look


class Scaling:
    target_scale_: TargetScale

    def _scaled(self: Any, X: Array, y: Array, noise, engine: Engine, report: dict) -> Array:
        """y (n,) on the scale that it is learned on, which is target_scale_ from now on."""
        limits = self._limits(y)
        scale, known = self.target_scale, noise is not None and bool(noise.known.any())
        if known and scale not in ("auto", "identity"):
            raise InvalidInputError(
                f"noise_variance is in units of y², and target_scale = {scale!r} learns y on another scale, where that "
                "noise differs from row to row with y itself. Fit with target_scale='identity'."
            )
        if scale != "auto" or known or self.params is not None or self.mean != "constant":
            self.target_scale_ = make_scale("identity" if scale == "auto" else scale, y, limits)
        else:
            self.target_scale_, tried = choose_scale(X, y, limits, engine)
            if tried:
                report["target_scales"] = tried
            if tried and not self.target_scale_.plain and self.suspects != "keep":
                # Values that stand for something else, such as −9999, are looked for on the scale that they are on.
                whitening = partial(self._whitener, X, y, "diagonal", warn=False)
                if len(first_look(X, y, whitening, engine, None)):
                    self.target_scale_ = make_scale("identity", y, limits)
        report["target_scale"] = self.target_scale_.kind
        return self.target_scale_(y)

    def _limits(self: Any, y: Array) -> tuple[float, float]:
        if self.target_limits is None:
            return -np.inf, np.inf
        if isinstance(self.target_limits, str):
            return limits_of(y)
        low, high = (
            unlimited if end is None else float(end)
            for end, unlimited in zip(self.target_limits, (-np.inf, np.inf), strict=True)
        )
        if y.min() < low or y.max() > high:
            raise InvalidInputError(
                f"target_limits = {self.target_limits} do not hold: y goes from {y.min():g} to {y.max():g}. Check y, "
                "or give wider ones (None for no limit)."
            )
        return low, high

    def _law(
        self: Any, X, engine: Engine, known: Array | None = None, near: Near | None = None
    ) -> tuple[Prediction, float]:
        """The predictive laws of checked rows, and the largest jitter that was needed. known: of their noise."""
        law, jitter = self._inner_law(X, engine, known, near)
        return Prediction.through(self.target_scale_, law), jitter

    def _standard_quantile(self: Any, levels: Array, law: Prediction) -> Array:
        z = standard_quantile(self.shape_, levels, law.support)
        if law.inner is None or law.scale is None:
            return z
        ends = law.scale.back(law.inner.at(np.atleast_2d(z)))
        return (ends - law.mean[:, None]) / law.std[:, None]

    def _check_on_scale(self: Any, y: Array) -> None:
        """Of rows that come after the fit: whether they can be learned at all."""
        scale = self.target_scale_
        if scale.plain or not len(y) or (scale.low <= y.min() and y.max() <= scale.high):
            return
        raise InvalidInputError(
            f"y goes from {y.min():g} to {y.max():g}, beyond {scale.low:g} to {scale.high:g}, within which all rows of "
            f"fit were; it was learned on the scale {scale.kind!r}. Check those rows; if they are right, fit again "
            "with them, or with target_scale='identity'."
        )
