"""The humblest peer: the mean of the nearest rows, weighted by distance."""

import numpy as np
import sklearn
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


class KNN:
    """Standardised columns; a tenth of the rows, set aside, chooses k and gives the one standard deviation."""

    version = sklearn.__version__

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X, y):
        X, X_held, y, y_held = train_test_split(X, y, test_size=0.1, random_state=self.seed)
        fits = [
            make_pipeline(StandardScaler(), KNeighborsRegressor(k, weights="distance", n_jobs=-1)).fit(X, y)
            for k in (1, 2, 4, 8, 16, 32, 64)
            if k <= len(X)
        ]
        errors = [np.sqrt(np.mean((y_held - fit.predict(X_held)) ** 2)) for fit in fits]
        self.model, self.std = fits[np.argmin(errors)], min(errors)
        return self

    def predict(self, X):
        mean = self.model.predict(X)
        return mean, np.full(len(mean), self.std)
