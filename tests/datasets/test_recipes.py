"""Every recipe on a small made file in the original's format, and the real files where they are at hand."""

import gzip
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpnn import datasets
from gpnn.datasets.sources import archive_name
from gpnn.errors import FileError, GPnnWarning, InvalidInputError

REAL = os.environ.get("GPNN_DATA_DIR") or Path(__file__).parents[3] / "shared" / "data"
PARKINSONS = (
    "subject#,age,sex,test_time,motor_UPDRS,total_UPDRS,Jitter(%),Jitter(Abs),Jitter:RAP,Jitter:PPQ5,Jitter:DDP,Shimmer,"
    "Shimmer(dB),Shimmer:APQ3,Shimmer:APQ5,Shimmer:APQ11,Shimmer:DDA,NHR,HNR,RPDE,DFA,PPE"
)
HOURS = (
    "instant,dteday,season,yr,mnth,hr,holiday,weekday,workingday,weathersit,temp,atemp,hum,windspeed,casual,"
    "registered,cnt"
)
POWER = (
    "Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;Sub_metering_1;Sub_metering_2;"
    "Sub_metering_3"
)


def place(folder, name, content):
    """What a browser would save from UCI's page."""
    path = folder / archive_name(datasets.info(name).url)
    path.write_bytes(content)
    return path


def rows_of(*rows):
    return "\n".join(",".join(map(str, row)) for row in rows) + "\n"


def test_poletele(folders, zipped):
    rows = rows_of([7, 72, 0, 5.64, 28.2, 34.4, *range(16)], [7, 71, 1, 6.64, 29.2, 35.4, *range(16)])
    place(folders[0], "poletele", zipped(**{"parkinsons_updrs.data": f"{PARKINSONS}\n{rows}", "names": "text"}))
    X, y = datasets.load("poletele")
    assert y.tolist() == [34.4, 35.4]
    assert X.tolist() == [[72, 0, 28.2, *range(16)], [71, 1, 29.2, *range(16)]]


def test_bike(folders, zipped):
    middle = [1, 0, 1, 23, 0, 6, 0, 1, 0.24, 0.28, 0.81, 0.0]
    rows = rows_of([1, "2011-01-01", *middle, 3, 13, 16], [2, "2011-01-31", *middle, 8, 32, 40])
    place(folders[0], "bike", zipped(**{"hour.csv": f"{HOURS}\n{rows}", "day.csv": "instant,cnt\n1,2\n"}))
    X, y = datasets.load("bike")
    assert y.tolist() == [16, 40]
    assert X.tolist() == [[1, *middle], [31, *middle]]  # the day of the month


def test_protein(folders, zipped):
    rows = rows_of([17.284, *range(9)], [6.021, *range(9)])
    place(folders[0], "protein", zipped(**{"CASP.csv": f"RMSD,F1,F2,F3,F4,F5,F6,F7,F8,F9\n{rows}"}))
    X, y = datasets.load("protein")
    assert y.tolist() == [17.284, 6.021]
    assert X.tolist() == [list(range(9))] * 2


def test_ctslice(folders, zipped):
    header = ",".join(["patientId", *(f"value{k}" for k in range(384)), "reference"])
    table = f"{header}\n{rows_of([5, *range(384), 21.8])}"
    place(folders[0], "ctslice", zipped(**{"slice_localization_data.csv": table}))
    X, y = datasets.load("ctslice")
    assert y.tolist() == [21.8]
    assert set(range(384)) - set(X[0]) == {59, 69, 179, 189, 279, 351}


def test_road3d_has_no_header(folders, zipped):
    rows = rows_of([144552912, 9.3498486, 56.7408757, 17.0527715677876], [144552912, 9.35, 56.74, 17.6])
    place(folders[0], "road3d", zipped(**{"3D_spatial_network.txt": rows}))
    X, y = datasets.load("road3d")
    assert y.tolist() == [17.0527715677876, 17.6]
    assert X.tolist() == [[9.3498486, 56.7408757], [9.35, 56.74]]


def test_song_has_no_header(folders, zipped):
    place(folders[0], "song", zipped(**{"YearPredictionMSD.txt": rows_of([2001, *range(90)], [1992, *range(90)])}))
    X, y = datasets.load("song")
    assert y.tolist() == [2001, 1992]
    assert X.tolist() == [list(range(90))] * 2


