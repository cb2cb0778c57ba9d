"""LightGBM on the columns as they are."""

import lightgbm
import numpy as np
from sklearn.model_selection import train_test_split


class LightGBM:
    """1000 trees of 63 leaves at rate 0.05, from all rows; the standard deviation is the RMSE, on a tenth of the rows,
    of the same from the others."""

    version = lightgbm.__version__

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X, y):
        X_rest, X_held, y_rest, y_held = train_test_split(X, y, test_size=0.1, random_state=self.seed)
        self.std = np.sqrt(np.mean((y_held - self._trees(X_rest, y_rest).predict(X_held)) ** 2))
        self.model = self._trees(X, y)
        return self

    def _trees(self, X, y):
        return lightgbm.LGBMRegressor(
            n_estimators=1000, learning_rate=0.05, num_leaves=63, random_state=self.seed, verbose=-1
        ).fit(X, y)

    def predict(self, X):
        mean = self.model.predict(X)
        return mean, np.full(len(mean), self.std)
