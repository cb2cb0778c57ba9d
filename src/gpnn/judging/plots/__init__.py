"""Figures, drawn from results alone. They need matplotlib: pip install 'gpnn[plots]'."""

from gpnn.judging.plots.displays import (
    CalibrationDisplay,
    MetricDisplay,
    NeighborCurveDisplay,
    PitDisplay,
    PredictionErrorDisplay,
    SpreadDisplay,
)
from gpnn.judging.plots.figures import new_figure
from gpnn.judging.plots.simulation import FIGURE_2, simulation_figure

__all__ = [
    "FIGURE_2",
    "CalibrationDisplay",
    "MetricDisplay",
    "NeighborCurveDisplay",
    "PitDisplay",
    "PredictionErrorDisplay",
    "SpreadDisplay",
    "new_figure",
    "simulation_figure",
]
