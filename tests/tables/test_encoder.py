import json
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from gpnn import TableEncoder
from gpnn.errors import GPnnWarning, InvalidInputError
from gpnn.tables.reading import open_table


def encode(train: dict, new: dict | None = None, y=None, **settings):
    """Encoded columns by name."""
    encoder = TableEncoder(**settings).fit(pd.DataFrame(train), y)
    rows = encoder.transform(pd.DataFrame(new if new is not None else train))
    return dict(zip(encoder.outputs, rows.T, strict=True))


def test_numbers_stay_as_they_are():
    train = {
        "float": [0.5, -2.25, 1e300],
        "int": [1, 2, 3],
        "big": np.array([2**63, 1, 2], np.uint64),
        "bool": [True, False, True],
        "wait": pd.to_timedelta([1, 90, 2.5], "s"),
    }
    found = encode(train)
    np.testing.assert_array_equal(found["float"], train["float"])
    np.testing.assert_array_equal(found["big"], [2.0**63, 1, 2])
    np.testing.assert_array_equal(found["bool"], [1, 0, 1])
    np.testing.assert_array_equal(found["wait"], [1, 90, 2.5])


def test_dates_are_days_and_the_cycles_they_go_through():
    hourly = pd.date_range("2020-01-01", periods=24 * 4, freq="h")
    assert set(encode({"t": hourly})) == {"t.days", "t.day_sin", "t.day_cos"}
    daily = pd.date_range("2020-01-01", periods=30, freq="D")
    assert set(encode({"t": daily})) == {"t.days", "t.week_sin", "t.week_cos"}
    fridays = pd.date_range("2020-01-03", periods=30, freq="7D")
    assert set(encode({"t": fridays})) == {"t.days"}
    years = pd.date_range("2020-01-01", periods=1000, freq="D")
    found = encode({"t": years})
    assert set(found) == {"t.days", "t.week_sin", "t.week_cos", "t.year_sin", "t.year_cos"}
    np.testing.assert_allclose(found["t.days"], 18262 + np.arange(1000))
    np.testing.assert_allclose(found["t.week_sin"] ** 2 + found["t.week_cos"] ** 2, 1)
    np.testing.assert_allclose(found["t.week_sin"][:7], found["t.week_sin"][7:14], atol=1e-9)


def test_the_same_moment_is_the_same_number_however_it_is_written():
    texts = ["2020-01-01T12:00:00", "2020-03-05T00:00:00", "2020-05-06T06:00:00"]
    moments = pd.to_datetime(texts)
    expected = encode({"t": moments})
    for written in (
        texts,
        [text.replace("T", " ") for text in texts],
        [f"{text}Z" for text in texts],
        moments.tz_localize("UTC").tz_convert("Asia/Tokyo"),
        moments.as_unit("s"),
        [f"{text}.000" for text in texts],
    ):
        found = encode({"t": moments}, {"t": written})
        for name, column in expected.items():
            np.testing.assert_allclose(found[name], column, atol=1e-9)
    assert next(iter(encode({"t": pd.Series(moments.date)}))) == "t.days"


def test_a_time_of_day_goes_round():
    found = encode({"t": ["00:00", "06:00:00", "12:00", "18:00"]})
    np.testing.assert_allclose(found["t.day_sin"], [0, 1, 0, -1], atol=1e-12)


def test_few_levels_are_zeros_and_ones_and_the_most_frequent_is_none_of_them():
    found = encode({"city": ["Bern", "Aix", "Bern", "Cork"]})
    assert list(found) == ["city=Aix", "city=Cork"]
    np.testing.assert_array_equal(found["city=Aix"], [0, 1, 0, 0])
    np.testing.assert_array_equal(found["city=Cork"], [0, 0, 0, 1])


def test_an_unknown_level_is_the_average_of_the_training_rows():
    with pytest.warns(GPnnWarning, match=r"did not have: city \(in 1 rows\)"):
        found = encode({"city": ["Bern", "Aix", "Bern", "Cork"]}, {"city": ["Rome"]})
    assert (found["city=Aix"], found["city=Cork"]) == (0.25, 0.25)


