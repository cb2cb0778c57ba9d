"""Models to serve, small ones."""

import numpy as np
import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("pandas")

from asking import Client, fitted, flats

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.serve.app import Settings


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Files: flats (missing values refused), gaps (their rows left out), filled, and plain (without a schema)."""
    folder = tmp_path_factory.mktemp("models")
    table = flats(600)
    fitted(table).save(folder / "flats.gpnn")
    fitted(table, "drop").save(folder / "gaps.gpnn")
    fitted(table, "impute").save(folder / "filled.gpnn")
    X = np.random.default_rng(0).normal(size=(300, 3))
    params = Hyperparameters(1.0, 0.9, 0.1)
    GPnnRegressor(params=params, n_neighbors=10, random_state=0, n_jobs=1).fit(X, X[:, 0]).save(folder / "plain.gpnn")
    return folder


@pytest.fixture(scope="session")
def client(models, tmp_path_factory):
    names = ("flats", "gaps", "filled", "plain")
    log = tmp_path_factory.mktemp("log") / "observations.sqlite"
    paths = tuple(models / f"{name}.gpnn" for name in names)
    running = Client(Settings(paths, max_rows=5000, max_bytes=1 << 20, n_jobs=1, log=log))
    yield running
    running.close()


@pytest.fixture(scope="session")
def new_flats():
    return flats(1200, seed=1)
