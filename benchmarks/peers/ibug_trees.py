"""IBUG: probabilistic trees from nearest instances, the peer closest in spirit. Rows that share many leaves with a
query are its neighbours, and their spread is its uncertainty."""

from importlib.metadata import version

import numpy as np
from ibug import IBUGWrapper
from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor


class IBUG:
    """Around XGBoost (1000 trees at rate 0.05, depth 6); k and the calibration of its variances from a tenth of the
    rows, set aside, as its documentation does."""

    version = version("ibug")

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X, y):
        X, X_held, y, y_held = train_test_split(X, y, test_size=0.1, random_state=self.seed)
        trees = XGBRegressor(n_estimators=1000, learning_rate=0.05, random_state=self.seed).fit(X, y)
        self.model = IBUGWrapper().fit(trees, X, y, X_val=X_held, y_val=y_held)
        return self

    def predict(self, X):
        location, scale = self.model.pred_dist(X)
        return np.asarray(location, dtype=float), np.asarray(scale, dtype=float)
