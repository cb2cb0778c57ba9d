"""RealMLP and TabM, the strongest networks for tables, through pytabkit: means without a law."""

import os
from importlib.metadata import version

import numpy as np
import torch
from pytabkit import RealMLP_TD_Regressor, TabM_D_Regressor
from sklearn.model_selection import train_test_split


class _Network:
    """pytabkit's tuned defaults ("TD") or defaults ("D"), as it ships them: it sets a fifth of the rows aside to know
    when to stop. The standard deviation is the RMSE on a tenth of the rows, of the same network trained on the
    others."""

    version = version("pytabkit")
    make: type

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, X, y):
        X_rest, X_held, y_rest, y_held = train_test_split(X, y, test_size=0.1, random_state=self.seed)
        self.std = np.sqrt(np.mean((y_held - self._trained(X_rest, y_rest).predict(X_held).ravel()) ** 2))
        self.model = self._trained(X, y)
        return self

    def _trained(self, X, y):
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
        return self.make(device=device, random_state=self.seed, n_threads=os.cpu_count()).fit(X, y)

    def predict(self, X):
        mean = np.asarray(self.model.predict(X), dtype=float).ravel()
        return mean, np.full(len(mean), self.std)


class RealMLP(_Network):
    make = RealMLP_TD_Regressor


class TabM(_Network):
    make = TabM_D_Regressor
