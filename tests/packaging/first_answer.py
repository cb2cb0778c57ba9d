"""Run in a new process after try_it.py: a loaded model answers with the machine code of the installation alone."""

import os
from pathlib import Path

os.environ["NUMBA_CACHE_DIR"] = "compiled-anew"

import gpnn

gpnn.GPnnRegressor.load("model.gpnn").predict([[0.0, 0.0]])
compiled = sorted(path.name for path in Path("compiled-anew").rglob("*.nbc"))
assert not compiled, f"compiled, though the installation should have brought it: {compiled}"
