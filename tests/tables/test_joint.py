"""Places and cycles in tables; draws, sums and maps from them, in Python and on the command line."""

import json

import numpy as np
import pandas as pd
import pytest

from gpnn import GPnnRegressor, Hyperparameters, TableModel
from gpnn.cli import main
from gpnn.errors import InvalidInputError
from gpnn.tables import TableEncoder


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"lat": rng.uniform(50, 58, 500), "lon": rng.uniform(-6, 2, 500), "hour": rng.uniform(0, 24, 500)}
    )
    field = np.sin(frame["lat"]) + np.cos(frame["lon"]) + np.sin(2 * np.pi * frame["hour"] / 24)
    return frame.assign(y=field + 0.1 * rng.normal(size=500))


@pytest.fixture(scope="module")
def model(frame):
    regressor = GPnnRegressor(
        params=Hyperparameters(0.5, 1.0, 0.01), kernel="matern32", whitening="diagonal", calibration_size=0,
        n_neighbors=30, n_jobs=1, suspects="keep",
    )  # fmt: skip
    return TableModel.fit(frame, "y", regressor=regressor, coordinates=("lat", "lon"), periodic={"hour": 24})


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.gpnn"
    model.save(path)
    return str(path)


def test_places_and_cycles_are_kept_with_the_model(model, file, frame):
    assert model.encoder.inputs == ["lat", "lon", "hour"]
    assert model.encoder.outputs == ["east", "north", "hour_sin", "hour_cos"]
    loaded = TableModel.load(file)
    assert loaded.predict(frame[:20]).equals(model.predict(frame[:20]))
    late, early = frame[:1].assign(hour=23.999), frame[:1].assign(hour=0.001)
    both = loaded.predict(pd.concat([late, early])).to_pandas()["mean"]
    assert both[0] == pytest.approx(both[1], abs=0.01)


def test_missing_places_are_filled_with_one_in_the_middle(frame):
    holes = frame.assign(lat=frame["lat"].where(frame.index != 3), hour=frame["hour"].where(frame.index != 4))
    encoder = TableEncoder(coordinates=["lat", "lon"], periodic={"hour": 24}, missing="impute")
    X = encoder.fit_transform(holes[["lat", "lon", "hour"]])
    assert np.abs(X[3, :2]).max() < 100  # km from the middle
    assert np.linalg.norm(X[4, 2:]) == pytest.approx(24 / (2 * np.pi))


def test_draws_and_sums_of_a_table(model, frame):
    new = frame[:60].assign(half=np.repeat(["north", "south"], 30), area=np.linspace(1, 2, 60))
    draws = model.sample(new, 2000, random_state=1)
    total = model.predict_sum(new)
    assert draws.sum(axis=0).std() == pytest.approx(total.std, rel=0.08)
    parts = model.predict_sum(new, weights="area", by="half")
    assert parts.groups.tolist() == ["north", "south"]
    assert parts.mean.sum() == pytest.approx(new["area"] @ model.predict(new).to_pandas()["mean"])
    assert (parts.std > 0).all()


def test_a_map(model):
    pytest.importorskip("xarray")
    axes = {"lat": np.linspace(51, 57, 7), "lon": np.linspace(-5, 1, 5)}
    found = model.predict_grid(axes, {"hour": 12}, n_samples=3, units="nT")
    assert dict(found.sizes) == {"lat": 7, "lon": 5, "quantile": 2, "draw": 3}
    assert found["mean"].attrs == {"long_name": "mean of y", "units": "nT"}
    cell = model.predict(pd.DataFrame({"lat": [57.0], "lon": [-5.0], "hour": [12.0]})).to_pandas()
    at = found.sel(lat=57, lon=-5)
    assert float(at["mean"]) == pytest.approx(cell["mean"][0])
    assert at["quantiles"].values.tolist() == pytest.approx([cell["lower"][0], cell["upper"][0]])
    again = model.predict_grid(found[["mean"]], {"hour": 12})
    assert again["sd"].equals(found["sd"])
    draws = model.sample(found["mean"].to_dataframe().reset_index().assign(hour=12.0), 3, noise=False)
    np.testing.assert_array_equal(found["draws"].values.reshape(3, -1).T, draws)


