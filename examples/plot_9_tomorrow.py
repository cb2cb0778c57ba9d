"""
Will it hold tomorrow?
======================

Two years of hourly demand that grows, with a daily rhythm, warm days, and good and bad weeks of which the columns say
nothing. The last fifth is predicted from what came before. Judged on random rows, the local process looks superb: the
hour before says nearly everything. Of next month it knows nothing, and says so by falling back on the mean. The default
has learned what else there is with parts of the table out of sight, and `times=` says which parts those should be.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from gpnn import GPnnRegressor, metrics

rng = np.random.default_rng(0)
hour = np.arange(0, 2 * 365 * 24, 2.0)
day = hour / 24
weeks = np.convolve(rng.normal(size=len(day) + 200), np.hanning(200) / 10, mode="valid")[: len(day)]
temperature = 12 - 9 * np.cos(2 * np.pi * day / 365) + 4 * np.convolve(
    rng.normal(size=len(day) + 40), np.ones(41) / 6, mode="valid"
)  # fmt: skip
rhythm = np.exp(-(((hour % 24) - 8) ** 2) / 8) + 1.3 * np.exp(-(((hour % 24) - 18) ** 2) / 12)
y = (60 + 0.06 * day + 2.0 * temperature) * rhythm + 5 * weeks + 4 * rng.normal(size=len(day))
X = np.c_[hour, hour % 24, temperature]
n = len(X) * 4 // 5

# %%
# Three fits of the same rows, and the first two weeks that none of them has seen.
variants = {
    "the local process alone": ({"far": False}, {}),
    "default": ({}, {}),
    "times= said": ({}, {"times": hour[:n]}),
}
figure, axes = plt.subplots(3, 1, figsize=(10, 8), layout="constrained", sharex=True, sharey=True)
shown = slice(n - 84, n + 168)
for ax, (name, (settings, said)) in zip(axes, variants.items(), strict=True):
    model = GPnnRegressor(random_state=0, **settings).fit(X[:n], y[:n], **said)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that many of these rows lie outside the support: they do
        law, (lower, upper) = model.predict_distribution(X[n:]), model.predict_interval(X[n:])
    covered = np.mean((lower <= y[n:]) & (y[n:] <= upper))
    ax.plot(day[shown], y[shown], "k.", ms=3)
    new = slice(0, shown.stop - n)
    ax.plot(day[n:][new], law.mean[new], color="tab:blue", lw=1.5)
    ax.fill_between(day[n:][new], lower[new], upper[new], color="tab:blue", alpha=0.25, lw=0)
    ax.axvline(day[n], color="0.5", lw=1)
    rmse = metrics.rmse(y[n:], law) / np.std(y[:n])
    ax.set_title(f"{name}: RMSE {rmse:.2f} sd, 90 % intervals cover {100 * covered:.0f} % of all that came later")
axes[1].set_ylabel("demand")
axes[-1].set_xlabel("day")
plt.show()
