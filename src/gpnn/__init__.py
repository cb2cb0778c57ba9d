"""Gaussian-process regression from nearest neighbours, on 10³ to 10⁸ rows."""

from gpnn import baselines, calibration, kernels, metrics, persistence, simulation, theory
from gpnn._types import Hyperparameters, Prediction
from gpnn.calibrated import CalibratedRegressor
from gpnn.diagnostics import diagnose
from gpnn.errors import GPnnWarning, InvalidInputError
from gpnn.regressor import GPnnRegressor

__version__ = "0.1.0"

__all__ = [
    "CalibratedRegressor",
    "GPnnRegressor",
    "GPnnWarning",
    "Hyperparameters",
    "InvalidInputError",
    "Prediction",
    "baselines",
    "calibration",
    "diagnose",
    "kernels",
    "metrics",
    "persistence",
    "simulation",
    "theory",
]


def __getattr__(name: str):
    """Tables need pyarrow: imported when they are first asked for."""
    if name in ("TableEncoder", "TableModel"):
        from gpnn import tables

        return getattr(tables, name)
    raise AttributeError(f"module 'gpnn' has no attribute {name!r}")