def test_a_map_of_plain_columns(wavy, wavy_model):
    pytest.importorskip("xarray")
    X = wavy[0]
    axes = {"a": [5.0, 5.5], "b": X[:3, 1], "c": [0.0]}
    found = wavy_model.predict_grid(axes)
    assert found["mean"].shape == (2, 3, 1)
    assert float(found["mean"][1, 2, 0]) == pytest.approx(wavy_model.predict([[5.5, X[2, 1], 0.0]])[0])


def test_gpnn_sample(file, frame, tmp_path, capsys):
    table, out = str(tmp_path / "new.csv"), str(tmp_path / "draws.parquet")
    frame[:20].to_csv(table, index=False)
    assert main(["sample", file, table, "--draws", "4", "--out", out, "--keep", "lat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": out, "rows": 20, "draws": 4}
    found = pd.read_parquet(out)
    assert list(found) == ["lat", "draw_0", "draw_1", "draw_2", "draw_3"]
    assert main(["sample", file, table, "--draws", "2", "--no-noise"]) == 0
    assert capsys.readouterr().out.startswith("draw_0,draw_1\n")


def test_gpnn_map(file, tmp_path, capsys):
    xr = pytest.importorskip("xarray")
    grid = ["--axis", "lat=51:57:6", "--axis", "lon=-5:1:5", "--fix", "hour=12"]
    for name in ("map.nc", "map.csv"):
        assert main(["map", file, *grid, "--out", str(tmp_path / name), "--draws", "2", "--units", "nT"]) == 0
    assert "a map of 30 cells" in capsys.readouterr().err
    written, rows = xr.load_dataset(tmp_path / "map.nc"), pd.read_csv(tmp_path / "map.csv")
    assert written["draws"].shape == (2, 6, 5)
    assert list(rows) == ["lat", "lon", "mean", "sd", "quantile_0.05", "quantile_0.95", "draw_0", "draw_1"]
    np.testing.assert_allclose(rows["sd"], written["sd"].values.ravel())
    assert main(["map", file, "--axis", "lat=51:57", "--out", str(tmp_path / "map.nc")]) == 2
    assert "COLUMN=FROM:TO:CELLS" in capsys.readouterr().err
    assert main(["map", file, "--axis", "lat=51:57:6", "--out", str(tmp_path / "map.nc")]) == 2
    assert "Give each input one or the other" in capsys.readouterr().err


def test_gpnn_fit_knows_places(frame, tmp_path, capsys):
    table, out = str(tmp_path / "train.csv"), str(tmp_path / "model.gpnn")
    frame[:120].to_csv(table, index=False)
    command = ["fit", table, "--target", "y", "--out", out, "--paper", "--coordinates", "lat", "lon", "--periodic"]
    assert main([*command, "hour=24"]) == 0
    shown = capsys.readouterr().out
    assert "circle of period 24" in shown
    assert "latitude, with lon: kilometres on a plane" in shown
    with pytest.raises(SystemExit):
        main([*command, "hour"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coordinates": ["lat"]}, "must be two columns"),
        ({"coordinates": ["lat", "west"]}, "west"),
        ({"coordinates": ["hour", "y"]}, "must be an input"),
        ({"coordinates": ["lon", "lat"], "shift": 100}, "outside -90 to 90 degrees"),
        ({"periodic": {"hour": 0}}, "must be a positive number"),
    ],
)
def test_what_cannot_be_a_place_is_said(frame, settings, message):
    shifted = frame.assign(lon=frame["lon"] + settings.pop("shift", 0))
    with pytest.raises(InvalidInputError, match=message):
        TableModel.fit(shifted, "y", **settings)


def test_it_can_be_served(file):
    pytest.importorskip("starlette")
    from pathlib import Path

    from gpnn.serve.models import ServedModel

    served = ServedModel("model", Path(file), 1)
    rows = served.rows_of_values({"lat": [52.0], "lon": [0.5], "hour": [3]})
    assert rows.X.shape == (1, 4)
