"""What docs/model_file.md says of skops and MLflow, run as it stands there."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpnn import CalibratedRegressor, GPnnRegressor, Hyperparameters, TableModel
from gpnn.baselines import ExactGP

PAGE = (Path(__file__).parents[2] / "docs" / "model_file.md").read_text()


def example(library: str) -> str:
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"import {library}" in block]
    return block


def regressor() -> GPnnRegressor:
    return GPnnRegressor(params=Hyperparameters(1.0, 0.9, 0.1), n_neighbors=20, random_state=0, n_jobs=1)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    return X, X[:, 0] + 0.1 * rng.normal(size=300)


@pytest.mark.parametrize(
    "estimator",
    [make_pipeline(StandardScaler(), regressor()), CalibratedRegressor(regressor()), ExactGP(random_state=0)],
    ids=lambda estimator: type(estimator).__name__,
)
def test_skops(table, tmp_path, monkeypatch, estimator):
    pytest.importorskip("skops")
    monkeypatch.chdir(tmp_path)
    X, y = table
    names = {"pipeline": estimator.fit(X, y)}
    exec(example("skops"), names)
    assert all(name.startswith("gpnn.") for name in names["trusted"])
    assert names["pipeline"] is not estimator
    assert np.array_equal(names["pipeline"].predict(X), estimator.predict(X))


def test_mlflow(table, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    pytest.importorskip("skops")
    monkeypatch.chdir(tmp_path)
    X, y = table
    pipeline = make_pipeline(StandardScaler(), regressor()).fit(X, y)
    flats = pd.DataFrame(X, columns=["area", "floor", "age"]).assign(price=y)
    model = TableModel.fit(flats, "price", regressor=regressor())
    model.save("model.gpnn")
    names = {"pipeline": pipeline, "X": X, "flats": flats, "__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of MLflow's own
        exec(example("skops") + example("mlflow"), names)
    assert np.array_equal(names["mean"], pipeline.predict(X))
    pd.testing.assert_frame_equal(names["predictions"], model.predict(flats).to_pandas())
