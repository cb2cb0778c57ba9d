"""What a model of tables says of many rows together: draws, sums and maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from gpnn.common.errors import InvalidInputError, MissingExtraError, listed
from gpnn.common.types import Array
from gpnn.files.whole import check_folder, whole_or_nothing
from gpnn.regressor import GPnnRegressor
from gpnn.regressor.grid import QUANTILES, as_dataset, checked_axes, mesh
from gpnn.stages.joint import Sums
from gpnn.tables.encoder import TableEncoder, missing_message, warn_of_unknown
from gpnn.tables.writing import check_output, writing

if TYPE_CHECKING:
    from gpnn.tables.reading import Table

MAPS = (".nc", ".tif", ".csv", ".parquet")
"""What a map can be written as."""
_ROWS = 65_536  # that are written at a time


@dataclass(frozen=True)
class JointTables:
    """What TableModel, which has the rest, can say of them."""

    encoder: TableEncoder
    regressor: GPnnRegressor
    target: str | tuple[str, ...]
    """Its name, or those of several."""

    def sample(self, table, n_samples: int = 1, random_state=0, noise: bool = True) -> Array:
        """Draws (rows, n_samples) of the target at all rows of a table together; noise=False: of what underlies it."""
        return self.regressor.sample_y(self._encoded(table), n_samples, random_state, noise)

    def predict_sum(
        self, table, weights=None, by: str | None = None, average: bool = False, noise: bool = True
    ) -> Sums:
        """The sum of the target over all rows of a table, or over those of each value of the column `by`; see
        `GPnnRegressor.predict_sum`. weights: one for each row, or the name of a column."""
        opened = self._prepare(table, "error", [name for name in (by, weights) if isinstance(name, str)])[0]
        columns = {name: _column(opened, name) for name in (by, weights) if isinstance(name, str)}
        weights = columns[weights] if isinstance(weights, str) else weights
        labels = None if by is None else columns[by]
        return self.regressor.predict_sum(self._encoded(table), weights, labels, average, noise)

    def predict_grid(
        self,
        axes,
        fixed: Mapping[str, Any] | None = None,
        quantiles: Sequence[float] = QUANTILES,
        n_samples: int = 0,
        random_state=0,
        noise: bool = False,
        units: str | None = None,
    ) -> Any:
        """An xarray.Dataset of mean, sd, quantiles and draws on a grid: values by column, or an xarray object with
        these coordinates. fixed: the value of every other input. noise: in the draws."""
        axes = checked_axes(axes)
        asked = {**axes, **(fixed or {})}
        if set(asked) != set(self.encoder.inputs):
            raise InvalidInputError(
                f"The model's inputs are {listed(self.encoder.inputs)}; axes and fixed values were given for "
                f"{listed(list(asked))}. Give each input one or the other."
            )
        cells = pd.DataFrame(mesh(axes)).assign(**dict(fixed or {}))
        X = self._encoded(cells)
        mean, std = self.regressor.predict(X, return_std=True)
        ends = self.regressor.predict_quantiles(X, list(quantiles))
        draws = self.regressor.sample_y(X, n_samples, random_state, noise) if n_samples else None
        name = self.target if isinstance(self.target, str) else None
        return as_dataset(axes, mean, std, (quantiles, ends), draws, name, units)

    def sample_file(
        self, table, out: Path | None, n_samples: int, random_state=0, noise: bool = True, keep: Sequence[str] = ()
    ) -> int:
        """Draws as columns draw_0, draw_1, … of a table, after the columns to keep; the number of rows."""
        check_output(out)
        opened = self._prepare(table, "error", list(keep))[0]
        kept = [_column(opened, name) for name in keep]
        draws = self.sample(table, n_samples, random_state, noise)
        arrays = [*kept, *(pa.array(column) for column in draws.T)]
        names = [*keep, *(f"draw_{k}" for k in range(n_samples))]
        if len(set(names)) < len(names):
            raise InvalidInputError(
                f"Columns to keep must differ from each other and from draws: {listed(list(keep))}."
            )
        _write(pa.table(arrays, names=names), out)
        return len(draws)

    def _encoded(self, table) -> pd.DataFrame:
        """The inputs of every row; missing values are refused, or filled in if the model was told so."""
        opened, missing = self._prepare(table, None, [])
        unknown: Counter = Counter()
        parts = [self.encoder.encode(batch, unknown) for batch in opened.batches(self.encoder.inputs)]
        X = np.concatenate([np.empty((0, len(self.encoder.outputs))), *parts])
        warn_of_unknown(unknown)
        if missing == "impute":
            self.encoder.impute(X)
        counts = self.encoder.missing_by_column(X)
        if counts:
            raise InvalidInputError(
                missing_message(
                    counts, int(np.isnan(X).any(axis=1).sum()), "leave these rows out: draws and sums are of all rows"
                )
            )
        return pd.DataFrame(X, columns=self.encoder.outputs, copy=False)

    def _prepare(self, table, missing: str | None, more: list[str]) -> tuple[Table, str]:
        raise NotImplementedError


def write_map(dataset: Any, out: Path) -> None:
    """NetCDF and GeoTIFF by xarray (the latter with rioxarray), or a row for each cell as CSV or Parquet."""
    check_folder(out, MAPS)
    if out.suffix in (".csv", ".parquet"):
        _write(pa.Table.from_pandas(_rows_of(dataset), preserve_index=False), out)
        return
    with whole_or_nothing(out) as unfinished:
        if out.suffix == ".nc":
            dataset.to_netcdf(unfinished)
            return
        try:
            import rioxarray  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(
                f"GeoTIFF is written with rioxarray ({error}). Install it with: pip install rioxarray; or ask for .nc"
            ) from error
        y, x = list(dataset["mean"].dims)
        bands = dataset[["mean", "sd"]].rio.set_spatial_dims(x_dim=x, y_dim=y).rio.write_crs("EPSG:4326")
        bands.rio.to_raster(unfinished, driver="GTiff")


def _rows_of(dataset: Any) -> pd.DataFrame:
    """A row for each cell: its place, mean, sd, and a column for each quantile and draw."""
    frame = dataset[["mean", "sd"]].to_dataframe().reset_index()
    for name, axis in (("quantiles", "quantile"), ("draws", "draw")):
        if name in dataset:
            for k, label in enumerate(dataset[axis].values):
                frame[f"{axis}_{label:g}"] = dataset[name].isel({axis: k}).values.ravel()
    return frame


def _column(table: Table, name: str) -> pa.Array:
    return pa.concat_arrays([batch.column(name) for batch in table.batches([name])])


def _write(table: pa.Table, out: Path | None) -> None:
    with writing(out, table.schema) as write:
        for batch in _batches(table):
            write(batch)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=_ROWS)
