"""The paper's figures on real data, where the data are at hand (a quick version of benchmarks/accuracy.py)."""

import sys
from pathlib import Path

import numpy as np
import pytest

from gpnn import GPnnRegressor

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def data():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import data
    finally:
        sys.path.remove(str(BENCHMARKS))
    if not (data.data_directory() / "protein_casp.parquet").exists():
        pytest.skip("no data directory: set GPNN_DATA_DIR to run this")
    return data


# Published means; ours vary by about 0.006 (RMSE) and 0.013 (NLL) from split to split.
@pytest.mark.parametrize(
    ("kernel", "rmse", "nll"), [("rbf", 0.666, 1.01), ("matern32", 0.629, 0.95), ("exponential", 0.58, 0.853)]
)
def test_protein(data, kernel, rmse, nll):
    scores = []
    for seed in (0, 1):
        X_train, y_train, X_test, y_test = data.split(*data.protein(), seed)
        model = GPnnRegressor(kernel=kernel, random_state=seed).fit(X_train, y_train)
        scores.append(model.evaluate(X_test[:5000], y_test[:5000]))
    assert np.mean([s["rmse"] for s in scores]) == pytest.approx(rmse, abs=0.02)
    assert np.mean([s["nll"] for s in scores]) == pytest.approx(nll, abs=0.035)


def test_house_electric(data):
    """Published: 0.045 and −1.95; on whole test sets ours are 0.043 and −2.01, on 5000 rows a little off."""
    X_train, y_train, X_test, y_test = data.split(*data.house_electric(), seed=0)
    model = GPnnRegressor(random_state=0).fit(X_train, y_train)
    scores = model.evaluate(X_test[:5000], y_test[:5000])
    assert scores["rmse"] == pytest.approx(0.045, abs=0.008)
    assert scores["nll"] == pytest.approx(-1.95, abs=0.25)
    assert model.fit_report_["recall"] == 1
