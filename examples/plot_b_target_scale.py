"""
A target that is never negative
===============================

Incomes, rainfalls and waiting times are never negative, and their errors grow with them. Learned as it is, such a
target gets intervals that are too wide where it is small and too narrow where it is large; learned on another scale,
which held-out rows choose, they are right everywhere, and the mean is still that of the target itself.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpnn import GPnnRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(8000, 3))
y = np.exp(np.sin(2 * X[:, 0]) + X[:, 1] + 0.6 * rng.normal(size=8000))
X, X_test, y, y_test = X[:5000], X[5000:], y[:5000], y[5000:]
settings = {"whitening": "diagonal", "random_state": 0}
models = {
    "as it is": GPnnRegressor(target_scale="identity", target_limits=None, **settings).fit(X, y),
    "scale chosen": GPnnRegressor(**settings).fit(X, y),
}

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for (name, model), color in zip(models.items(), ("tab:orange", "tab:blue"), strict=True):
    lower, upper = model.predict_interval(X_test)
    inside, mean, scores = (lower <= y_test) & (y_test <= upper), model.predict(X_test), model.evaluate(X_test, y_test)
    tenths = np.array_split(np.argsort(mean), 10)
    name = f"{name}: {model.target_scale_.kind} (NLL {scores['nll']:.2f}, RMSE {scores['rmse']:.2f})"
    left.plot([mean[rows].mean() for rows in tenths], [100 * inside[rows].mean() for rows in tenths], "o-", color=color)
    line = np.column_stack([np.full(60, 0.5), np.linspace(-2, 2, 60), np.zeros(60)])
    lower, upper = model.predict_interval(line)
    right.fill_between(line[:, 1], lower, upper, color=color, alpha=0.3, label=name)
    right.plot(line[:, 1], model.predict(line), color=color)
left.axhline(90, color="black", lw=1)
left.set(xscale="log", xlabel="predicted mean", ylabel="% inside 90 % intervals", ylim=(60, 102))
right.axhline(0, color="black", lw=1)
right.set(xlabel="second column", ylabel="y")
right.legend()
