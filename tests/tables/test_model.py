import json
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gpnn import TableModel, metrics, persistence
from gpnn.errors import FileError, GPnnWarning, InvalidInputError
from gpnn.tables import reading


@pytest.fixture
def new(make_frame):
    return make_frame(200, seed=1)


def predicted(model, table, **options) -> pd.DataFrame:
    return model.predict(table, **options).to_pandas()


def test_it_learns_and_knows_what_it_does_not_know(model, new):
    found = predicted(model, new)
    assert list(found) == ["mean", "sd", "lower", "upper", "support"]
    error = new["price"] - found["mean"]
    assert np.sqrt(np.mean(error**2)) < 0.6 * new["price"].std()
    assert 0.8 < np.mean((found["lower"] < new["price"]) & (new["price"] < found["upper"])) <= 1


def test_every_type_of_file_gives_the_same_predictions(model, new, tmp_path):
    expected = model.predict(new)
    for ending in ("csv", "parquet", "feather"):
        path = tmp_path / f"new.{ending}"
        {"csv": new.to_csv, "parquet": new.to_parquet, "feather": new.to_feather}[ending](path)
        assert model.predict(path).equals(expected)


def test_every_type_of_file_gives_the_same_model(frame, model, quick_regressor, tmp_path):
    frame.to_csv(tmp_path / "train.csv")
    frame.to_parquet(tmp_path / "train.parquet")
    for path in tmp_path.iterdir():
        again = TableModel.fit(path, "price", regressor=clone(quick_regressor))
        assert again.schema() == model.schema()
        assert again.predict(frame[:20]).equals(model.predict(frame[:20]))


def test_the_interval_is_that_of_the_regressor(model, new):
    X, _ = model.read_rows(new)
    found = predicted(model, new, coverage=0.5)
    lower, upper = model.regressor.predict_interval(X, 0.5)
    np.testing.assert_array_equal(found["lower"], lower)
    np.testing.assert_array_equal(found["upper"], upper)


def test_a_stream_gives_what_one_batch_gives(model, new, tmp_path, monkeypatch):
    expected = model.predict(new, keep=["street"])
    monkeypatch.setattr(reading, "BATCH_ROWS", 37)
    assert model.predict(new, keep=["street"]).combine_chunks().equals(expected.combine_chunks())


def test_columns_are_found_by_name(model, new):
    shuffled = new[list(new)[::-1]].assign(more=1.0)
    assert model.predict(shuffled).equals(model.predict(new))


def test_evaluate_is_that_of_the_regressor(model, new):
    scores = model.evaluate(new)
    assert scores["rows"] == len(new)
    law = model.regressor.predict_distribution(model.read_rows(new)[0])
    assert scores["rmse"] == pytest.approx(metrics.rmse(new["price"], law))
    scaled = model.evaluate(new, units="whitened")
    assert scaled["rmse"] * model.regressor._target_scale()[1] == pytest.approx(scores["rmse"])


def test_save_and_load(model, model_file, new):
    loaded = TableModel.load(model_file)
    assert loaded.schema() == model.schema()
    assert (loaded.target, loaded.missing) == ("price", "error")
    assert loaded.predict(new).equals(model.predict(new))
    X, y = loaded.read_rows(new)
    np.testing.assert_array_equal(y, new["price"])
    assert list(X) == list(loaded.regressor.feature_names_in_) == loaded.encoder.outputs


def test_a_regressor_without_columns_is_no_table_model(model, tmp_path):
    model.regressor.save(tmp_path / "m.gpnn")
    with pytest.raises(InvalidInputError, match="without column names"):
        TableModel.load(tmp_path / "m.gpnn")


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema.pop("target"),
        lambda schema: schema.update(missing="guess"),
        lambda schema: schema.update(encoder=None),
        lambda schema: schema["encoder"]["columns"].pop(),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(change, model, tmp_path):
    schema = json.loads(json.dumps(model.schema()))
    change(schema)
    persistence.write(tmp_path / "m.gpnn", model.regressor, schema=schema)
    with pytest.raises(FileError, match="fit again"):
        TableModel.load(tmp_path / "m.gpnn")


# --- missing values ---------------------------------------------------------------------------------------------------


@pytest.fixture
def holes(new):
    holes = new.copy()
    holes.loc[3, "size"] = np.nan
    holes.loc[[3, 5], "city"] = None
    return holes


def test_missing_values_stop_a_prediction_by_default(model, holes):
    with pytest.raises(InvalidInputError, match=r"row 4: .* in 2 rows, by column: size \(1\), city \(2\).*--impute"):
        model.predict(holes)


def test_dropped_rows_keep_their_place(model, new, holes):
    with pytest.warns(GPnnWarning, match="2 of 200 rows have no prediction"):
        found = predicted(model, holes, missing="drop")
    assert np.flatnonzero(found["mean"].isna()).tolist() == [3, 5]
    assert np.flatnonzero(found["upper"].isna()).tolist() == [3, 5]
    whole = predicted(model, new)
    pd.testing.assert_frame_equal(found.drop([3, 5]), whole.drop([3, 5]))


def test_imputed_rows_are_predicted_with_the_median(model, frame, new, holes):
    filled = new.copy()
    filled.loc[3, "size"] = frame["size"].median()
    filled.loc[[3, 5], "city"] = frame["city"].mode()[0]
    assert model.predict(holes, missing="impute").equals(model.predict(filled))


@pytest.mark.parametrize("missing", ["impute", "drop"])
def test_a_model_remembers_what_to_do_about_missing_values(missing, holes, quick_regressor):
    with pytest.warns(GPnnWarning) if missing == "drop" else nullcontext():
        model = TableModel.fit(holes, "price", regressor=quick_regressor, missing=missing)
    assert model.regressor.fit_report_["n"] == (198 if missing == "drop" else 200)
    with pytest.warns(GPnnWarning) if missing == "drop" else nullcontext():
        assert model.predict(holes)["mean"].null_count == (2 if missing == "drop" else 0)


