"""What the baselines share: whiten as GPnn does, learn and predict in whitened units, and back."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines.parallel import for_each_block, n_threads
from gpnn.stages.contract import DistributionRegressor
from gpnn.stages.validation import check_new_rows, check_settings, check_training_data
from gpnn.stages.whitening import Whitener

_WHITEN_ROWS = 65_536
_FEWEST, _MOST = 32, 8192  # queries that one thread takes at a time


class WhitenedRegressor(DistributionRegressor):
    """Subclasses write `_learn` and `_predict_whitened`.

    Settings that mean the same in all of them: kernel, whitening, params (in whitened units; given, nothing is
    estimated), n_jobs, random_state and verbose, as in `GPnnRegressor`.
    """

    whitening: str
    n_jobs: int | None
    verbose: int
    params_: Hyperparameters

    def fit(self, X, y) -> Self:
        """Learn from X (n, d) and y (n,): arrays, or frames whose column names are then remembered."""
        self.__dict__.pop("params_", None)  # not fitted until this fit is complete
        check_settings(self)
        X, y = check_training_data(self, X, y)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        names = getattr(self, "feature_names_in_", None)
        self.whitener_ = Whitener.fit(X, y, self.whitening, names, self.n_jobs)
        rows = np.empty(X.shape, np.float32)

        def whiten(part: slice) -> None:
            self.whitener_.transform(X[part], out=rows[part])

        for_each_block(whiten, len(X), _WHITEN_ROWS, self.n_jobs, self._bar("whiten"))
        self.params_ = self._learn(rows, self.whitener_.transform_y(y), rng)
        return self

    def predict_distribution(self, X) -> Prediction:
        """The predictive law of y* at each row of X, in the units of y."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        mean, variance, jitter = np.empty((3, len(X)))

        def predict(part: slice) -> None:
            law, jitter[part] = self._predict_whitened(self.whitener_.transform(X[part]))
            mean[part], variance[part] = law.mean, law.variance

        size = int(np.clip(-(-len(X) // n_threads(self.n_jobs)), _FEWEST, self._most_queries()))
        for_each_block(predict, len(X), size, self.n_jobs, self._bar("predict"))
        self._warn_of_jitter(jitter.max(initial=0.0))
        return self.whitener_.inverse(Prediction(mean, variance, self._degrees_of_freedom()))

    def _learn(self, X: Array, y: Array, rng: np.random.Generator) -> Hyperparameters:
        """Whatever `_predict_whitened` needs, from whitened rows X (n, d), y (n,)."""
        raise NotImplementedError

    def _predict_whitened(self, X_star: Array) -> tuple[Prediction, float]:
        """Law of y* and the largest jitter used, for a block of whitened queries, in the calling thread."""
        raise NotImplementedError

    def _degrees_of_freedom(self) -> float | None:
        return None

    def _most_queries(self) -> int:
        return _MOST

    def __sklearn_is_fitted__(self) -> bool:
        return "params_" in self.__dict__

    def _bar(self, name: str) -> str | None:
        return name if self.verbose else None
