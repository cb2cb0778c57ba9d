"""What rows to come will be like: said by a column, or noticed and told."""

import warnings

import numpy as np
import pandas as pd
import pytest

from gpnn import GPnnRegressor, TableModel, persistence
from gpnn.cli import main
from gpnn.errors import FileError, GPnnWarning, InvalidInputError
from gpnn.tables import reading

N = 240


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    subject = rng.integers(0, 24, N)
    frame = pd.DataFrame(
        {
            "subject": [f"p{k}" for k in subject],
            "day": pd.Timestamp("2022-03-01") + pd.to_timedelta(rng.integers(0, 300, N), "D"),
            "a": rng.normal(size=N),
            "b": rng.normal(size=N),
        }
    )
    return frame.assign(y=np.sin(frame["a"]) + 0.3 * subject / 24 + 0.1 * rng.normal(size=N))


@pytest.fixture
def fits(monkeypatch):
    """What `GPnnRegressor.fit` is given; nothing is learned."""
    given = []

    def fit(self, X, y, **more):
        given.append({"X": X, "y": y} | more)
        return self

    monkeypatch.setattr(GPnnRegressor, "fit", fit)
    return given


def same_groups(found, labels) -> bool:
    """Whether rows have the same number exactly where they have the same label."""
    return len(set(zip(found, labels, strict=True))) == len(set(found)) == len(set(labels))


def said(frame, **options) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TableModel.fit(frame, "y", **options)
    return [str(warning.message) for warning in caught if issubclass(warning.category, GPnnWarning)]


# --- group and time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_groups_come_with_their_rows_and_are_no_input(table, fits, tmp_path, monkeypatch, ending):
    monkeypatch.setattr(reading, "BATCH_ROWS", 37)  # labels keep their numbers from batch to batch
    table.loc[[3, 50], "a"] = np.nan
    table.loc[7, "y"] = np.nan
    path = tmp_path / f"t.{ending}"
    if ending != "frame":
        {"csv": table.to_csv, "parquet": table.to_parquet}[ending](path, index=False)
    model = TableModel.fit(table if ending == "frame" else path, "y", group="subject", missing="drop")
    kept = table.drop([3, 7, 50])
    assert model.encoder.inputs == ["day", "a", "b"]
    assert same_groups(fits[0]["groups"], kept["subject"])
    np.testing.assert_array_equal(fits[0]["y"], kept["y"])
    assert "times" not in fits[0]


@pytest.mark.parametrize(
    "column",
    [
        lambda subject: subject.str[1:].astype(int),
        lambda subject: subject.str[1:].astype(float) / 3,
        lambda subject: subject.astype("category"),
        lambda subject: pd.Timestamp("2020-01-01") + pd.to_timedelta(subject.str[1:].astype(int), "D"),
    ],
    ids=["integers", "floats", "categories", "dates"],
)
def test_groups_of_any_type(table, fits, column):
    TableModel.fit(table.assign(subject=column(table["subject"])), "y", group="subject")
    assert same_groups(fits[0]["groups"], table["subject"])


@pytest.mark.parametrize(
    "column",
    [
        lambda day: day,
        lambda day: day.dt.strftime("%Y-%m-%d"),
        lambda day: day.dt.tz_localize("Asia/Tokyo"),
        lambda day: day.dt.date,
        lambda day: (day - pd.Timestamp("2000-01-01")).dt.days,
    ],
    ids=["timestamps", "texts", "zones", "dates", "numbers"],
)
@pytest.mark.parametrize("in_csv", [False, True])
def test_times_are_numbers_or_dates(table, fits, tmp_path, column, in_csv):
    frame = table.assign(day=column(table["day"]))
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = TableModel.fit(tmp_path / "t.csv" if in_csv else frame, "y", time="day")
    assert "day" in model.encoder.inputs
    order = np.argsort(fits[0]["times"], kind="stable")
    np.testing.assert_array_equal(order, np.argsort(table["day"].to_numpy(), kind="stable"))


def test_a_time_may_be_a_duration(table, fits):
    TableModel.fit(table.assign(day=table["day"] - table["day"].min()), "y", time="day")
    np.testing.assert_array_equal(fits[0]["times"] / 86_400, (table["day"] - table["day"].min()).dt.days)


def test_a_time_may_be_ignored_as_an_input(table, fits):
    model = TableModel.fit(table, "y", time="day", ignore=["day"])
    assert model.encoder.inputs == ["subject", "a", "b"]
    assert len(set(fits[0]["times"])) == table["day"].nunique()
    assert TableModel.fit(table, "y", time="day", features=["a"]).encoder.inputs == ["a"]