def test_houseelectric_from_semicolons_and_question_marks(folders, zipped):
    text = (
        f"{POWER}\n"
        "16/12/2006;17:24:00;4.216;0.418;234.840;18.400;0.000;1.000;17.000\n"
        "28/4/2007;00:21:00;?;?;?;?;?;?;\n"
        "1/2/2008;00:00:00;0.600;0.100;240.000;2.500;1.000;2.000;3.000\n"
        "31/12/2008;23:59:00;0.600;0.100;240.000;2.500;1.000;2.000;3.000\n"
    )
    place(folders[0], "houseelectric", zipped(**{"household_power_consumption.txt": text}))
    raw = datasets.load_raw("houseelectric")
    assert list(raw.columns[:2]) == ["date_time", "Global_active_power"]
    assert raw["date_time"].tolist()[2] == pd.Timestamp("2008-02-01")  # day first
    assert not [kind for kind in raw.dtypes.astype(str) if not kind.startswith(("float", "datetime"))]
    X, y = datasets.load("houseelectric")
    np.testing.assert_allclose(y, [4.216 * 1000 / 60 - 18, 10 - 6, 10 - 6])
    np.testing.assert_allclose(X[0], [350 / 365, 17 * 60 + 24, 0.418, 234.84, 18.4, 0, 1, 17])
    np.testing.assert_allclose(X[1:, :2], [[32 / 365, 0], [366 / 365, 23 * 60 + 59]])


def test_houseelectric_from_parquet_leaves_out_minutes_filled_from_the_day_before(folders):
    values = pd.DataFrame(np.ones((4, 7)), columns=POWER.split(";")[2:])
    values.insert(0, "date_time", pd.date_range("2007-01-01", periods=4, freq="min"))
    values["Voltage"] = [240.0, 241.0, 242.0, 243.0]
    values.to_parquet(folders[0] / "houseelectric.parquet")
    with pytest.raises(FileError, match=r"prev_day_copies.parquet is missing.*Put it beside"):
        datasets.load("houseelectric")
    copies = pd.DataFrame({"row": [1, 2], "likely_coincidence": [False, True]})
    copies.to_parquet(folders[0] / "houseelectric_prev_day_copies.parquet")
    X, y = datasets.load("houseelectric", as_frame=True)
    assert X["Voltage"].tolist() == [240, 242, 243]
    assert X.index.tolist() == y.index.tolist() == [0, 1, 2]
    assert len(datasets.load_raw("houseelectric")) == 4


def test_covtype_is_compressed_twice(folders, zipped):
    table = gzip.compress(rows_of([2596, *range(53), 5]).encode())
    place(folders[0], "covtype", zipped(**{"covtype.data.gz": table, "old_covtype.info": "text"}))
    X, y = datasets.load("covtype")
    assert y.tolist() == [2596]
    assert X.tolist() == [list(range(53))]


def test_blogfeedback_is_in_many_files(folders, zipped):
    files = {
        "blogData_train.csv": rows_of([*range(280), 7], [*range(280), 0]),
        "blogData_test-2012.02.01.00_00.csv": rows_of([*range(280), 1]),
    }
    place(folders[0], "blogfeedback", zipped(**files))
    X, y = datasets.load("blogfeedback")
    np.testing.assert_allclose(y, np.log1p([1, 7, 0]))  # in the order of their names
    assert X.shape == (3, 280)
    assert datasets.load_raw("blogfeedback")["source_file"].tolist()[0].startswith("blogData_test")


@pytest.mark.parametrize(
    ("name", "target"), [("britain_magnetic", "total_field_anomaly_nt"), ("egm96_geoid", "geoid_height_cm")]
)
def test_places_on_a_map(folders, name, target):
    frame = pd.DataFrame({"altitude_m": [800.0], "latitude": [53.5], "longitude": [-1.7], target: [62]})
    frame.to_parquet(folders[0] / f"{name}.parquet")
    X, y = datasets.load(name)
    assert X.tolist() == [[-1.7, 53.5]]
    assert y.tolist() == [62]


def test_kegg_is_raw(folders, zipped):
    rows = rows_of(["some pathway", *range(23)], ["another", *range(22), "?"])
    place(folders[0], "kegg_directed", zipped(**{"Relation Network (Directed).data": rows}))
    raw = datasets.load_raw("kegg_directed")
    assert raw.shape == (2, 24)
    assert np.isnan(raw.iloc[1, -1])
    with pytest.raises(InvalidInputError, match=r"which column is the target.*load_raw\('kegg_directed'\)"):
        datasets.load("kegg_directed")
    rows = rows_of(["some pathway", *range(28)])
    place(folders[0], "kegg_undirected", zipped(**{"Reaction Network (Undirected).data": rows}))
    assert datasets.load_raw("kegg_undirected").shape == (1, 29)


