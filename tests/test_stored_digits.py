"""Fits and predictions are the digits of earlier versions, and their model files still load.

`tests/stored` was written by `python tests/test_stored_digits.py` before the code was laid out anew; it is written
again only when digits change on purpose. Another kind of processor or another numpy sums in another order: there the
digits agree closely instead of exactly.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from gpnn import GPnnRegressor, Hyperparameters

STORED = Path(__file__).parent / "stored"
GIVEN = Hyperparameters(0.4, 0.9, 0.05)
MODELS = {
    "default": {},
    "paper": {"preset": True, "n_neighbors": 50, "calibration_size": 100},
    "ivf": {"params": GIVEN, "kernel": "rbf", "whitening": "full", "index": "ivf", "n_neighbors": 40},
    "flat": {"params": GIVEN, "kernel": "matern52", "whitening": "ranks", "index": "flat", "n_neighbors": 25},
}
"""One of each: learned and chosen, the paper's way, approximate and flat search, every whitening."""


def table():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(900, 4)) * [1.0, 20.0, 0.003, 1.0]
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 0.06 + 0.1 * (1 + (X[:, 3] > 0)) * rng.normal(size=len(X))
    return X[:700].round(6), y[:700].round(6), X[700:].round(6)


def make(name: str) -> GPnnRegressor:
    settings = dict(MODELS[name])
    kind = GPnnRegressor.paper if settings.pop("preset", False) else GPnnRegressor
    return kind(**settings, random_state=0, n_jobs=2)


def digits(model: GPnnRegressor, X) -> dict:
    law, (lower, upper) = model.predict_distribution(X), model.predict_interval(X)
    columns = {"mean": law.mean, "variance": law.variance, "lower": lower, "upper": upper}
    return {name: [float(value).hex() for value in values] for name, values in columns.items()}


def machine() -> dict:
    """What the last bits depend on, beside the code."""
    from importlib.metadata import version

    from llvmlite.binding import get_host_cpu_name

    versions = {name: version(name) for name in ("numpy", "scipy", "numba", "scikit-learn")}
    return {"processor": get_host_cpu_name()} | versions


def agree(found: dict, stored: dict, tolerance: float) -> None:
    same = machine() == json.loads((STORED / "machine.json").read_text())
    for name in stored:
        if same:
            assert found[name] == stored[name], name
        ours, theirs = (np.array([float.fromhex(text) for text in of[name]]) for of in (found, stored))
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_a_stored_model_predicts_the_stored_digits(name):
    model = GPnnRegressor.load(STORED / f"{name}.gpnn")
    agree(digits(model, table()[2]), json.loads((STORED / f"{name}.json").read_text()), 1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_gives_the_stored_digits(name):
    X, y, X_new = table()
    learned = name in ("default", "paper")  # rounding grows over the steps of learning
    agree(
        digits(make(name).fit(X, y), X_new), json.loads((STORED / f"{name}.json").read_text()), 0.1 if learned else 1e-3
    )


if __name__ == "__main__":
    STORED.mkdir(exist_ok=True)
    X, y, X_new = table()
    for name in MODELS:
        model = make(name).fit(X, y)
        model.save(STORED / f"{name}.gpnn")
        (STORED / f"{name}.json").write_text(json.dumps(digits(model, X_new)) + "\n")
    (STORED / "machine.json").write_text(json.dumps(machine()) + "\n")
