"""
A table of numbers
==================

Ten thousand rows of a simulator with fifteen inputs and noise that is sometimes far off (the function of Oakley and
O'Hagan plus Student-t noise). How much does each prediction say about itself, and is it true?
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.model_selection import train_test_split

from gpnn import GPnnRegressor, datasets

X, y = datasets.oakley_ohagan(12_000, noise_variance=6.0, noise="student_t", random_state=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=2000, random_state=0)
model = GPnnRegressor(random_state=0).fit(X, y)
mean, std = model.predict(X_test, return_std=True)
for name, value in model.evaluate(X_test, y_test).items():
    print(f"{name:12s} {value:8.3f}")

# %%
# The kernel, the metric and m were chosen on rows held out for that; the report says what was tried.
best = model.fit_report_["candidates"][0]
print(f"{model.kernel_} kernel, {best['whitening']} whitening, m = {model.n_neighbors_}, α = {model.alpha_:.2f}")
for stage, seconds in model.fit_report_["seconds"].items():
    print(f"{stage:12s} {seconds:6.2f} s")

# %%
# Left: predictions against what was observed, one bar per row for its 90 % interval. Right: of the intervals of each
# level, how many hold the observed value. Intervals are shaped by the errors of held-out rows, which have the noise's
# tails; the same means and standard deviations taken for Gaussian laws are shown beside them.
levels = np.linspace(0.02, 0.98, 49)
orders = np.sort(np.concatenate([0.5 - levels / 2, 0.5 + levels / 2]))
quantiles = model.predict_quantiles(X_test, orders)
lower, upper = quantiles[:, : len(levels)][:, ::-1], quantiles[:, len(levels) :]
shaped = ((lower <= y_test[:, None]) & (y_test[:, None] <= upper)).mean(axis=0)
gaussian = (np.abs(y_test - mean)[:, None] <= norm.ppf(0.5 + levels / 2) * std[:, None]).mean(axis=0)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
low, high = model.predict_interval(X_test[:250], coverage=0.9)
inside = (low <= y_test[:250]) & (y_test[:250] <= high)
for hit, color, label in ((True, "tab:blue", "inside"), (False, "tab:red", "outside")):
    rows = np.flatnonzero(inside == hit)
    left.errorbar(y_test[rows], mean[rows], [mean[rows] - low[rows], high[rows] - mean[rows]], fmt="o", ms=3, lw=0.7,
                  color=color, alpha=0.7, label=f"{label} ({len(rows)} of 250)")  # fmt: skip
ends = [y_test.min(), y_test.max()]
left.plot(ends, ends, color="black", lw=1)
left.set(xlabel="observed", ylabel="predicted, with 90 % interval", title="250 new rows")
left.legend()
right.plot([0, 1], [0, 1], color="black", lw=1, label="right")
right.plot(levels, gaussian, color="tab:orange", label="the same, taken for Gaussian")
right.plot(levels, shaped, color="tab:blue", lw=2, label="predict_interval")
right.set(xlabel="level of the interval", ylabel="share of new rows inside", title="Do the intervals tell the truth?")
right.legend()
