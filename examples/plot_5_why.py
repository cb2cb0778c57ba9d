"""
Why this prediction?
====================

A prediction is a weighted sum of the targets of its nearest rows, so it can be taken apart to the last digit:
mean = offset + Σ weights·y. Left, one query and the rows that decided it; in the middle, what each column contributes
to the distances between rows, with its uncertainty; right, what the mean does as one column moves and the others
stay.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpnn import GPnnRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(3000, 3))
y = np.sin(3 * X[:, 0]) + 0.4 * X[:, 1] ** 2 + 0.1 * rng.normal(size=3000)  # the third column says nothing
model = GPnnRegressor(kernel="matern52", whitening="diagonal", random_state=0).fit(X, y)
query = np.array([[0.4, 0.8, 0.0]])

# %%
# The identity holds for every query, also where models learned for gaps have a say.
why = model.explain(query)
print("mean:", model.predict(query), "=", why.mean())
rows, weights = why.decisive(5)
print("these five rows decided:", dict(zip(rows[0].tolist(), weights[0].round(3).tolist(), strict=True)))
print(f"as if {why.effective[0]:.1f} rows had weighed alike")

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
left.scatter(*X[:, :2].T, s=2, color="0.8")
left.scatter(*X[why.indices[0], :2].T, s=900 * np.abs(why.weights[0]), c=why.weights[0],
             cmap="coolwarm", vmin=-0.1, vmax=0.1)  # fmt: skip
left.plot(*query[0, :2], "k+", ms=14, mew=2)
left.set(title="rows, by weight in the mean", xlabel="column 0", ylabel="column 1", xlim=(-0.6, 1.4), ylim=(-0.6, 2))

found = model.relevance()
sides = np.clip([found.share - found.lower, found.upper - found.share], 0, None)
middle.barh(found.names, found.share, xerr=sides, color="tab:blue", capsize=4)
middle.invert_yaxis()
middle.set(title="relevance, and 95 %", xlabel="share of the squared distance")

curve = model.partial_dependence(X[:300], 0)
right.fill_between(curve.grid, curve.lower, curve.upper, color="tab:blue", alpha=0.25, label="90 %")
right.plot(curve.grid, curve.mean, color="tab:blue", label="mean prediction")
right.plot(curve.grid, np.sin(3 * curve.grid) + 0.4 * np.mean(X[:300, 1] ** 2), "k--", lw=1, label="truth")
right.set(title="partial dependence", xlabel="column 0")
right.legend()
