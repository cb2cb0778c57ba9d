"""Gaussian-process regression from nearest neighbours, on 10³ to 10⁸ rows."""

from pkgutil import resolve_name
from typing import Any

from gpnn.calibrated import CalibratedRegressor
from gpnn.common import aliases
from gpnn.common.errors import GPnnWarning, InvalidInputError
from gpnn.common.types import Broad, Hyperparameters, Prediction
from gpnn.regressor import GPnnRegressor

__version__ = "0.1.0"

__all__ = [
    "AdaptiveIntervals",
    "Broad",
    "CalibratedRegressor",
    "GPnnRegressor",
    "GPnnWarning",
    "Hyperparameters",
    "InvalidInputError",
    "Prediction",
    "baselines",
    "calibration",
    "datasets",
    "diagnose",
    "diagnostics",
    "errors",
    "geography",
    "kernels",
    "metrics",
    "neighbors",
    "persistence",
    "plots",
    "report",
    "simulation",
    "theory",
]  # TableEncoder and TableModel are public too; they need pyarrow, which `from gpnn import *` must not

_PLACES = {
    "AdaptiveIntervals": "gpnn.stages.recalibration:AdaptiveIntervals",
    "TableEncoder": "gpnn.tables:TableEncoder",
    "TableModel": "gpnn.tables:TableModel",
    "baselines": "gpnn.baselines",
    "calibration": "gpnn.stages.calibration",
    "datasets": "gpnn.datasets",
    "diagnose": "gpnn.judging.diagnostics:diagnose",
    "diagnostics": "gpnn.judging.diagnostics",
    "errors": "gpnn.common.errors",
    "geography": "gpnn.common.geography",
    "kernels": "gpnn.common.kernels",
    "metrics": "gpnn.common.metrics",
    "neighbors": "gpnn.engines.cpu.neighbors",
    "persistence": "gpnn.files.model",
    "plots": "gpnn.judging.plots",
    "report": "gpnn.judging.report",
    "simulation": "gpnn.theory.simulation",
    "tables": "gpnn.tables",
    "theory": "gpnn.theory",
}
"""Public names and the rooms they live in: imported when first asked for, as gpnn.plots or by `import gpnn.plots`."""

aliases.install(
    "gpnn", {name: place for name, place in _PLACES.items() if place != f"gpnn.{name}" and ":" not in place}
)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'gpnn' has no attribute {name!r}")
    return resolve_name(_PLACES[name])


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__, *_PLACES})