def test_categories_of_pandas_and_numbers_as_text_are_categories():
    assert list(encode({"zone": pd.Categorical([3, 1, 3])})) == ["zone=1"]
    assert list(encode({"zone": ["3", "1", "3"]})) == ["zone=1"]


def test_many_levels_become_the_mean_target_of_other_rows(rng):
    level = rng.integers(0, 50, 4000)
    effect = rng.normal(size=50)
    y = 10 + effect[level] + 0.1 * rng.normal(size=4000)
    frame = pd.DataFrame({"street": [f"s{k}" for k in level]})
    encoder = TableEncoder()
    inside = encoder.fit_transform(frame, y)[:, 0]
    outside = encoder.transform(pd.DataFrame({"street": [f"s{k}" for k in range(50)]}))[:, 0]
    count = np.bincount(level)
    expected = (np.bincount(level, y) + 10 * y.mean()) / (count + 10)
    np.testing.assert_allclose(outside, expected)
    assert len(np.unique(inside[level == 7])) == 5  # one mean for each fold left out
    with pytest.warns(GPnnWarning, match="street"):
        np.testing.assert_allclose(encoder.transform(pd.DataFrame({"street": ["new"]})), y.mean())


def test_mean_targets_tell_nothing_of_a_rows_own_target(rng):
    """Pure noise: encoded by its own rows, a level would seem to predict them."""
    frame = pd.DataFrame({"street": [f"s{k}" for k in rng.integers(0, 900, 2000)]})
    y = rng.normal(size=2000)
    encoder = TableEncoder()
    inside = encoder.fit_transform(frame, y)[:, 0]
    leaking = encoder.transform(frame)[:, 0]
    assert np.corrcoef(inside, y)[0, 1] < 0.05
    assert np.corrcoef(leaking, y)[0, 1] > 0.3


def test_mean_targets_need_targets():
    with pytest.raises(InvalidInputError, match=r"'street' has 30 levels.*fit\(X, y\)"):
        TableEncoder().fit(pd.DataFrame({"street": [f"s{k % 30}" for k in range(90)]}))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([f"id{k}" for k in range(100)], "100 different texts in 100 rows.*name of rows"),
        (["1,5", "2,75", "-3,0"], "decimal comma"),
        (["31/12/2020", "01/02/2021", "3/4/2021"], "date that is not written as"),
        ([None, None, None], "No row has a value in x"),
        ([[1], [2], [3]], "list"),
        ([b"a", b"b", b"c"], "binary"),
    ],
)
def test_columns_that_would_be_misread_are_refused(values, reason):
    with pytest.raises(InvalidInputError, match=reason):
        TableEncoder().fit(pd.DataFrame({"x": values}))


@pytest.mark.parametrize("values", [["1", "2", "3", "?"], ["2020-01-01", "2020-02-30", "2020-01-03"]])
def test_a_few_texts_among_numbers_are_no_category(values, tmp_path):
    path = tmp_path / "x.csv"
    pd.DataFrame({"x": values * 10, "y": np.arange(10.0 * len(values))}).to_csv(path)
    with pytest.raises(InvalidInputError, match=r"'x' holds '(\?|2020-02-30)' among (numbers|dates).*--categories"):
        TableEncoder().survey(open_table(path), ["x"])
    encoder = TableEncoder(categories=["x"])
    encoder.survey(open_table(path), ["x"])
    assert len(encoder.columns_[0].levels) == len(values)


def test_numbers_can_be_said_to_be_categories():
    train = {"zone": [3, 1, 3, 2], "x": [1.0, 2.0, 3.0, 4.0]}
    assert list(encode(train, categories=["zone"])) == ["zone=1", "zone=2", "x"]
    with pytest.raises(InvalidInputError, match="Did you mean 'zone'"):
        encode(train, categories=["zones"])


def test_missing_values_are_named_and_counted():
    frame = pd.DataFrame({"a": [1.0, None, np.inf, 4.0], "b": ["x", "x", None, "y"], "c": [1, 2, 3, 4]})
    with pytest.raises(InvalidInputError, match=r"in 4 rows, by column: a \(2\), b \(1\)\. .*impute"):
        TableEncoder().fit_transform(frame)


