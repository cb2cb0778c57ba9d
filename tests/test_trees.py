"""`trees=` end to end: a say in means and widths where judges gain by it, and nothing else changes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

from gpnn import GPnnRegressor, InvalidInputError
from gpnn.stages.mean import Linear

SETTINGS = GPnnRegressor(
    refine=False, whitening="diagonal", n_neighbors=30, calibration_size=800, random_state=0, n_jobs=1
)


@pytest.fixture(scope="module")
def data():
    """A smooth column, and jumps that no distance foresees."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(4000, 4))
    y = 0.3 * np.sin(3 * X[:, 2]) + np.sign(X[:, 0]) * np.sign(X[:, 1] - 0.3) + 0.05 * rng.normal(size=len(X))
    return X[:3000], y[:3000], X[3000:], y[3000:]


@pytest.fixture(scope="module")
def fitted(data):
    return clone(SETTINGS).fit(*data[:2])


@pytest.fixture(scope="module")
def alone(data):
    return clone(SETTINGS).set_params(trees=False).fit(*data[:2])


def test_they_have_a_say(fitted, alone, data):
    told = fitted.fit_report_["trees"]
    assert told["kept"]
    assert 0 < told["weight"] <= 1
    ours, theirs = (model.evaluate(*data[2:]) for model in (fitted, alone))
    assert ours["rmse"] < 0.9 * theirs["rmse"]
    assert ours["nll"] < theirs["nll"] - 0.05
    assert 0.85 < ours["coverage_90"] < 0.95
    assert "trees" not in alone.fit_report_