def test_nothing_left_to_learn_from(new, quick_regressor):
    with pytest.raises(InvalidInputError, match="has 1 rows to learn from"):
        TableModel.fit(new[["size", "price"]][:1], "price", regressor=quick_regressor)
    empty = new.assign(size=np.nan)
    with pytest.raises(InvalidInputError, match="No row has a value in size"):
        TableModel.fit(empty, "price", regressor=quick_regressor, missing="impute")
    with pytest.warns(GPnnWarning), pytest.raises(InvalidInputError, match="has 0 rows to learn from"):
        TableModel.fit(empty, "price", regressor=quick_regressor, missing="drop")


def test_rows_without_target(new, quick_regressor):
    new.loc[[1, 2], "price"] = np.nan
    with pytest.raises(InvalidInputError, match=r"in 2 rows, by column: price \(2\)"):
        TableModel.fit(new, "price", regressor=quick_regressor)
    with pytest.warns(GPnnWarning, match="2 of 200 rows were left out: a value is missing in price"):
        model = TableModel.fit(new, "price", regressor=quick_regressor, missing="impute")
    assert model.regressor.fit_report_["n"] == 198
    with pytest.warns(GPnnWarning, match="left out"):
        assert model.evaluate(new)["rows"] == 198


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"target": "prise"}, "no column 'prise'. Did you mean 'price'"),
        ({"target": "city"}, "'city'.*where the model needs numbers|'city' is of type"),
        ({"target": "sold"}, "'sold' is of type timestamp"),
        ({"features": ["price"]}, "cannot be a feature"),
        ({"features": ["sise"]}, "Did you mean 'size'"),
        ({"ignore": ["nothing"]}, "no column 'nothing'"),
        ({"ignore": ["size", "rooms", "new", "sold", "city", "street"]}, "no column to learn"),
        ({"missing": "guess"}, "missing = 'guess'"),
    ],
)
def test_what_cannot_be_fitted_is_explained(options, reason, frame, quick_regressor):
    with pytest.raises(InvalidInputError, match=reason):
        TableModel.fit(frame, **{"target": "price", "regressor": quick_regressor} | options)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda new: new.drop(columns="street"), "no column 'street'.*fitted with"),
        (lambda new: new.rename(columns={"city": "City"}), "Did you mean 'City'"),
        (lambda new: new.assign(size="large"), "'size' holds 'large' where the model needs numbers"),
        (lambda new: new.assign(size=new["sold"]), "'size' is of type timestamp.*numbers are needed"),
        (lambda new: new.assign(sold=1.5), "'sold' is of type double.*dates are needed"),
        (lambda new: new.assign(sold="yesterday"), "'sold' holds 'yesterday' where the model needs dates"),
        (lambda new: new.assign(new="maybe"), "'new' holds 'maybe' where the model needs true or false"),
    ],
)
def test_what_cannot_be_predicted_is_explained(change, reason, model, new):
    with pytest.raises(InvalidInputError, match=reason):
        model.predict(change(new))


def test_kept_columns_must_be_such_as_can_be_written(model, new, tmp_path):
    new["list"] = [[1, 2]] * len(new)
    with pytest.raises(InvalidInputError, match=r"cannot be written to .*p.csv.*list"):
        model.predict_file(new, tmp_path / "p.csv", keep=["list"])
    assert not list(tmp_path.iterdir())
    assert model.predict_file(new, tmp_path / "p.parquet", keep=["list"]) == len(new)


def test_no_rows_give_no_predictions(model, new):
    assert model.predict(new[:0]).num_rows == 0
    with pytest.raises(InvalidInputError, match="No row is left"):
        model.evaluate(new[:0])


@pytest.mark.parametrize("keep", [["mean"], ["size", "size"]])
def test_kept_columns_must_have_names_of_their_own(keep, model, new):
    new["mean"] = 1.0
    with pytest.raises(InvalidInputError, match="must differ"):
        model.predict(new, keep=keep)


def test_columns_of_noise_and_weights_are_no_inputs(make_frame, quick_regressor, tmp_path):
    train, new = make_frame(300), make_frame(40, seed=1)
    train["error"], train["count"] = np.where(train.rooms > 4, 1.0, 0.01), np.arange(300) % 3
    model = TableModel.fit(train, "price", regressor=quick_regressor, noise="error", weight="count")
    assert not {"error", "count"} & set(model.encoder.inputs)
    by_hand = model.regressor
    assert by_hand._noise.share.min() == 0.5
    assert len(by_hand._y) == 200  # rows without weight are not there
    model.save(tmp_path / "model.gpnn")
    loaded = TableModel.load(tmp_path / "model.gpnn")
    assert (loaded.noise, loaded.weight) == ("error", "count")
    X_new = loaded.read_inputs(new)
    np.testing.assert_array_equal(loaded.predict(new)["sd"], by_hand.predict(X_new, return_std=True)[1])  # as is usual
    new["error"] = 4.0
    found = loaded.predict(new)["sd"].to_numpy()
    np.testing.assert_allclose(found, by_hand.predict(X_new, return_std=True, noise_variance=4.0)[1])
    assert loaded.evaluate(new)["calibration"] == pytest.approx(
        np.mean((new["price"] - by_hand.predict(X_new)) ** 2 / found**2)
    )
    new.loc[3, "error"] = None
    assert loaded.predict(new, missing="drop")["mean"].null_count == 1
    with pytest.raises(InvalidInputError, match="noise or weights"):
        TableModel.fit(train, "price", noise="nothing")