def test_missing_values_are_filled_from_the_training_rows():
    days = pd.date_range("2020-01-01", periods=41, freq="D")
    train = {"a": [*range(40), 1000.0], "flag": [True] * 30 + [False] * 11, "c": ["x"] * 30 + ["y"] * 11, "t": days}
    new = pd.DataFrame(train, dtype=object).iloc[:2].copy()
    new.loc[0] = None
    new = new.convert_dtypes().astype({"t": "datetime64[us]"})
    found = encode(train, new, missing="impute")
    assert (found["a"][0], found["flag"][0], found["c=y"][0]) == (20.0, 1.0, 0.0)
    assert found["t.days"][0] == 18262 + 20
    np.testing.assert_allclose(found["t.week_sin"][0], np.sin(2 * np.pi * (18282 % 7) / 7))
    assert (found["a"][1], found["flag"][1]) == (1.0, 1.0)


def test_missing_values_can_be_kept():
    found = encode({"a": [1.0, None], "b": [None, "x"]}, missing="keep")
    assert np.isnan(found["a"]).tolist() == [False, True]
    assert np.isnan(encode({"b": [None, "x", "y", "x"]}, missing="keep")["b=y"]).tolist() == [True, False, False, False]


def test_the_rule_survives_json(frame, make_frame):
    encoder = TableEncoder().fit(frame.drop(columns="price"), frame["price"])
    restored = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert restored.columns_ == encoder.columns_
    assert restored.to_dict() == encoder.to_dict()
    new = make_frame(50, seed=3)
    np.testing.assert_array_equal(restored.transform(new), encoder.transform(new))


def test_a_later_version_is_refused(frame):
    record = TableEncoder().fit(frame[["size"]]).to_dict()
    with pytest.raises(InvalidInputError, match="version 2"):
        TableEncoder.from_dict(record | {"version": 2})


CHANGES: dict[str, object] = {
    "kind": ["pickle", None, {}, []],
    "name": [None, 3, ["a"]],
    "fill": [[], ["a"], [1.0, 2.0, 3.0], None],
    "levels": [[], [1, 2, 3], None, "abc", ["a"]],
    "shares": [[], ["a", "b", "c"], [1.0], None],
    "means": [[], [1.0], ["a"], None],
    "parts": [[], ["century"], None, [["day"]]],
    "extra": [1],
}


def test_an_altered_rule_is_refused(frame):
    encoder = TableEncoder().fit(frame.drop(columns="price"), frame["price"])
    tried = 0
    for number, column in enumerate(encoder.to_dict()["columns"]):
        for key, values in CHANGES.items():
            for value in values if key in column or key == "extra" else ():
                record = json.loads(json.dumps(encoder.to_dict()))
                record["columns"][number][key] = value
                with pytest.raises(InvalidInputError, match=r"encoding.*fit again"):
                    TableEncoder.from_dict(record)
                tried += 1
    assert tried > 50


def test_it_is_a_transformer_like_others(frame, quick_regressor):
    X, y = frame.drop(columns="price"), frame["price"]
    pipeline = make_pipeline(TableEncoder(max_levels=10), quick_regressor)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GPnnWarning)
        predicted = clone(pipeline).fit(X, y).predict(X)
    assert np.corrcoef(predicted, y)[0, 1] > 0.9
    encoder = TableEncoder().fit(X, y)
    assert len(encoder.get_feature_names_out()) == encoder.transform(X).shape[1]
    np.testing.assert_array_equal(encoder.transform(X[::-1]), encoder.transform(X)[::-1])
    np.testing.assert_array_equal(encoder.transform(X[list(X)[::-1]]), encoder.transform(X))  # columns by name


@pytest.mark.parametrize("settings", [{"max_levels": 0}, {"max_levels": 2.5}, {"missing": "guess"}])
def test_bad_settings_are_explained(settings, frame):
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        TableEncoder(**settings).fit(frame)
