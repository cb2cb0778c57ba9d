"""
Maps that might be true, and what they add up to
================================================

A map of means is smoother than any field, and a map of standard deviations says nothing of what neighbours have in
common. Draws of the whole map do: each is a field that the measurements allow. What is asked of a map, such as a total
over an area, its highest place, or where it lies above a threshold, is asked of each draw, or of the joint law itself.

With the survey in the data directory (``gpnn datasets info britain_magnetic`` says where to get it) this page shows
Britain's magnetic field; otherwise a field is made up, and the titles say so.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpnn import GPnnRegressor, datasets
from gpnn.errors import FileError
from gpnn.geography import GlobeCoordinates

WEST, EAST, SOUTH, NORTH = -6.4, -3.4, 56.2, 57.8


def measured(rng):
    """Latitude and longitude, field in nT: a few thousand of the survey's rows."""
    table = datasets.load_raw("britain_magnetic")
    table = table[table["longitude"].between(WEST, EAST) & table["latitude"].between(SOUTH, NORTH)]
    table = table.sample(min(len(table), 6000), random_state=0)
    return table[["latitude", "longitude"]].to_numpy(), table["total_field_anomaly_nt"].to_numpy(float)


def made_up(rng):
    """Sources at random places and depths, measured here and there."""
    places = rng.uniform([SOUTH, WEST], [NORTH, EAST], size=(3000, 2))
    field = 10 * rng.normal(size=len(places))
    for _ in range(60):
        source, depth = rng.uniform([SOUTH, WEST], [NORTH, EAST]), rng.uniform(0.05, 0.2)
        r2 = ((places - source) ** 2 * [1.0, 0.3]).sum(axis=1) / depth**2
        field += rng.normal() * 300 * (1 - r2) / (1 + r2) ** 2.5
    return places, field


rng = np.random.default_rng(0)
try:
    (places, field), source = measured(rng), "British Geological Survey"
except FileError:
    (places, field), source = made_up(rng), "made-up field"
globe = GlobeCoordinates().fit(places)  # kilometres east and north, so that distance means distance
model = GPnnRegressor(random_state=0).fit(globe.transform(places), field)
print(f"{source}: {len(places):,} measurements")

# %%
# Three draws of the map beside its mean. Where measurements are dense they agree; between them each goes its own way,
# as rough as the field is.
latitude, longitude = np.meshgrid(np.linspace(SOUTH, NORTH, 90), np.linspace(WEST, EAST, 90), indexing="ij")
cells = globe.transform(np.column_stack([latitude.ravel(), longitude.ravel()]))
law = model.predict_distribution(cells, joint=True)
draws = law.sample(200, random_state=0, noise=False)

figure, axes = plt.subplots(1, 4, figsize=(13, 4.2), layout="constrained", sharex=True, sharey=True)
colours = {"vmin": -400, "vmax": 400, "cmap": "RdBu_r", "rasterized": True}
for ax, values, title in zip(axes, [law.mean, *draws.T[:3]], ["mean", "a draw", "another", "and another"], strict=True):
    image = ax.pcolormesh(longitude, latitude, values.reshape(latitude.shape), **colours)
    ax.set(title=title, xlabel="longitude", aspect=1 / np.cos(np.radians((SOUTH + NORTH) / 2)))
axes[0].set_ylabel("latitude")
figure.colorbar(image, ax=axes, label=f"total field anomaly, nT ({source})", shrink=0.8)

# %%
# The mean anomaly over a square, with its standard deviation, and what one would have claimed if the errors of
# neighbouring cells had nothing to do with each other. Draws tell the same as the law.
square = (abs(latitude - 57.0) < 0.2) & (abs(longitude + 4.9) < 0.35)
over = model.predict_sum(cells[square.ravel()], average=True, noise=False)
from_draws = draws[square.ravel()].mean(axis=0)
print(f"mean over the square: {over.mean:.1f} ± {over.std:.2f} nT; from draws ± {from_draws.std():.2f}; "
      f"if errors were independent, ± {over.naive_std:.2f}")  # fmt: skip

# %%
# Where does the field lie above 150 nT? By each cell's own probability, and as a region all of which does with
# probability 0.9.
region = model.excursion_region(cells, 150.0, level=0.9, n_samples=300)
figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained", sharex=True, sharey=True)
shown = (region.probability, "probability of each cell"), (region.inside, "all of it above, with probability 0.9")
for ax, (values, title) in zip(axes, shown, strict=True):
    image = ax.pcolormesh(longitude, latitude, values.reshape(latitude.shape), cmap="magma", vmin=0, vmax=1)
    ax.set(title=title, xlabel="longitude", aspect=1 / np.cos(np.radians((SOUTH + NORTH) / 2)))
axes[0].set_ylabel("latitude")
figure.colorbar(image, ax=axes, shrink=0.8)

# %%
# Where to measure next: ten places that would together tell most.
chosen = model.suggest(cells[::7], 10)
print(np.column_stack([latitude.ravel()[::7][chosen], longitude.ravel()[::7][chosen]]).round(2))