def test_the_process_is_what_it_is_without(fitted, alone, data):
    without = copy.copy(fitted)
    without._trees = None
    for ours, theirs in zip(*(m.predict(data[2], return_std=True) for m in (without, alone)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_same_whatever_the_threads(fitted, data):
    other = clone(fitted).set_params(n_jobs=2).fit(*data[:2])
    np.testing.assert_array_equal(other._trees.forest.value, fitted._trees.forest.value)
    np.testing.assert_array_equal(other.predict(data[2]), fitted.predict(data[2]))


def test_a_row_alone_and_a_hot_loop(fitted, data):
    X_test = data[2]
    by_one = np.concatenate([fitted.predict(X_test[k : k + 1]) for k in range(5)])
    np.testing.assert_array_equal(by_one, fitted.predict(X_test)[:5])
    np.testing.assert_array_equal(fitted.predictor()(X_test)[0], fitted.predict(X_test))


def test_a_file_holds_them(fitted, data, tmp_path):
    fitted.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    for ours, theirs in zip(*(m.predict_interval(data[2]) for m in (fitted, loaded)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("part", "value"), [("column", 4), ("left", 0), ("left", 10**6), ("roots", -1), ("value", None)]
)
def test_trees_that_lead_astray_are_refused(fitted, tmp_path, part, value):
    """Compiled code follows them without a look."""
    broken, forest = copy.copy(fitted), copy.copy(fitted._trees.forest)
    wrong = getattr(forest, part)[:-1] if value is None else getattr(forest, part).copy()
    if value is not None:
        wrong[0] = value
    object.__setattr__(forest, part, wrong)
    broken._trees = copy.copy(fitted._trees)
    object.__setattr__(broken._trees, "forest", forest)
    with pytest.raises(InvalidInputError, match=r"trees|columns|roots"):
        broken.save(tmp_path / "model.gpnn")


@pytest.fixture(scope="module")
def uneven():
    """Noise that is four times as large in stripes, narrower than neighbourhoods are wide."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(12_000, 3))
    std = np.where(np.floor(4 * X[:, 0]) % 2 > 0, 0.6, 0.15)
    y = np.sin(3 * X[:, 2]) + std * rng.normal(size=len(X))
    return clone(SETTINGS).set_params(calibration_size="auto").fit(X[:8000], y[:8000]), X, y, std


def test_a_say_in_widths(uneven, tmp_path):
    model, X, y, std = uneven
    told = model.fit_report_["widths"]
    assert told["kept"]
    assert told["gain"] > 2 * told["gain_standard_error"]
    new, wide = X[8000:], std[8000:] > 0.5
    without = copy.copy(model)
    without._widths = None

    def off(one):
        """How far from 0.9 the part is that is covered worse."""
        lower, upper = one.predict_interval(new, coverage=0.9)
        inside = (lower <= y[8000:]) & (y[8000:] <= upper)
        return max(abs(np.mean(inside[part]) - 0.9) for part in (wide, ~wide))

    assert off(model) < min(0.1, 0.7 * off(without))
    np.testing.assert_array_equal(without.predict(new), model.predict(new))
    assert model.evaluate(new, y[8000:])["nll"] < without.evaluate(new, y[8000:])["nll"] - 0.02
    far = np.tile([9.0, 0.0, 0.0], (3, 1))  # beyond the support they have none
    np.testing.assert_array_equal(without.predict_distribution(far).variance, model.predict_distribution(far).variance)
    model.save(tmp_path / "model.gpnn")
    law, loaded = (one.predict_distribution(new) for one in (model, GPnnRegressor.load(tmp_path / "model.gpnn")))
    np.testing.assert_array_equal(loaded.variance, law.variance)
    by_one = model.predict_distribution(new[:1])
    assert (by_one.mean[0], by_one.variance[0]) == (law.mean[0], law.variance[0])


def test_widths_that_lead_astray_are_refused(uneven, tmp_path):
    broken, forest = copy.copy(uneven[0]), uneven[0]._widths.forest
    column = np.where(np.arange(len(forest.column)) == 0, 5, forest.column)  # of the law's two and three of the table
    broken._widths = replace(broken._widths, forest=replace(forest, column=column.astype(np.int32)))
    with pytest.raises(InvalidInputError, match="columns"):
        broken.save(tmp_path / "model.gpnn")


def test_no_widths_beside_one_alpha(uneven):
    model, X, y, _ = uneven
    one = clone(model).set_params(calibration="global").fit(X[:3000], y[:3000])
    assert one._widths is None
    assert "widths" not in one.fit_report_


def test_a_line_for_other_columns_is_refused(fitted, tmp_path):
    broken, line = copy.copy(fitted), Linear(np.zeros(3), np.zeros(3))
    broken._trees = replace(fitted._trees, forest=replace(fitted._trees.forest, line=line))
    with pytest.raises(InvalidInputError, match="line"):
        broken.save(tmp_path / "model.gpnn")


@pytest.fixture(scope="module")
def on_a_line():
    """Slopes in many columns, and noise."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(4000, 12))
    y = X @ np.linspace(-0.5, 0.5, 12) + rng.normal(size=len(X))
    return clone(SETTINGS).fit(X[:3000], y[:3000]), X, y


def test_a_line_without_trees(on_a_line, tmp_path):
    model, X, y = on_a_line
    told = model.fit_report_["trees"]
    assert (told["kept"], told["line"], told["trees"]) == (True, True, 0)
    model.save(tmp_path / "line.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "line.gpnn")
    np.testing.assert_array_equal(loaded.predict(X[3000:]), model.predict(X[3000:]))
    ridge = Ridge().fit(X[:3000], y[:3000])
    ours, theirs = (np.sqrt(np.mean((one.predict(X[3000:]) - y[3000:]) ** 2)) for one in (model, ridge))
    assert ours < 1.005 * theirs
    assert ours < 0.99 * clone_without(model).evaluate(X[3000:], y[3000:])["rmse"] * np.std(y[:3000])


def test_weights_and_offset_make_the_mean(fitted, data):
    X = np.vstack([data[2][:20], 3 * data[2][:3]])  # the last ones beyond the support
    found = fitted.explain(X)
    np.testing.assert_allclose(
        found.offset + np.sum(found.weights * data[1][found.indices], axis=1), fitted.predict(X), rtol=1e-4, atol=1e-4
    )
    near = found.weights[:20].sum(axis=1) / clone_without(fitted).explain(X).weights[:20].sum(axis=1)
    inside = fitted.predict_distribution(X).support[:20] > 0.02
    np.testing.assert_allclose(near[inside], 1 - fitted._trees.weight)


def clone_without(fitted):
    without = copy.copy(fitted)
    without._trees = None
    return without


def test_far_away_they_are_not_asked(fitted, alone, data):
    far = 50 * data[2][:20]
    np.testing.assert_array_equal(fitted.predict(far), alone.predict(far))


def test_joint_laws_have_their_marginals(fitted, data):
    X = data[2][:40]
    law, joint = fitted.predict_distribution(X), fitted.predict_distribution(X, joint=True)
    np.testing.assert_allclose(joint.mean, law.mean)
    np.testing.assert_allclose(np.sqrt(np.diag(joint.covariance())), law.std, rtol=1e-6)


def test_rows_come_and_go(fitted, data):
    X_test, y_test = data[2:]
    model = copy.deepcopy(fitted)
    model.partial_fit(X_test[:500], y_test[:500])
    model.forget(np.arange(100))
    ours, before = (one.evaluate(X_test[500:], y_test[500:])["rmse"] for one in (model, fitted))
    assert ours < 1.1 * before


def test_several_targets_have_their_own(data):
    X, y, X_test, _ = data
    model = clone(SETTINGS).set_params(shared_metric=True).fit(X, np.stack([y, np.sin(X[:, 2])], axis=1))
    first, second = (one._trees for one in model.targets_)
    assert first is not None
    assert second is not first
    np.testing.assert_allclose(model.predict(X_test)[:, 0], model.targets_[0].predict(X_test), rtol=1e-5)


def test_not_where_they_were_not_asked_for(data):
    X, y = data[:2]
    few = clone(SETTINGS).fit(X[:400], y[:400])
    assert few._trees is None
    assert few.fit_report_["trees"] == {"kept": False}
    weighted = clone(SETTINGS).fit(X, y, sample_weight=np.linspace(1, 2, len(X)))
    assert weighted._trees is None
    with pytest.raises(InvalidInputError, match="trees"):
        clone(SETTINGS).set_params(trees="yes").fit(X, y)


def test_from_a_stream(data, tmp_path):
    X, y, X_test, _ = data
    parts = [(X[i : i + 500], y[i : i + 500]) for i in range(0, 3000, 500)]
    model = clone(SETTINGS).fit_stream(lambda: iter(parts), tmp_path / "model", memory="1GiB")
    assert model.fit_report_["trees"]["kept"]
    loaded = GPnnRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X_test), model.predict(X_test))


@pytest.fixture(scope="module")
def wide():
    """The process needs two columns; jumps are in one of many more."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3600, 80))
    y = np.sin(2 * X[:, 5]) + X[:, 6] + np.sign(X[:, 40]) * np.sign(X[:, 41]) + 0.05 * rng.normal(size=len(X))
    model = clone(SETTINGS).fit(X[:3000], y[:3000])
    return model, X, y


def test_of_a_wide_table_they_see_all_columns(wide, tmp_path):
    model, X, _ = wide
    assert model.fit_report_["trees"]["kept"]
    seen = np.unique(model._trees.forest.column)[1:]
    assert set(seen) > set(model.columns_) | {40, 41}
    changed = X[3000:3100].copy()
    changed[:, np.setdiff1d(np.arange(80), [*seen, *model.columns_])] = 9.0  # which nobody looks at
    np.testing.assert_array_equal(model.predict(changed), model.predict(X[3000:3100]))
    model.save(tmp_path / "wide.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "wide.gpnn")
    np.testing.assert_array_equal(loaded.predict(X[3000:]), model.predict(X[3000:]))


def test_files_whose_trees_had_columns_of_their_own(wide, tmp_path):
    """As they were written before trees saw all of a wide table."""
    model, X, _ = wide
    columns = np.random.default_rng(0).permutation(80)
    before, forest = copy.copy(model), model._trees.forest
    old = np.where(forest.column < 0, -1, np.argsort(columns)[forest.column]).astype(np.int32)
    before._trees = replace(model._trees, forest=replace(forest, column=old))
    before._tree_columns = columns
    before.save(tmp_path / "before.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "before.gpnn")
    assert "_tree_columns" not in vars(loaded)
    np.testing.assert_array_equal(loaded.predict(X[3000:]), model.predict(X[3000:]))
    before._tree_columns = columns[:3]
    with pytest.raises(InvalidInputError, match="columns for trees"):
        before.save(tmp_path / "wrong.gpnn")


def test_of_a_wide_table_all_else_knows_their_columns(wide):
    model, X, y = wide
    few = X[3000:3020]
    found = model.explain(few)
    whole = found.offset + np.sum(found.weights * y[:3000][found.indices], axis=1)
    np.testing.assert_allclose(whole, model.predict(few), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.predict_distribution(few, joint=True).mean, model.predict(few))
    later = copy.deepcopy(model).partial_fit(X[3000:3300], y[3000:3300])
    assert np.isfinite(later.predict(few)).all()
    assert copy.deepcopy(model).recalibrate(X[3300:], y[3300:]).recalibration_
