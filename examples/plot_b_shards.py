"""
More rows than memory: shards
=============================

A model of many rows lies on disk in shards, each an index over a region of the learned metric. Regions hold equal
shares of the rows, also where most rows lie close together, and a query asks its own shard, and others only if they
could hold a nearer row. :doc:`/guide/larger` has the details.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gpnn import GPnnRegressor

rng = np.random.default_rng(0)
n = 40_000
towns = rng.normal(size=(12, 2)) * 2
X = towns[rng.choice(12, n, p=rng.dirichlet(np.ones(12)))] + rng.normal(size=(n, 2)) * rng.choice([0.1, 1.0], (n, 1))
y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.normal(size=n)


def batches():
    """In practice: from files. The same rows each time."""
    for at in range(0, n, 10_000):
        yield X[at : at + 10_000], y[at : at + 10_000]


settings = {"kernel": "exponential", "whitening": "diagonal", "refine": False, "far": False, "random_state": 0}
folder = Path(tempfile.mkdtemp())
queries = X[:2000] + 0.01 * rng.normal(size=(2000, 2))
counts, models = [2, 4, 8, 16, 32, 64], []
for n_shards in counts:
    model = GPnnRegressor(**settings).fit_stream(batches, folder / f"{n_shards}.gpnn", memory="1GiB", n_shards=n_shards)
    model.predict(queries)
    models.append(model)

# %%
# Left: rows, coloured by their shard. Right: how many of 2,000 queries one shard answers, and how many shards a query
# asks on average. The answers are the same, bit for bit.

assert all((model.predict(queries) == models[0].predict(queries)).all() for model in models)
index = models[3].index_
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for part in index.parts:
    rows = X[part.order[::8]]
    left.scatter(*rows.T, s=1)
left.set(title=f"{n:,} rows in 16 shards of about {n // 16:,}", xlabel="x₁", ylabel="x₂")
by_one = [100 * model.index_.by_one_shard / model.index_.queries for model in models]
asked = [model.index_.questions / model.index_.queries for model in models]
right.plot(counts, by_one, "o-")
right.set(xticks=[8, 16, 32, 64], ylim=(0, 100), xlabel="shards")
right.set_ylabel("queries answered by one shard, %")
twin = right.twinx()
twin.plot(counts, asked, "s--", color="C1")
twin.set(ylim=(1, None))
twin.set_ylabel("shards asked by a query, mean", color="C1")
plt.show()
