"""The two data sets of the benchmarks, prepared as the paper's appendix "Real world datasets" says.

They are looked for in the folder that GPNN_DATA_DIR names, or `../shared/data` beside the repository.
"""

import os
from pathlib import Path

import numpy as np


def data_directory() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("GPNN_DATA_DIR", default))


def house_electric() -> tuple[np.ndarray, np.ndarray]:
    """2,049,282 × 8: what the household used beyond its three meters, per minute, in watt hours."""
    import pandas as pd

    frame = pd.read_parquet(data_directory() / "houseelectric.parquet")
    copies = pd.read_parquet(data_directory() / "houseelectric_prev_day_copies.parquet")
    frame = frame.drop(index=copies.loc[~copies["likely_coincidence"], "row"].to_numpy())
    time = frame["date_time"].dt
    meters = frame[["Sub_metering_1", "Sub_metering_2", "Sub_metering_3"]].to_numpy(float)
    y = frame["Global_active_power"].to_numpy(float) * 1000 / 60 - meters.sum(axis=1)
    others = frame[["Global_reactive_power", "Voltage", "Global_intensity"]].to_numpy(float)
    X = np.column_stack([time.day_of_year / 365, time.hour * 60 + time.minute, others, meters])
    return X, y


def protein() -> tuple[np.ndarray, np.ndarray]:
    """45,730 × 9."""
    import pandas as pd

    values = pd.read_parquet(data_directory() / "protein_casp.parquet").to_numpy(float)
    return values[:, 1:], values[:, 0]


def split(X, y, seed: int):
    """The paper's random 7/9 for training, 2/9 for testing."""
    rows = np.random.default_rng(seed).permutation(len(X))
    n_train = len(X) * 7 // 9
    train, test = rows[:n_train], rows[n_train:]
    return X[train], y[train], X[test], y[test]
