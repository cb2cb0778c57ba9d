"""Outside peers, each as a small class with `fit(X, y)` and `predict(X) -> (mean, std)`, in the units of y.

`PEERS[name](seed)` makes one. Its library is imported only then:

    pip install --constraint constraints.txt 'gpnn[peers]'

`paper_recipe` stands apart: it is timed piece by piece in `speed.py`.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Protocol

import numpy as np


class Peer(Protocol):
    version: str

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Peer": ...

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of y* (noise included) at each row."""
        ...


def _make(module: str, name: str, seed: int) -> Peer:
    try:
        return getattr(import_module(f"peers.{module}"), name)(seed)
    except ImportError as error:
        raise SystemExit(f"{name}: {error}. Install all peers with:\n  pip install 'gpnn[peers]'") from error


PEERS: dict[str, Callable[[int], Peer]] = {
    "lightgbm": partial(_make, "lightgbm_trees", "LightGBM"),
    "catboost": partial(_make, "catboost_trees", "CatBoost"),
    "gpboost": partial(_make, "vecchia", "GPBoost"),
    "muygps": partial(_make, "muygps", "MuyGPs"),
    "realmlp": partial(_make, "networks", "RealMLP"),
    "tabm": partial(_make, "networks", "TabM"),
    "ngboost": partial(_make, "ngboost_trees", "NGBoost"),
    "xgbdistribution": partial(_make, "xgboost_laws", "XGBoostLaws"),
    "ibug": partial(_make, "ibug_trees", "IBUG"),
    "nngpr": partial(_make, "nearest_gps", "NNGPR"),
    "gpvecchia": partial(_make, "nearest_gps", "GPVecchia"),
    "knn": partial(_make, "knn", "KNN"),
}
