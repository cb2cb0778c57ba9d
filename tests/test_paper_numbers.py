"""The paper's figures on real data, where the data are at hand (a quick version of benchmarks/accuracy.py)."""

from functools import cache

import numpy as np
import pytest

from gpnn import GPnnRegressor, datasets
from gpnn.datasets.sources import find

ROWS = 2500  # of each test set


@cache
def load(name):
    if find(datasets.info(name)) is None:
        pytest.skip("no data directory: set GPNN_DATA_DIR to run this")
    return datasets.load(name)


def load_split(name, seed):
    """Random 7/9 for training and 2/9 for testing."""
    X, y = load(name)
    train, test = np.split(np.random.default_rng(seed).permutation(len(X)), [len(X) * 7 // 9])
    return X[train], y[train], X[test], y[test]


# Published means; ours vary by about 0.006 (RMSE) and 0.013 (NLL) from split to split.
@pytest.mark.parametrize(
    ("kernel", "rmse", "nll"), [("rbf", 0.666, 1.01), ("matern32", 0.629, 0.95), ("exponential", 0.58, 0.853)]
)
def test_protein(kernel, rmse, nll):
    X_train, y_train, X_test, y_test = load_split("protein", 0)
    scores = (
        GPnnRegressor.paper(kernel=kernel, random_state=0).fit(X_train, y_train).evaluate(X_test[:ROWS], y_test[:ROWS])
    )
    assert scores["rmse"] == pytest.approx(rmse, abs=0.02)
    assert scores["nll"] == pytest.approx(nll, abs=0.035)


def test_house_electric():
    """Published: 0.045 and −1.95; on whole test sets ours are 0.043 and −2.01, on few rows a little off."""
    X_train, y_train, X_test, y_test = load_split("houseelectric", 0)
    model = GPnnRegressor.paper(random_state=0).fit(X_train, y_train)
    scores = model.evaluate(X_test[:ROWS], y_test[:ROWS])
    assert scores["rmse"] == pytest.approx(0.045, abs=0.008)
    assert scores["nll"] == pytest.approx(-1.95, abs=0.25)
    assert model.fit_report_["recall"] == 1