@pytest.mark.parametrize(("option", "name"), [("group", "subject"), ("time", "day")])
def test_rows_without_group_or_time(table, fits, option, name):
    table.loc[[3, 5], name] = None
    with pytest.raises(InvalidInputError, match=rf"in 2 rows, by column: {name} \(2\)"):
        TableModel.fit(table, "y", **{option: name})
    for missing in ("drop", "impute"):  # nobody can guess a group, and a guessed time would judge wrongly
        with pytest.warns(GPnnWarning, match=f"2 of {N} rows were left out: a value is missing in {name}"):
            TableModel.fit(table, "y", missing=missing, **{option: name})
        assert len(fits[-1]["y"]) == len(fits[-1][f"{option}s"]) == N - 2
        assert not np.isnan(fits[-1][f"{option}s"]).any()


def test_a_group_that_is_not_a_number(table, fits, tmp_path):
    frame = table.assign(subject=np.where(np.arange(N) == 4, np.nan, table["subject"].str[1:].astype(float)))
    frame.to_parquet(tmp_path / "t.parquet")  # NaN stays NaN there, and is no label
    with pytest.raises(InvalidInputError, match=r"subject \(1\)"):
        TableModel.fit(tmp_path / "t.parquet", "y", group="subject")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group": "subjekt"}, r"no column 'subjekt'. Did you mean 'subject'.*--group"),
        ({"time": "dai"}, r"no column 'dai'. Did you mean 'day'.*--time"),
        ({"group": "y"}, "'y' is the target; it cannot be the group"),
        ({"time": "y"}, "'y' is the target; it cannot be the time"),
        ({"group": "subject", "time": "day"}, "group or time, not both"),
        ({"group": "subject", "features": ["subject", "a"]}, "'subject' cannot be a feature"),
        ({"time": "subject"}, "'subject' .* neither numbers nor dates"),
        ({"time": "clock"}, "'clock' is a time of day"),
        ({"time": "empty"}, "No row has a value in 'empty'"),
        ({"group": "subject", "ignore": ["day", "a", "b", "clock", "empty"]}, "no column to learn"),
    ],
)
def test_what_cannot_say_it_is_explained(options, reason, table, fits):
    table = table.assign(clock=table["day"].dt.strftime("%m:00"), empty=pd.Series([None] * N, dtype=object))
    with pytest.raises(InvalidInputError, match=reason):
        TableModel.fit(table, "y", **({"ignore": ["clock", "empty"]} | options))
    assert not fits


def test_a_model_remembers_what_was_said(table, few_steps, tmp_path):
    regressor = GPnnRegressor(kernel="exponential", whitening="diagonal", n_neighbors=16, random_state=0, n_jobs=1)
    model = TableModel.fit(table, "y", regressor=regressor, group="subject")
    model.save(tmp_path / "m.gpnn")
    loaded = TableModel.load(tmp_path / "m.gpnn")
    assert (loaded.group, loaded.time) == ("subject", None)
    new = table.drop(columns="subject")[:20]  # a group is not needed to predict
    assert loaded.predict(new).equals(model.predict(new))
    older = {name: value for name, value in model.schema().items() if name not in ("group", "time")}
    persistence.write(tmp_path / "older.gpnn", model.regressor, schema=older)
    assert TableModel.load(tmp_path / "older.gpnn").group is None
    persistence.write(tmp_path / "wrong.gpnn", model.regressor, schema=older | {"time": 3})
    with pytest.raises(FileError, match="fit again"):
        TableModel.load(tmp_path / "wrong.gpnn")


def test_the_command_line_says_it(table, few_steps, tmp_path, capsys):
    table.to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "m.gpnn"), "--jobs", "1"]
    assert main([*command, "--neighbors", "16", "--kernel", "exponential", "--time", "day", "--ignore", "subject"]) == 0
    written = capsys.readouterr()
    assert "looks like" not in written.err
    assert [line.split() for line in written.out.splitlines() if line.startswith("time")] == [["time", "day"]]
    with pytest.raises(SystemExit) as stop:
        main([*command, "--group", "subject", "--time", "day"])
    assert stop.value.code == 2
    assert main([*command, "--group", "subject", "--paper"]) == 2
    assert "groups says how to hold out" in capsys.readouterr().err


# --- what is noticed --------------------------------------------------------------------------------------------------


def test_labels_and_times_are_noticed_in_one_line(table, fits):
    assert said(table) == [
        "Column 'subject' looks like a label of groups, 'day' like a time: rows to come are taken to be like random "
        "rows of this table. If they will be of new groups or later, say --group subject or --time day "
        "(group='subject' or time='day' in Python)."
    ]
    (line,) = said(table.rename(columns={"subject": "Customer ID"}).drop(columns="day"))
    assert line.startswith("Column 'Customer ID' looks like a label of groups: ")
    assert line.endswith("of new groups, say --group 'Customer ID' (group='Customer ID' in Python).")
    (line,) = said(table, ignore=["subject", "day"])  # who leaves them out has the same question to answer
    assert "'subject'" in line
    assert not said(table, group="subject")
    assert not said(table, time="day")


@pytest.mark.parametrize(
    "name", ["id", "ID", "patient", "Users", "store_id", "trip.id", "stationId", "STATION", "deviceID", " site "]
)
@pytest.mark.parametrize("of", [str, int])
def test_names_of_labels(name, of, table, fits):
    labels = table["subject"].str[1:].astype(int).astype(of)
    assert "label of groups" in said(table[["a", "y"]].assign(**{name: labels}))[0]


