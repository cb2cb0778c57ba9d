"""From the table as published to inputs and target: the paper's appendix "Real world datasets", one function per set.

Each takes the raw frame and returns inputs and target as a frame and a series.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpnn.common.errors import FileError, listed

if TYPE_CHECKING:
    import pandas as pd

    Table = tuple[pd.DataFrame, pd.Series]

# --- the paper's seven ------------------------------------------------------------------------------------------------


def poletele(raw: pd.DataFrame) -> Table:
    return _split(raw, "total_UPDRS", drop=("subject#", "test_time"))


def bike(raw: pd.DataFrame) -> Table:
    _require(raw, ["dteday"])
    day = raw["dteday"].astype("datetime64[s]").dt.day  # of the month: year and month have their own columns
    return _split(raw.assign(dteday=day), "cnt", drop=("instant", "casual", "registered"))


def protein(raw: pd.DataFrame) -> Table:
    return _split(raw, "RMSD")


# The paper's numbers count inputs from 0, as the file's own column names do.
CTSLICE_NEARLY_CONSTANT = tuple(f"value{number}" for number in (59, 69, 179, 189, 279, 351))


def ctslice(raw: pd.DataFrame) -> Table:
    return _split(raw, "reference", drop=("patientId", *CTSLICE_NEARLY_CONSTANT))


def road3d(raw: pd.DataFrame) -> Table:
    return _split(raw, "altitude", drop=("osm_id",))


def song(raw: pd.DataFrame) -> Table:
    return _split(raw, "year")


def houseelectric(raw: pd.DataFrame) -> Table:
    """What the household used beyond its three meters, per minute, in watt hours."""
    meters = ["Sub_metering_1", "Sub_metering_2", "Sub_metering_3"]
    others = ["Global_reactive_power", "Voltage", "Global_intensity"]
    _require(raw, ["date_time", "Global_active_power", *others, *meters])
    raw = raw.dropna()
    y = raw["Global_active_power"] * 1000 / 60 - raw[meters].to_numpy().sum(axis=1)
    X = raw[[*others, *meters]]
    time = raw["date_time"].dt
    X.insert(0, "day_of_year", time.day_of_year / 365)
    X.insert(1, "minute_of_day", time.hour * 60 + time.minute)
    return X, y.rename("unmetered_energy_wh")


def houseelectric_raw(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The table as UCI has it: one column of times, and nothing in the minutes that were not measured.

    A packager filled those with the minute 24 hours earlier; a second Parquet file tells which. Of its rows, those
    marked `likely_coincidence` were probably measured and just alike, and stay.
    """
    import pandas as pd

    if path.suffix != ".parquet":
        _require(frame, ["Date", "Time"])
        days, minutes = frame.pop("Date").cat, frame.pop("Time").cat
        day = pd.to_datetime(days.categories, format="%d/%m/%Y")[days.codes]
        frame.insert(0, "date_time", day + pd.to_timedelta(minutes.categories)[minutes.codes])
        return frame
    filled = path.with_name("houseelectric_prev_day_copies.parquet")
    if not filled.exists():
        raise FileError(
            f"{filled} is missing. It tells which rows of {path.name} were never measured, and without it about 26,000 "
            "copies would count as data. Put it beside that file."
        )
    copies = pd.read_parquet(filled, columns=["row", "likely_coincidence"])
    rows = copies.loc[~copies["likely_coincidence"], "row"].to_numpy()
    frame.iloc[rows, 1:] = np.nan
    return frame


# --- stand-ins --------------------------------------------------------------------------------------------------------


def britain_magnetic(raw: pd.DataFrame) -> Table:
    return _places(raw, "total_field_anomaly_nt")


def egm96_geoid(raw: pd.DataFrame) -> Table:
    return _places(raw, "geoid_height_cm")


def covtype(raw: pd.DataFrame) -> Table:
    return _split(raw, "Elevation", drop=("Cover_Type",))


def blogfeedback(raw: pd.DataFrame) -> Table:
    X, y = _split(raw, "280", drop=("source_file",))
    return X, np.log1p(y.astype(float)).rename("log1p_comments")


# --- what they share --------------------------------------------------------------------------------------------------


def _split(raw: pd.DataFrame, target: str, drop: Sequence[str] = ()) -> Table:
    _require(raw, [target, *drop])
    return raw.drop(columns=[target, *drop]), raw[target]


def _places(raw: pd.DataFrame, target: str) -> Table:
    _require(raw, ["longitude", "latitude", target])
    return raw[["longitude", "latitude"]], raw[target]


def _require(raw: pd.DataFrame, columns: Sequence[str]) -> None:
    if missing := [name for name in columns if name not in raw.columns]:
        raise FileError(
            f"the table lacks {len(missing)} columns that the recipe needs: {listed(missing)}. It has: "
            f"{listed([str(name) for name in raw.columns])}. Check that this is the right file, or move it away and "
            "load again."
        )
