"""
A map and its uncertainty
=========================

Aeroplanes measured Britain's magnetic field along flight lines; between them nobody has been. A map needs the field
everywhere, and needs to say where it is a guess. Here are the west of Scotland's lines and what follows from them.

With the survey in the data directory (``gpnn datasets info britain_magnetic`` says where to get it) this page shows
real data; otherwise a field is made up, flown over in lines, and the titles say so.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm, SymLogNorm
from sklearn.model_selection import PredefinedSplit

from gpnn import GPnnRegressor, datasets
from gpnn.errors import FileError

WEST, EAST, SOUTH, NORTH = -7.6, -2.4, 55.4, 58.7


def measured():
    """Longitude and latitude, field in nT, and the number of the flight line."""
    table = datasets.load_raw("britain_magnetic")
    table = table[table["longitude"].between(WEST, EAST) & table["latitude"].between(SOUTH, NORTH)]
    line = (table["survey_area"] + table["line-number-segment"]).astype("category").cat.codes
    return table[["longitude", "latitude"]].to_numpy(), table["total_field_anomaly_nt"].to_numpy(float), line.to_numpy()


def made_up(rng):
    """Sources at random places and depths, flown over in short north–south lines with levelling errors."""
    column, along = (places.ravel() for places in np.meshgrid(np.arange(100), np.arange(300) / 50))
    X = np.column_stack([WEST + (EAST - WEST) / 100 * column, SOUTH + (NORTH - SOUTH) / 6 * along])
    line = 6 * column + along.astype(int)  # six flights to a column
    field = 40 * rng.normal(size=600)[line] + 5 * rng.normal(size=len(line))
    for _ in range(120):
        place, depth = rng.uniform([WEST, SOUTH], [EAST, NORTH]), rng.uniform(0.1, 0.4)
        r2 = ((X - place) ** 2 * [0.3, 1.0]).sum(axis=1) / depth**2
        field += rng.normal() * 400 * (1 - r2) / (1 + r2) ** 2.5
    return X + 0.002 * rng.normal(size=X.shape), field, line


rng = np.random.default_rng(0)
try:
    (X, y, line), source = measured(), "British Geological Survey"
except FileError:
    (X, y, line), source = made_up(rng), "made-up field"
print(f"{source}: {len(X):,} rows on {len(np.unique(line)):,} flight lines")

# %%
# Rows of a line are some two hundred metres apart, but from one line to the nearest row of another it is a kilometre or
# two. A random row held out has neighbours on its own line and is easy; a place on the map has none. So whole lines are
# held out: some to test at the end, and some, by `holdout`, for the model to learn and calibrate on. Beside it the
# local process alone, which takes random rows for queries, and the default, which notices that these are not.
share = rng.random(line.max() + 1)[line]  # the same for all rows of a line
test, practice = share < 0.1, share[share >= 0.1] < 0.2
models = {
    "random rows": GPnnRegressor(far=False, random_state=0),
    "default": GPnnRegressor(random_state=0),
    "whole lines": GPnnRegressor(holdout=PredefinedSplit(np.where(practice, 0, -1)), random_state=0),
}
for held_out, model in models.items():
    scores = model.fit(X[~test], y[~test]).evaluate(X[test], y[test], units="y")
    print(f"{held_out:12s} RMSE {scores['rmse']:4.0f} nT, "
          f"90 % intervals cover {scores['coverage_90']:.0%} of the rows of new lines")  # fmt: skip

# %%
# The uncertainty is honest only if the rows held out resemble the queries to come: as the default imitates them, or as
# you know that they will be.
model = models["whole lines"]
longitude, latitude = np.meshgrid(np.linspace(WEST, EAST, 230), np.linspace(SOUTH, NORTH, 270))
mean, std = model.predict(np.column_stack([longitude.ravel(), latitude.ravel()]), return_std=True)

figure, axes = plt.subplots(1, 3, figsize=(13, 5.3), layout="constrained", sharex=True, sharey=True)
field = {"norm": SymLogNorm(50, vmin=-1500, vmax=1500), "cmap": "RdBu_r"}
axes[0].scatter(*X[~test].T, c=y[~test], s=0.25, linewidths=0, rasterized=True, **field)
map_mean = axes[1].pcolormesh(longitude, latitude, mean.reshape(longitude.shape), rasterized=True, **field)
map_std = axes[2].pcolormesh(longitude, latitude, std.reshape(longitude.shape), rasterized=True, cmap="magma",
                             norm=LogNorm(*np.quantile(std, [0.01, 0.99])))  # fmt: skip
titles = (f"measured along flight lines\n({source})", "predicted mean", "predicted standard deviation")
for ax, title in zip(axes, titles, strict=True):
    ax.set(
        title=title,
        xlabel="longitude",
        aspect=1 / np.cos(np.radians((SOUTH + NORTH) / 2)),
        xlim=(WEST, EAST),
        ylim=(SOUTH, NORTH),
    )
axes[0].set_ylabel("latitude")
figure.colorbar(map_mean, ax=axes[:2], label="total field anomaly, nT", shrink=0.75, pad=0.01,
                ticks=[-1000, -100, 0, 100, 1000], format="%d")  # fmt: skip
bar = figure.colorbar(
    map_std, ax=axes[2], label="nT", shrink=0.75, pad=0.02, ticks=[10, 20, 30, 50, 100, 200], format="%d"
)
bar.minorticks_off()