@pytest.mark.parametrize("name", ["date", "Time", "datetime", "time_stamp", "timestamp"])
def test_names_of_times(name, table, fits, tmp_path):
    days = (table["day"] - table["day"].min()).dt.days
    assert "looks like a time" in said(table[["a", "y"]].assign(**{name: days}))[0]
    table[["a", "y"]].assign(**{name: table["day"]}).to_csv(tmp_path / "t.csv", index=False)
    assert "looks like a time" in said(tmp_path / "t.csv")[0]


@pytest.mark.parametrize(
    "name",
    ["time_to_event", "lifetime", "user_age", "age_group", "store_size", "candidate", "covid", "acid", "valid",
     "humid", "width", "sites_nearby", "update", "runtime"],
)  # fmt: skip
def test_names_of_neither(name, table, fits):
    labels = table["subject"].str[1:].astype(int)
    assert said(table[["a", "y"]].assign(**{name: labels})) == []


@pytest.mark.parametrize(
    "column",
    [
        {"id": np.arange(N)},  # names rows
        {"group": np.arange(N) % 2},  # too few to hold some out: a treatment
        {"site": np.arange(N) % 30 / 7},  # measured
        {"time": np.array(["early", "late", "noon", "eve", "never"])[np.arange(N) % 5]},
        {"time": np.arange(N) % 3},
        {"birth_date": pd.Timestamp("1980-01-01") + pd.to_timedelta(np.arange(N), "D")},
        {"opens": [f"{k % 24:02d}:00" for k in range(N)]},
    ],
    ids=["unique", "few", "fractions", "words", "few times", "births", "times of day"],
)
def test_values_that_say_neither(column, table, fits):
    assert said(table[["a", "y"]].assign(**column), ignore=["id"] if "id" in column else []) == []


def test_nothing_is_noticed_where_nothing_can_be_said(table, quick_regressor, fits):
    assert said(table, regressor=quick_regressor) == []  # parameters are given
    assert said(table, regressor=GPnnRegressor(holdout="patches")) == []
    assert said(table, regressor=GPnnRegressor.paper()) == []


# --- rows outside the support -----------------------------------------------------------------------------------------


@pytest.fixture
def near(few_steps):
    """A model that knows where its support ends, and random rows."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.uniform(-1, 1, (900, 2)), columns=["u", "v"])
    frame["w"] = np.sin(3 * frame["u"]) + frame["v"] + 0.1 * rng.normal(size=900)
    regressor = GPnnRegressor(kernel="rbf", whitening="diagonal", n_neighbors=32, random_state=0, n_jobs=1)
    return TableModel.fit(frame[:600], "w", regressor=regressor), frame[600:]


def test_support_is_the_last_column(near, tmp_path, monkeypatch):
    model, new = near
    found = model.predict(new).to_pandas()
    assert list(found) == ["mean", "sd", "lower", "upper", "support"]
    np.testing.assert_array_equal(
        found["support"], model.regressor.predict_distribution(model.read_rows(new)[0]).support
    )
    assert 0.3 < found["support"].mean() < 0.7
    holes = new.reset_index(drop=True)
    holes.loc[4, "u"] = np.nan
    with pytest.warns(GPnnWarning, match="1 of 300 rows have no prediction"):
        assert model.predict(holes, missing="drop")["support"].null_count == 1
    with pytest.raises(InvalidInputError, match=r"must differ .* support"):
        model.predict(new.assign(support=1.0), keep=["support"])


def test_a_model_without_a_far_part_knows_no_support(model, make_frame):
    new = make_frame(20, seed=1)
    assert model.predict(new)["support"].null_count == 20
    assert model.evaluate(new)["outside_support"] is None


def test_rows_outside_are_told_once(near, monkeypatch):
    monkeypatch.setattr(reading, "BATCH_ROWS", 50)
    model, new = near
    with pytest.warns(GPnnWarning, match="300 of 300 rows lie outside the support.*--group or --time") as caught:
        model.predict(new.assign(u=9.0))
    assert len(caught) == 1
    with pytest.warns(GPnnWarning, match="gpnn recalibrate") as caught:
        assert model.evaluate(new.assign(u=9.0))["outside_support"] == 1
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.evaluate(new)["outside_support"] < 0.1


def test_evaluate_prints_the_share_outside_and_its_cure(near, tmp_path, capsys):
    model, new = near
    model.save(tmp_path / "m.gpnn")
    new.assign(u=9.0).to_csv(tmp_path / "far.csv", index=False)
    assert main(["evaluate", str(tmp_path / "m.gpnn"), str(tmp_path / "far.csv")]) == 0
    written = capsys.readouterr()
    assert [line.split()[:2] for line in written.out.splitlines()][-1] == ["outside_support", "1"]
    assert written.err.count("outside the support") == 1
