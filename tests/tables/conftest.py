import numpy as np
import pandas as pd
import pytest

from gpnn import GPnnRegressor, Hyperparameters, TableModel

CITIES = ["Aix", "Bern", "Cork"]


def _make_frame(n: int, seed: int = 0) -> pd.DataFrame:
    """A column of each kind, and a target that depends on all of them."""
    rng = np.random.default_rng(seed)
    hours = rng.integers(0, 24 * 900, n)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n).round(6),
            "rooms": rng.integers(1, 9, n),
            "new": rng.random(n) > 0.5,
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(hours, "h"),
            "city": rng.choice(CITIES, n, p=[0.5, 0.3, 0.2]),
            "street": [f"s{k}" for k in rng.integers(0, 40, n)],
        }
    )
    noise = 0.1 * rng.normal(size=n)
    frame["price"] = np.sin(frame["size"]) + 0.1 * frame.rooms + 0.5 * frame.new + 0.3 * (frame.city == "Bern") + noise
    return frame


@pytest.fixture
def make_frame():
    return _make_frame


@pytest.fixture
def quick_regressor():
    return _quick_regressor()


def _quick_regressor() -> GPnnRegressor:
    """Nothing to choose and little to calibrate: for tests of what surrounds it."""
    return GPnnRegressor(
        kernel="exponential", n_neighbors=16, whitening="diagonal", params=Hyperparameters(1.0, 0.9, 0.1),
        calibration_size=50, n_jobs=1, random_state=0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def frame():
    return _make_frame(400)


@pytest.fixture(scope="session")
def model(frame):
    return TableModel.fit(frame, "price", regressor=_quick_regressor())


@pytest.fixture(scope="session")
def model_file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.gpnn"
    model.save(path)
    return path
