"""Gaussian-process regression from nearest neighbours, on 10³ to 10⁸ rows."""

from gpnn import calibration, kernels, metrics, simulation, theory
from gpnn._types import Hyperparameters, Prediction
from gpnn.errors import GPnnWarning, InvalidInputError
from gpnn.regressor import GPnnRegressor

__version__ = "0.1.0"

__all__ = [
    "GPnnRegressor",
    "GPnnWarning",
    "Hyperparameters",
    "InvalidInputError",
    "Prediction",
    "calibration",
    "kernels",
    "metrics",
    "simulation",
    "theory",
]
