"""
Noise that is known
===================

Instruments report how sure they are of each reading. Told so, a model listens to the good ones, and its intervals are
right for every new reading, however noisy: below, variances differ by a factor of a hundred.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpnn import GPnnRegressor

rng = np.random.default_rng(0)


def readings(n):
    X = rng.uniform(-2, 2, size=(n, 2))
    variance = 0.004 * 100 ** rng.uniform(size=n)
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + np.sqrt(variance) * rng.normal(size=n), variance


X, y, variance = readings(6000)
X_test, y_test, variance_test = readings(6000)
settings = {"kernel": "matern52", "whitening": "diagonal", "random_state": 0}
told = GPnnRegressor(**settings).fit(X, y, noise_variance=variance)
blind = GPnnRegressor(**settings).fit(X, y)
intervals = {
    "told of each reading's noise": told.predict_interval(X_test, noise_variance=variance_test),
    "noise learned, the same for all": blind.predict_interval(X_test),
}

# %%
truth = np.sin(3 * X_test[:, 0]) + X_test[:, 1]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for (name, (lower, upper)), color in zip(intervals.items(), ("tab:blue", "tab:orange"), strict=True):
    inside = (lower <= y_test) & (y_test <= upper)
    tenths = np.array_split(np.argsort(variance_test), 10)
    left.plot([np.sqrt(variance_test[rows]).mean() for rows in tenths], [100 * inside[rows].mean() for rows in tenths],
              "o-", color=color, label=name)  # fmt: skip
left.axhline(90, color="black", lw=1)
left.set(xscale="log", xlabel="standard deviation of the reading", ylabel="% inside 90 % intervals", ylim=(60, 102))
left.legend()
for model, color in ((told, "tab:blue"), (blind, "tab:orange")):
    error = np.abs(model.predict(X_test) - truth)
    right.hist(
        error, bins=np.linspace(0, 0.3, 61), histtype="step", lw=2, color=color, label=f"mean {error.mean():.3f}"
    )
right.set(xlabel="error of the noiseless value", ylabel="rows")
right.legend()
