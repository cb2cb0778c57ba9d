"""
Rows that come and go
=====================

A year of days: each is predicted, then learned with `partial_fit`, without a refit. In the middle of the year the noise
doubles and the signal begins to drift. The model that learns follows, in its means and in its intervals; the one that
stays as it was fitted does not.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np

from gpnn import GPnnRegressor

rng = np.random.default_rng(0)


def day(number, n=50):
    X = rng.uniform(-2, 2, size=(n, 2))
    drift = max(0.0, (number - 180) / 180)
    noise = 0.1 * (2 if number >= 180 else 1)
    return X, np.sin(3 * X[:, 0] + drift) + X[:, 1] + noise * rng.normal(size=n)


X, y = (np.concatenate(of) for of in zip(*[day(0) for _ in range(60)], strict=True))
fitted = GPnnRegressor(kernel="matern52", whitening="diagonal", random_state=0).fit(X, y)
living = copy.copy(fitted)

# %%
# `window` keeps the newest rows: here, those of the last sixty days.
share = {"fitted once": [], "living": []}
error = {"fitted once": [], "living": []}
for number in range(360):
    X, y = day(number)
    for name, model in (("fitted once", fitted), ("living", living)):
        lower, upper = model.predict_interval(X)
        share[name].append(np.mean((lower <= y) & (y <= upper)))
        error[name].append(np.mean((model.predict(X) - y) ** 2))
    living.partial_fit(X, y, window=3000)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
kernel = np.ones(14) / 14
for name, color in (("fitted once", "tab:orange"), ("living", "tab:blue")):
    left.plot(100 * np.convolve(share[name], kernel, "valid"), color=color, label=name)
    right.plot(np.sqrt(np.convolve(error[name], kernel, "valid")), color=color, label=name)
left.axhline(90, color="black", lw=1)
left.set(xlabel="day", ylabel="% inside 90 % intervals", title="coverage, over two weeks")
right.set(xlabel="day", ylabel="RMSE", title="error, over two weeks", ylim=0)
left.legend()
