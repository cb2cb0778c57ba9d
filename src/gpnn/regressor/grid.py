"""Maps: predictions on a grid, with their coordinates, as an xarray.Dataset (extra gpnn[maps])."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpnn.common.errors import InvalidInputError, listed
from gpnn.common.extras import import_xarray
from gpnn.common.types import Array

QUANTILES = (0.05, 0.95)


def checked_axes(axes) -> dict[str, Array]:
    """Values (k,) of each axis by name, from a mapping, or from the coordinates of an xarray object."""
    if hasattr(axes, "indexes") and hasattr(axes, "coords"):
        axes = {str(name): axes.coords[name].values for name in axes.indexes}
    if not isinstance(axes, Mapping) or not axes:
        raise InvalidInputError('axes must be values by name, such as {"lat": lats, "lon": lons}, or an xarray object.')
    found = {str(name): np.asarray(values) for name, values in axes.items()}
    for name, values in found.items():
        if values.ndim != 1 or len(values) == 0:
            raise InvalidInputError(f"The axis {name} has the shape {values.shape}; a row of values is needed.")
    return found


def mesh(axes: dict[str, Array]) -> dict[str, Array]:
    """Every cell's value of each axis (q,), the last axis the quickest."""
    return {name: values.ravel() for name, values in zip(axes, np.meshgrid(*axes.values(), indexing="ij"), strict=True)}


def rows_of_grid(axes: dict[str, Array], names: Sequence[str] | None) -> Array:
    """Cells (q, d) in the order of the model's columns; without names of these, in that of the axes."""
    if names is not None and set(names) != set(axes):
        raise InvalidInputError(
            f"The model's columns are {listed(list(names))}, and the axes are {listed(list(axes))}. Give an axis for "
            "each column, of one value where it stays the same."
        )
    cells = mesh(axes)
    return np.column_stack([np.asarray(cells[name], dtype=float) for name in (axes if names is None else names)])


def as_dataset(
    axes: dict[str, Array],
    mean: Array,
    std: Array,
    quantiles: tuple[Sequence[float], Array],
    draws: Array | None = None,
    target: str | None = None,
    units: str | None = None,
) -> Any:
    """mean and sd on the axes; quantile and draw with an axis more each."""
    xr = import_xarray()
    dims, shape = tuple(axes), tuple(len(values) for values in axes.values())
    what, units_of = target or "y", {} if units is None else {"units": units}

    def variable(values: Array, meaning: str, first: str | None = None):
        more = () if first is None else (first,)
        reshaped = values.reshape(shape) if first is None else values.T.reshape(-1, *shape)
        return (*more, *dims), reshaped, {"long_name": f"{meaning} of {what}"} | units_of

    levels, ends = quantiles
    found = {
        "mean": variable(mean, "mean"), "sd": variable(std, "standard deviation"),
        "quantiles": variable(ends, "quantiles", "quantile"),
    }  # fmt: skip
    coordinates: dict[str, Any] = {**axes, "quantile": np.asarray(levels, dtype=float)}
    if draws is not None:
        found["draws"] = variable(draws, "draws", "draw")
        coordinates["draw"] = np.arange(draws.shape[1])
    return xr.Dataset(found, coordinates, {"title": f"{what}, predicted by gpnn"})
