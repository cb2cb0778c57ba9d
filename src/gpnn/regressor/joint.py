"""What a fitted regressor says of many rows together: covariances, draws, sums, regions, and where to measure next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from gpnn.common.extras import import_pandas
from gpnn.common.scales import TargetScale
from gpnn.common.types import Array, Prediction
from gpnn.engines import Engine
from gpnn.regressor.grid import QUANTILES, as_dataset, checked_axes, rows_of_grid
from gpnn.stages.contract import DistributionRegressor
from gpnn.stages.decisions import Excursion, exceedance, excursion, suggest
from gpnn.stages.far import Far, warn_of_queries_outside
from gpnn.stages.joint import JointPrediction, Listening, Sums
from gpnn.stages.near import Near
from gpnn.stages.noise import check_new_noise
from gpnn.stages.shapes import Shape
from gpnn.stages.togetherness import FEWEST, Togetherness, togetherness_of
from gpnn.stages.validation import check_integer, check_new_rows


class JointLaws(DistributionRegressor):
    """What GPnnRegressor, which has the rest, can say of them."""

    shape_: Shape

    def sample_y(self, X, n_samples: int = 1, random_state=0, noise: bool = True) -> Array:
        """Draws (q, n_samples) of y* at all rows of X together, or with noise=False of f: what lies near varies as one.

        Any number of rows: a map of 10⁶ cells.
        """
        check_integer("n_samples", n_samples, 1)
        return self._joint_law(X).sample(n_samples, random_state, noise)

    def predict_sum(self, X, weights=None, by=None, average: bool = False, noise: bool = True) -> Sums:
        """Mean and standard deviation of the sum of y* (noise=False: of f) over the rows of X, or over those of each
        label in `by` (q,); and the deviation that independent errors would have. weights (q,): 1 each. average: of the
        weighted mean instead, as in block kriging."""
        return self._joint_law(X).sum(weights, by, average, noise)

    def predict_exceedance(self, X, threshold, noise: bool = True) -> Array:
        """The probability (q,) that y* (noise=False: f) lies above the threshold, one number or one for each row."""
        law, near, *_ = self._law_and_near(X)
        return exceedance(law, near.latent_share, self.shape_, threshold, noise, self.target_scale_)

    def excursion_region(
        self, X, threshold, level: float = 0.9, n_samples: int = 1000, random_state=0, noise: bool = False
    ) -> Excursion:
        """The largest region (of those that take rows by their own probability) all of which lies above the threshold
        with probability `level`, by draws."""
        check_integer("n_samples", n_samples, 1)
        law = self._joint_law(X)
        return excursion(law, threshold, level, n_samples, random_state, noise)

    def suggest(
        self,
        X_candidates,
        n: int = 1,
        criterion: str = "variance",
        batch: bool = True,
        maximize: bool = True,
        best: float | None = None,
        kappa: float = 2.0,
    ) -> np.ndarray:
        """Numbers of the n candidate rows that are most worth measuring, best first.

        criterion: "variance", where least is known; "ei", the expected improvement over `best` (None: over the best
        mean of the candidates); "ucb", the mean plus kappa standard deviations of f. maximize=False looks for low
        values. batch: as measured together, each after those before it have told what they will; False: each by itself.
        All of it is on the scale that y was learned on (`target_scale_`).
        """
        check_integer("n", n, 1)
        law = self._joint_law(X_candidates).learned
        best = None if best is None else float(self.target_scale_(best))
        return suggest(law, n, criterion, batch, maximize, best, kappa)

    def predict_grid(
        self, axes, quantiles: Sequence[float] = QUANTILES, n_samples: int = 0, random_state=0, noise: bool = False,
        units: str | None = None,
    ) -> Any:  # fmt: skip
        """An xarray.Dataset of mean, sd, quantiles and draws on a grid: values by column, such as {"x": …, "y": …}, or
        an xarray object with these coordinates. noise: in the draws."""
        check_is_fitted(self)
        axes = checked_axes(axes)
        X = rows_of_grid(axes, getattr(self, "feature_names_in_", None))
        frame = self._named(X)
        mean, std = self.predict(frame, return_std=True)
        ends = self.predict_quantiles(frame, list(quantiles))
        draws = self.sample_y(frame, n_samples, random_state, noise) if n_samples else None
        return as_dataset(axes, mean, std, (quantiles, ends), draws, None, units)

    def _named(self, X: Array):
        """As a frame where the model knows names of columns."""
        if not hasattr(self, "feature_names_in_"):
            return X
        return import_pandas().DataFrame(X, columns=self.feature_names_in_, copy=False)

    def _joint_law(self, X, noise_variance=None) -> JointPrediction:
        law, near, rows, engine = self._law_and_near(X, noise_variance)
        X_star = engine.whiten(near.whitener, rows)
        errors = engine.errors(X_star, near.n_neighbors, near.kernel, near.params, self._bar("joint"))
        marginals, latent = Prediction.through(self.target_scale_, law), law.own * near.latent_share
        return JointPrediction(marginals, latent, self.shape_, errors, near.latent, self._togetherness(engine))

    def _togetherness(self, engine: Engine) -> Callable[[], Togetherness] | None:
        """Of a model that is calibrated, and whose rows are alike and many enough to hide some."""
        if len(self.calibration_rows_) == 0 or len(engine.y) < FEWEST or engine.noise is not None:
            return None
        return partial(togetherness_of, self._near(), engine, self._make_engine, self._factors[0])

    calibration_rows_: NDArray[np.int64]
    _factors: tuple[float, float]
    _far: Far | None

    def _make_engine(self) -> Engine:
        raise NotImplementedError

    def _law_and_near(self, X, noise_variance=None) -> tuple[Prediction, Listening, Array, Engine]:
        """As it was learned, before it goes back to the scale of y. Also the rows, checked, and the engine that holds
        what they are predicted from."""
        check_is_fitted(self)
        self._refuse_ensemble("What rows have in common is a question")
        engine = self._holding_engine()
        near, X = Listening(**vars(self._near())), check_new_rows(self, X)
        law, jitter = self._inner_law(X, engine, check_new_noise(self, len(X), noise_variance), near)
        self._warn_of_jitter(jitter)
        if self._far is not None and np.isfinite(self._far.mixture.edge):
            warn_of_queries_outside(law.support)
        return law, near, self._used(X), engine

    def _refuse_ensemble(self, what: str) -> None:
        raise NotImplementedError

    def _used(self, X: Array) -> Array:
        raise NotImplementedError

    def _near(self) -> Near:
        raise NotImplementedError

    target_scale_: TargetScale

    def _inner_law(self, X, engine: Engine, known: Array | None, near: Near | None) -> tuple[Prediction, float]:
        raise NotImplementedError

    def _holding_engine(self) -> Engine:
        raise NotImplementedError

    def _bar(self, name: str) -> str | None:
        raise NotImplementedError