def test_buzz_is_a_tar_in_a_zip(folders, zipped):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (
            ("regression/TomsHardware/TomsHardware.data", "1,2,3\n"),
            ("regression/Twitter/Twitter.data", rows_of([*range(77), 500.5])),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    place(folders[0], "buzz", zipped(**{"regression.tar.gz": packed.getvalue()}))
    raw = datasets.load_raw("buzz")
    assert raw.shape == (1, 78)
    assert raw["Annotation"].tolist() == [500.5]
    with pytest.raises(InvalidInputError, match="extremely large values"):
        datasets.load("buzz")


def test_parquet_and_the_original_give_the_same(folders, zipped):
    frame = pd.DataFrame([[1, 9.0, 56.0, 17.0], [2, 9.1, 56.1, 18.0]], columns=datasets.info("road3d").columns)
    archive = place(folders[0], "road3d", zipped(**{"3D_spatial_network.txt": frame.to_csv(header=False, index=False)}))
    original = datasets.load("road3d")
    archive.unlink()
    frame.to_parquet(folders[0] / "road3d.parquet")
    for one, other in zip(original, datasets.load("road3d"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_arrays_and_frames_hold_the_same(folders, zipped):
    place(folders[0], "song", zipped(**{"YearPredictionMSD.txt": rows_of([2001, *range(90)])}))
    X, y = datasets.load("song")
    X_frame, y_series = datasets.load("song", as_frame=True)
    assert (X.dtype, y.dtype) == (float, float)
    assert X.flags.c_contiguous
    assert X.flags.writeable
    assert y_series.name == "year"
    assert list(X_frame.columns[:2]) == ["timbre_0", "timbre_1"]
    np.testing.assert_array_equal(X, X_frame)


# --- files that are not what they should be ---------------------------------------------------------------------------


def test_too_few_rows_are_said(folders, zipped):
    place(folders[0], "song", zipped(**{"YearPredictionMSD.txt": rows_of([2001, *range(90)])}))
    with pytest.warns(GPnnWarning, match=r"gives 1 rows, and song should have 515,345"):
        datasets.load("song")


def test_a_missing_column_is_named(folders, zipped):
    header = PARKINSONS.replace("total_UPDRS", "UPDRS")
    path = place(folders[0], "poletele", zipped(**{"parkinsons_updrs.data": f"{header}\n{rows_of(range(22))}"}))
    with pytest.raises(
        FileError, match=r"lacks 1 columns that the recipe needs: total_UPDRS. It has: subject#"
    ) as error:
        datasets.load("poletele")
    assert str(path) in str(error.value)


def test_a_missing_input_is_noticed(folders, zipped):
    header = PARKINSONS.removesuffix(",PPE")
    place(folders[0], "poletele", zipped(**{"parkinsons_updrs.data": f"{header}\n{rows_of(range(21))}"}))
    with pytest.raises(FileError, match="18 inputs were found, and poletele has 19"):
        datasets.load("poletele")


def test_a_headerless_table_must_have_its_columns(folders, zipped):
    place(folders[0], "road3d", zipped(**{"3D_spatial_network.txt": "1,2,3\n"}))
    with pytest.raises(FileError, match="has 3 columns where road3d has 4: osm_id, longitude"):
        datasets.load("road3d")


def test_an_archive_of_something_else(folders, zipped):
    place(folders[0], "road3d", zipped(**{"holiday.txt": "1,2,3,4\n"}))
    with pytest.raises(FileError, match=r"holds no 3D_spatial_network.txt, but: holiday.txt"):
        datasets.load("road3d")


def test_a_truncated_archive(folders, zipped):
    rows = rows_of(*np.random.default_rng(0).normal(size=(500, 4)))
    path = place(folders[0], "road3d", zipped(**{"3D_spatial_network.txt": rows})[:-500])
    with pytest.raises(FileError, match=r"cannot be read: .*truncated, damaged.*move it away and load again"):
        datasets.load("road3d")
    assert path.exists()


def test_a_truncated_parquet(folders):
    path = folders[0] / "road3d.parquet"
    pd.DataFrame(np.ones((50, 4)), columns=datasets.info("road3d").columns).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FileError, match=r"road3d.parquet cannot be read"):
        datasets.load("road3d")


# --- the real ones ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in datasets.names() if datasets.info(name).tried])
def test_the_real_data_have_the_sizes_that_the_registry_says(name, monkeypatch, recwarn):
    if not Path(REAL).is_dir() or not (Path(REAL) / datasets.info(name).parquet).exists():
        pytest.skip("no data directory: set GPNN_DATA_DIR to run this")
    monkeypatch.setenv("GPNN_DATA_DIR", str(REAL))
    X, y = datasets.load(name)
    assert X.shape == (datasets.info(name).n, datasets.info(name).d)
    assert y.shape == (len(X),)
    assert np.isfinite(X).all()
    assert np.isfinite(y).all()
    assert y.std() > 0
    assert not recwarn.list  # the file is the one whose checksum the registry knows
