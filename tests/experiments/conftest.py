"""The experiments are outside the package: their folder is put on the path, as `python experiments/run.py` does."""

import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
sys.path.insert(0, str(EXPERIMENTS))


@pytest.fixture(autouse=True)
def no_data(monkeypatch, tmp_path):
    """No data set is on this machine, unless a test makes one."""
    for variable in ("GPNN_DATA_DIR", "GPNN_CACHE_DIR"):
        folder = tmp_path / variable.lower()
        folder.mkdir()
        monkeypatch.setenv(variable, str(folder))


@pytest.fixture
def made():
    """Where and when a made-up result was made."""
    return {"time": "2026-01-02T03:04:05+00:00", "machine": "2 cores of nothing, 1 GiB", "versions": {"gpnn": "0"}}
