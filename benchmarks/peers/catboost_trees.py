"""CatBoost on the columns as they are, with an uncertainty of its own for each row."""

import catboost
import numpy as np


class CatBoost:
    """1000 trees that predict mean and variance together (Gaussian likelihood); all else as CatBoost ships it."""

    version = catboost.__version__

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X, y):
        self.model = catboost.CatBoostRegressor(
            loss_function="RMSEWithUncertainty", iterations=1000, random_seed=self.seed,
            verbose=False, allow_writing_files=False,
        ).fit(X, y)  # fmt: skip
        return self

    def predict(self, X):
        mean, variance = self.model.predict(X).T
        return mean, np.sqrt(variance)
