"""
Several targets at once
=======================

Ten readings at the same places: y has ten columns. Those for which it costs nothing share one metric, and then one
search and one factorisation answer for all of them, each with its own scale, calibration and shape of errors.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

from gpnn import GPnnRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(4000, 2))
phases = np.linspace(0, 3, 10)
signal = np.sin(2 * X[:, :1] + phases) + np.cos(2 * X[:, 1:] - phases)
Y = (signal + 0.1 * rng.normal(size=signal.shape)) * np.logspace(0, 2, 10)  # each in units of its own
settings = {"kernel": "matern52", "whitening": "diagonal", "random_state": 0, "shared_metric": True}
ten = GPnnRegressor(**settings).fit(X[:3000], Y[:3000])
one = ten.targets_[0]

# %%
# `targets_[j]` is a model like any other: it can be explained, diagnosed, and saved by itself.
queries = np.tile(X[3000:], (20, 1))
seconds = []
for model in (one, ten):
    model.predict(queries[:100])
    start = perf_counter()
    model.predict(queries)
    seconds.append(perf_counter() - start)
print(f"ten targets take {seconds[1] / seconds[0]:.2f} times as long as one")

# %%
lower, upper = ten.predict_interval(X[3000:])
inside = (lower <= Y[3000:]) & (Y[3000:] <= upper)
coverage = 100 * inside.mean(axis=0)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.bar(range(10), coverage, color="tab:blue")
left.axhline(90, color="black", lw=1)
left.set(ylim=(80, 100), xlabel="target", ylabel="% inside 90 % intervals", title="each with its own calibration")
right.bar(["one", "ten"], np.array(seconds) / seconds[0], color=["tab:orange", "tab:blue"])
right.axhline(10, color="black", lw=1, ls="--", label="ten models")
right.set(ylabel="time of a prediction, in units of one", title="one search, one factor")
right.legend()
