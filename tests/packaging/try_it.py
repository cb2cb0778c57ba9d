"""Run by the Python of a fresh environment, from another folder: the installed package works, not the checkout."""

from pathlib import Path

import numpy as np

import gpnn

installed = Path(gpnn.__file__).parent
assert "site-packages" in installed.parts, f"imported from {installed}, not from what was installed"
assert (installed / "py.typed").exists()
rng = np.random.default_rng(0)
X = rng.normal(size=(500, 2))
y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=500)
model = gpnn.GPnnRegressor.paper(n_neighbors=50, calibration_size=100, random_state=0).fit(X[:400], y[:400])
mean, std = model.predict(X[400:], return_std=True)
assert np.corrcoef(mean, y[400:])[0, 1] > 0.9
assert (std > 0).all()
model.save("model.gpnn")
