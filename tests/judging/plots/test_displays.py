import sys

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.linear_model import BayesianRidge

from gpnn import CalibratedRegressor, GPnnRegressor, Hyperparameters, InvalidInputError
from gpnn.diagnostics import diagnose
from gpnn.errors import MissingExtraError
from gpnn.plots import (
    CalibrationDisplay,
    MetricDisplay,
    NeighborCurveDisplay,
    PitDisplay,
    PredictionErrorDisplay,
    SpreadDisplay,
    new_figure,
)

DISPLAYS = [CalibrationDisplay, MetricDisplay, NeighborCurveDisplay, PitDisplay, PredictionErrorDisplay, SpreadDisplay]
OF_LAWS = [CalibrationDisplay, PitDisplay, SpreadDisplay]


@pytest.fixture(autouse=True)
def _no_windows():
    mpl.use("agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.mark.parametrize("display", DISPLAYS)
def test_draws_into_a_new_figure_or_into_given_axes(display, wavy_diagnosis):
    drawn = display.from_diagnostics(wavy_diagnosis)
    assert drawn.figure_ is drawn.ax_.figure
    assert drawn.ax_.get_xlabel()
    assert drawn.ax_.has_data()
    ax = new_figure().subplots()
    assert drawn.plot(ax).ax_ is ax
    ax.figure.savefig("/dev/null", format="png")  # layout and labels can be drawn


def test_from_an_estimator(wavy, wavy_model, wavy_diagnosis):
    drawn = CalibrationDisplay.from_estimator(wavy_model, wavy[0][2000:2500], wavy[1][2000:2500])
    assert drawn.reliability == wavy_diagnosis.reliability
    measured = next(line for line in drawn.ax_.lines if line.get_label() == "measured")
    np.testing.assert_array_equal(measured.get_ydata()[1:-1], wavy_diagnosis.reliability.coverage)


@pytest.mark.parametrize("display", OF_LAWS)
def test_from_predictions_of_any_model(display, rng):
    mean, std = rng.normal(size=500), rng.uniform(1, 2, 500)
    drawn = display.from_predictions(rng.normal(mean, std), mean, std)
    assert drawn.reliability.coverage_90 == pytest.approx(0.9, abs=0.05)
    assert drawn.ax_.has_data()


def test_predicted_against_observed_without_standard_deviations(rng):
    y = rng.normal(size=5000)
    drawn = PredictionErrorDisplay.from_predictions(y, y, target="depth")
    assert drawn.ax_.get_ylabel() == "observed depth"
    assert sum(drawn.cloud.counts) == 5000


def test_the_curve_marks_the_neighbours_used(wavy_diagnosis):
    ax = NeighborCurveDisplay.from_diagnostics(wavy_diagnosis).ax_
    assert f"used: m = {wavy_diagnosis.fit.n_neighbors}" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_what_there_is_no_record_of_is_refused(wavy):
    X, y = wavy
    other = CalibratedRegressor(BayesianRidge(), random_state=0).fit(X[:2000], y[:2000])
    with pytest.raises(InvalidInputError, match="no such record"):
        MetricDisplay.from_estimator(other, X[2000:2500], y[2000:2500])
    given = GPnnRegressor(n_neighbors=20, params=Hyperparameters(1.0, 0.9, 0.1), n_jobs=1).fit(X[:500], y[:500])
    with pytest.raises(InvalidInputError, match="n_neighbors='auto'"):
        NeighborCurveDisplay.from_diagnostics(diagnose(given, X[500:700], y[500:700]))


def test_matplotlib_is_asked_for_by_name(wavy_diagnosis, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r"gpnn\[plots\]"):
        PitDisplay.from_diagnostics(wavy_diagnosis)
