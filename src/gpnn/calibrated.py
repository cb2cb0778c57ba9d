"""CalibratedRegressor: Algorithm 2 around any regressor that gives standard deviations."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, check_random_state, column_or_1d, get_tags, indexable
from sklearn.utils.validation import _num_samples, check_is_fitted

from gpnn.common.errors import GPnnWarning, InvalidInputError
from gpnn.common.types import Prediction
from gpnn.stages.calibration import calibrate, variance_factor
from gpnn.stages.contract import DistributionRegressor
from gpnn.stages.validation import check_settings, check_target


class CalibratedRegressor(MetaEstimatorMixin, DistributionRegressor):
    """Any regressor with its variances multiplied by one factor, so that they are right on average.

    Some rows are held out, the estimator learns from the others, and α is the mean of (y − mean)²/variance over the
    rows held out (Algorithm 2). Means stay as they are.

    Parameters
    ----------
    estimator : a regressor with `predict(X, return_std=True)` (scikit-learn's GaussianProcessRegressor and
        BayesianRidge, a Pipeline that ends in one, every estimator of this package) or with NGBoost's `pred_dist`.
        A fitted one, as `sklearn.frozen.FrozenEstimator(model)`, is not fitted again: all rows given to `fit` then
        serve calibration, and should be rows that it has not seen.
    calibration_size : c, rows to hold out, at most a quarter of them; 0 leaves calibration out
    random_state : seed of the rows held out

    Attributes
    ----------
    estimator_ : the fitted estimator
    alpha_ : α
    calibration_rows_ : the numbers of the rows held out
    """

    def __init__(self, estimator, *, calibration_size: int = 1000, random_state=None):
        self.estimator = estimator
        self.calibration_size = calibration_size
        self.random_state = random_state

    def fit(self, X, y) -> CalibratedRegressor:
        """Fit the estimator on some rows of X (n, …) and y (n,), calibrate on the others."""
        self.__dict__.pop("alpha_", None)  # not fitted until this fit is complete
        check_settings(self)
        check_target(y)
        X, y = indexable(X, y)  # anything more is the estimator's to check
        y = column_or_1d(y, warn=True)
        held_out, others = self._draw_rows(_num_samples(X))
        self.estimator_ = clone(self.estimator).fit(_safe_indexing(X, others), y[others])
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        self._y_mean, self._y_std = float(np.mean(y)), float(np.std(y))
        self.calibration_rows_ = held_out
        alpha = 1.0
        if len(held_out):
            alpha = variance_factor(y[held_out], _law(self.estimator_, _safe_indexing(X, held_out)))
        self.alpha_ = alpha
        return self

    def predict_distribution(self, X) -> Prediction:
        """The law of y* at each row of X: the estimator's, with variances times α."""
        check_is_fitted(self)
        return calibrate(_law(self.estimator_, X), self.alpha_)

    def __sklearn_is_fitted__(self) -> bool:
        return "alpha_" in self.__dict__

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags  # what X may be is the estimator's to say
        return tags

    def _draw_rows(self, n: int):
        """Rows to hold out, and the others: all and none for an estimator that is fitted already."""
        if isinstance(self.estimator, FrozenEstimator):
            return np.arange(n), np.arange(0)
        c = min(self.calibration_size, n // 4)
        if c < self.calibration_size:
            warnings.warn(
                f"Only {n} rows; calibration_size {self.calibration_size} → {c}, a quarter of them. The factor from so "
                "few rows is rough.",
                GPnnWarning,
                stacklevel=3,
            )
        shuffled = check_random_state(self.random_state).permutation(n)
        return np.sort(shuffled[:c]), np.sort(shuffled[c:])

    def _target_scale(self) -> tuple[float, float]:
        return self._y_mean, self._y_std


def _law(estimator, X) -> Prediction:
    """The law that a fitted estimator predicts, in whichever of the three usual ways it says so."""
    if hasattr(estimator, "predict_distribution"):  # this package's
        law = estimator.predict_distribution(X)
        return replace(law, inner=None, scale=None)  # α is for the variance of y, on whatever scale it was learned
    if hasattr(estimator, "pred_dist"):  # NGBoost's
        law = estimator.pred_dist(X)
        return Prediction(np.asarray(law.mean()), np.asarray(law.std()) ** 2)
    try:
        mean, std = estimator.predict(X, return_std=True)
    except TypeError as error:
        if "return_std" not in str(error):
            raise
        raise InvalidInputError(
            f"{type(estimator).__name__} does not give standard deviations: {error}. "
            "Only a regressor with an uncertainty can be calibrated, such as GPnnRegressor(calibration_size=0), or "
            "scikit-learn's BayesianRidge and GaussianProcessRegressor."
        ) from error
    return Prediction(mean, std**2)
