"""Several columns as targets: each is answered as if it were alone, from one table and one file."""

import json

import numpy as np
import pytest
from sklearn.base import clone

from gpnn import TableModel
from gpnn.cli import main
from gpnn.errors import FileError, InvalidInputError
from gpnn.files import model as model_file


@pytest.fixture
def train(make_frame):
    frame = make_frame(400)
    frame["rent"] = 3 * frame["price"] + np.cos(frame["size"])
    frame.loc[::5, "rent"] = np.nan
    return frame


@pytest.fixture
def new(train, make_frame, tmp_path):
    frame = make_frame(50, seed=1)
    frame["rent"] = 3 * frame["price"] + np.cos(frame["size"])
    frame.loc[:9, "rent"] = np.nan
    frame.to_csv(tmp_path / "new.csv", index=False)
    return frame


@pytest.fixture
def model(train, quick_regressor):
    regressor = quick_regressor.set_params(shared_metric=False)
    return TableModel.fit(train, ["price", "rent"], regressor=regressor, ignore=["street"])


def test_each_target_is_answered_as_if_it_were_alone(train, new, model, quick_regressor):
    known = train[train["rent"].notna()]
    alone = TableModel.fit(known, "rent", regressor=clone(quick_regressor), ignore=["street", "price"])
    found = model.predict(new).to_pandas()
    expected = alone.predict(new).to_pandas()
    assert list(found)[:6] == ["price_mean", "price_sd", "price_lower", "price_upper", "price_support", "rent_mean"]
    for name in ("mean", "sd", "lower", "upper"):
        np.testing.assert_allclose(found[f"rent_{name}"], expected[name], rtol=1e-5)
        np.testing.assert_array_equal(model.of("rent").predict(new)[name], found[f"rent_{name}"])
    scores = model.evaluate(new)
    assert (scores["price"]["rows"], scores["rent"]["rows"]) == (50, 40)
    assert scores["rent"]["rmse"] == pytest.approx(alone.evaluate(new, missing="drop")["rmse"], rel=1e-5)


def test_the_file_names_all_of_them(model, new, tmp_path):
    model.save(tmp_path / "model.gpnn")
    loaded = TableModel.load(tmp_path / "model.gpnn")
    assert loaded.targets == ("price", "rent")
    assert loaded.predict(new).equals(model.predict(new))
    model.of("rent").save(tmp_path / "rent.gpnn")
    assert TableModel.load(tmp_path / "rent.gpnn").target == "rent"
    model_file.write(tmp_path / "odd.gpnn", model.regressor, model.schema() | {"target": ["price"]})
    with pytest.raises(FileError, match="nothing of its columns"):
        TableModel.load(tmp_path / "odd.gpnn")


def test_new_rows_and_new_outcomes_are_for_all(model, new):
    before = model.predict(new).to_pandas()
    model.recalibrate(new, missing="drop")
    factors = [one.recalibration_["factor"] for one in model.regressor.targets_]
    after = model.predict(new).to_pandas()
    for name, factor in zip(("price", "rent"), factors, strict=True):
        inside = before[f"{name}_support"] >= 0.01 if before[f"{name}_support"].notna().all() else slice(None)
        ratio = (after[f"{name}_sd"] / before[f"{name}_sd"])[inside]
        np.testing.assert_allclose(ratio, np.sqrt(factor), rtol=1e-6)
    model.partial_fit(new)
    assert [one._n_left for one in model.regressor.targets_] == [450, 360]


def test_what_is_asked_of_one_must_say_which(model):
    with pytest.raises(InvalidInputError, match=r"price, rent.*--target"):
        model.of()
    with pytest.raises(InvalidInputError, match="'area' is not among them"):
        model.of("area")
    assert model.of("rent").of() is not model


@pytest.mark.parametrize("targets", [[], ["price", "price"]])
def test_targets_must_differ(targets, train, quick_regressor):
    with pytest.raises(InvalidInputError, match="Name one target"):
        TableModel.fit(train, targets, regressor=quick_regressor)


def test_commands(model, new, tmp_path, capsys):
    file, table, out = (str(tmp_path / name) for name in ("model.gpnn", "new.csv", "other.gpnn"))
    model.save(file)

    def told(*words: str) -> dict:
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert told("evaluate", file, table)["rent"]["rows"] == 40
    assert told("inspect", file)["target"] == ["price", "rent"]
    assert set(told("update", file, table, "--out", out)["factor"]) == {"price", "rent"}
    assert told("recalibrate", file, table, "--drop-missing", "--out", out)["rent"]["rows"] == 40
    assert len(told("explain", file, table, "--target", "rent", "--rows", "2")) == 2
    assert main(["evaluate", file, table]) == 0
    assert capsys.readouterr().out.count("coverage_90") == 2
    assert main(["sample", file, table]) == 2
    assert "--target price" in capsys.readouterr().err
