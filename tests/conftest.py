import os
from pathlib import Path

import numpy as np
import pytest

if not Path("/dev/nvidia0").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # without a GPU, its kernels are emulated; read when they are first imported


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def few_steps(monkeypatch):
    """Learning stops early, though every candidate is tried: for tests of what surrounds it."""
    shorten(monkeypatch)


def shorten(patch: pytest.MonkeyPatch) -> None:
    from gpnn.stages import gaps, selection

    patch.setattr(gaps, "_ROUNDS", (5, 5))
    maps = selection.Heat(2, 0.1, (5,) * 6, with_map=True)
    sums = selection.Heat(2, 0.1, (10,) * 2, as_sums=10)
    heats = (selection.Heat(4, 0.2, (10,) * 3), maps, sums)
    thorough = (selection.Heat(4, 0.1, (5,) * 4), maps, sums, selection.Heat(2, 0.01, (5,) * 4, least=0.001))
    schedule = {"_FIRST": (4, 6), "_MORE": (10,), "_NEXT": (5, 5), "_LAST": (10,) * 2, "_HEATS": heats}
    for name, steps in (schedule | {"_THOROUGH_HEATS": thorough}).items():
        patch.setattr(selection, name, steps)


@pytest.fixture(scope="session")
def wavy():
    """3000 rows of a smooth function of three columns with noise of variance 0.01, in no particular units."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 3)) * [1.0, 20.0, 0.003] + [5.0, -100.0, 0.0]
    z = (X - [5.0, -100.0, 0.0]) / [1.0, 20.0, 0.003]
    y = 50 + 7 * (np.sin(2 * z[:, 0]) + 0.5 * z[:, 1] * z[:, 2] + 0.1 * rng.normal(size=len(X)))
    return X, y


@pytest.fixture(scope="session")
def wavy_model(wavy):
    """Fitted on the first 2000 of these rows, with a choice of kernels and of m."""
    from gpnn import GPnnRegressor

    X, y = wavy
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        return GPnnRegressor(whitening="diagonal", random_state=0, n_jobs=1).fit(X[:2000], y[:2000])


@pytest.fixture(scope="session")
def wavy_diagnosis(wavy, wavy_model):
    """Of that model, on 500 more."""
    from gpnn.diagnostics import diagnose

    X, y = wavy
    return diagnose(wavy_model, X[2000:2500], y[2000:2500], target="height")
