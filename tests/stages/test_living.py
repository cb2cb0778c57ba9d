"""Rows that come and go: predictions are those of an index built from the rows that are there."""

import copy
import pickle
import warnings

import numpy as np
import pytest

from gpnn import GPnnRegressor, GPnnWarning, Hyperparameters, InvalidInputError
from gpnn.engines.cpu.neighbors import IVF, Flat, KDTree, make_index
from gpnn.engines.cpu.neighbors.segments import Segments, built_by
from gpnn.stages.living import Recent

GIVEN = {
    "kernel": "matern32", "params": Hyperparameters(0.7, 1.0, 0.05), "n_neighbors": 30, "calibration_size": 200,
    "whitening": "diagonal", "random_state": 0, "n_jobs": 1, "suspects": "keep",
}  # fmt: skip


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n)


def rebuilt(model, X, y, numbers, noise=None):
    """The same model with one index of these rows, built at once."""
    other = copy.copy(model)
    rows = other.whitener_.transform(X[numbers])
    built = make_index(model.index, *rows.shape, 30).build(rows.copy(), 30, rows[:50], 1)
    other.index_ = built
    other._y = other.whitener_.transform_y(y[numbers] - other.mean_.predict(X[numbers]))[built.order]
    if noise is not None:
        other._noise = noise[built.order]
    return other


@pytest.mark.parametrize("index", ["kdtree", "flat", IVF(recall=1.0)], ids=["kdtree", "flat", "ivf"])
@pytest.mark.parametrize("batches", [[1] * 40, [700], [2000, 5, 1200, 30]], ids=str)
def test_as_if_all_rows_had_come_at_once(index, batches):
    X, y = table(1000 + sum(batches))
    model = GPnnRegressor(index=index, **GIVEN).fit(X[:1000], y[:1000])
    queries = table(50, seed=1)[0]
    done = 1000
    for size in batches:
        model.partial_fit(X[done : done + size], y[done : done + size])
        done += size
    expected = rebuilt(model, X, y, np.arange(done))
    np.testing.assert_array_equal(model.predict(queries), expected.predict(queries))
    found = model.explain(queries)
    np.testing.assert_allclose(found.mean(y), model.predict(queries), atol=1e-4)
    np.testing.assert_array_equal(np.sort(model.kneighbors(queries).indices), np.sort(found.indices))
    assert (model.kneighbors(X[-1:]).indices[0, 0]) == done - 1


def test_forgetting(tmp_path):
    X, y = table(3000)
    model = GPnnRegressor(**GIVEN).fit(X[:1500], y[:1500]).partial_fit(X[1500:], y[1500:])
    queries = table(50, seed=1)[0]
    gone = np.random.default_rng(0).permutation(3000)[:600]
    model.forget(gone)
    kept = np.setdiff1d(np.arange(3000), gone)
    np.testing.assert_array_equal(model.predict(queries), rebuilt(model, X, y, kept).predict(queries))
    model.forget(before=1600)  # most of the first segment: it is built anew
    kept = kept[kept >= 1600]
    expected = rebuilt(model, X, y, kept).predict(queries)
    np.testing.assert_array_equal(model.predict(queries), expected)
    model.forget(before=1600)  # once more: nothing to do
    model.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    np.testing.assert_array_equal(loaded.predict(queries), expected)
    again = pickle.loads(pickle.dumps(model))
    for one in (loaded, again):
        one.partial_fit(queries[:7], np.zeros(7))
        assert one.kneighbors(queries[:1]).indices[0, 0] == 3000  # numbers go on
    where = np.arange(3007) % 2 == 0
    loaded.forget(where=where)
    assert (loaded.kneighbors(queries).indices % 2 == 1).all()


def test_a_window_keeps_the_newest():
    X, y = table(3000)
    model = GPnnRegressor(**GIVEN).fit(X[:500], y[:500])
    for first in range(500, 3000, 250):
        model.partial_fit(X[first : first + 250], y[first : first + 250], window=600)
    queries = table(50, seed=1)[0]
    np.testing.assert_array_equal(model.predict(queries), rebuilt(model, X, y, np.arange(2400, 3000)).predict(queries))


def test_a_predictor_and_copies_stay_what_they_were():
    X, y = table(1500)
    model = GPnnRegressor(**GIVEN).fit(X[:1000], y[:1000]).partial_fit(X[1000:1100], y[1000:1100])
    before, predict, other = model.predict(X[:20]), model.predictor(), copy.copy(model)
    model.partial_fit(X[1100:1500], y[1100:1500]).forget([0, 1, 2])
    other.partial_fit(X[1100:1110], np.zeros(10))  # goes its own way from there
    np.testing.assert_array_equal(predict(X[:20])[0], before)
    expected = rebuilt(model, X, y, np.arange(3, 1500)).predict(X[:20])
    np.testing.assert_array_equal(model.predict(X[:20]), expected)


def test_segments_stay_few_and_searches_exact(rng):
    rows = rng.normal(size=(40_000, 3)).astype(np.float32)
    build = built_by(make_index, "kdtree", 10, 1)
    segments = Segments(build(rows[:5000].copy()), {"order": np.zeros(0)})
    first = build(rows[:5000].copy())
    segments = Segments(first, {"order": first.order.astype(np.int64)})
    done = 5000
    while done < 40_000:
        size = int(rng.integers(1, 900))
        new = rows[done : done + size]
        segments = segments.with_rows(new, {"order": done + np.arange(len(new))}, build)
        done += len(new)
        sizes = [len(part.order) for part in segments.parts]
        assert len(sizes) <= 8
        assert sum(sizes) == segments.n == done
    found = segments.query(rows[:50], 10)
    true = Flat().build(rows.copy(), 10, rows[:0]).query(rows[:50], 10)
    np.testing.assert_array_equal(segments.order[found.indices], true.indices)
    np.testing.assert_allclose(found.distances, true.distances)
    np.testing.assert_array_equal(segments.points(found.indices), rows[true.indices])
    assert isinstance(segments.parts[0], KDTree)


def test_intervals_follow_what_comes():
    X, y = table(6000)
    rng = np.random.default_rng(5)
    model = GPnnRegressor(**GIVEN).fit(X[:2000], y[:2000])
    inside = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", GPnnWarning)
        for first in range(2000, 6000, 50):
            rows = slice(first, first + 50)
            new = y[rows] + (0.9 * rng.normal(size=50) if first >= 3000 else 0.0)  # five times the noise
            lower, upper = model.predict_interval(X[rows])
            inside.append(np.mean((lower <= new) & (new <= upper)))
            model.partial_fit(X[rows], new)
    assert 0.86 < np.mean(inside[:20]) < 0.95
    assert 0.86 < np.mean(inside[40:]) < 0.94
    assert model.alarm_
    assert len(said) == 1
    assert "fit again" in str(said[0].message)


def test_few_outcomes_change_little():
    recent = Recent()
    assert recent.followed() == pytest.approx((1.0, 1.0), abs=0.02)
    assert recent.after(np.full(3, 9.0), np.zeros(3, bool)).followed()[0] < 1.2
    assert not recent.alarm
    assert recent.after(np.full(300, 9.0), np.zeros(300, bool)).alarm


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_with_noise_and_a_mean(weighted, tmp_path):
    X, y = table(900)
    noise = np.where(np.arange(900) % 2 == 0, 1.0, 0.01)
    told = {"noise_variance": noise} | ({"sample_weight": 1 + np.arange(900) % 3} if weighted else {})
    first, later = ({name: values[part] for name, values in told.items()} for part in (slice(600), slice(600, None)))
    model = GPnnRegressor(**GIVEN | {"mean": "linear", "calibration_size": 0}).fit(X[:600], y[:600], **first)
    model.partial_fit(X[600:], y[600:], **later)
    from gpnn.engines import Noise

    share = 1 / told.get("sample_weight", np.ones(900))
    whole = rebuilt(model, X, y, np.arange(900), Noise(share, noise / model.whitener_.y_std**2))
    np.testing.assert_allclose(model.predict(X[:40]), whole.predict(X[:40]), rtol=1e-12)
    np.testing.assert_allclose(model.explain(X[:40]).mean(y), model.predict(X[:40]), atol=1e-3)
    model.save(tmp_path / "model.gpnn")
    np.testing.assert_array_equal(GPnnRegressor.load(tmp_path / "model.gpnn").predict(X[:40]), model.predict(X[:40]))


@pytest.mark.filterwarnings("ignore")
def test_forgotten_rows_answer_nowhere(few_steps):
    X, y = table(2500)
    model = GPnnRegressor(kernel="matern32", whitening="diagonal", random_state=0, n_jobs=1).fit(X, y)
    far = np.array([[9.0, 0.0, 0.0]])
    rows = model.explain(far).decisive(3)[0][0]
    model.forget(rows)
    assert not np.isin(rows, model.explain(far).indices).any()
    kept = np.delete(np.arange(2500), rows)
    np.testing.assert_allclose(model.explain(far).mean(y), model.predict(far), rtol=1e-3)
    assert np.isin(model._far.rows, kept).all()


def test_partial_fit_begins_with_fit_and_other_engines_see_the_same_rows():
    X, y = table(700)
    model = GPnnRegressor(**GIVEN).partial_fit(X[:500], y[:500]).partial_fit(X[500:], y[500:])
    on_cpu = model.predict(X[:9])
    np.testing.assert_allclose(model.set_params(engine="reference").predict(X[:9]), on_cpu, atol=1e-3)
    model._consolidate()
    np.testing.assert_array_equal(model.set_params(engine="cpu").predict(X[:9]), on_cpu)
    assert model.relevance().share.shape == (3,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": [500]}, "numbers of rows, 0 to 499"),
        ({"rows": [0.5]}, "numbers of rows"),
        ({"rows": [1], "before": 3}, "one of rows, where, before; got rows, before"),
        ({}, "got none"),
        ({"where": [True]}, "500 times True or False"),
        ({"before": -1}, "before = -1"),
        ({"before": 490}, "leave 10 rows, fewer than the 30"),
    ],
)
def test_what_cannot_be_forgotten(wrong, message):
    X, y = table(500)
    model = GPnnRegressor(**GIVEN | {"calibration_size": 0}).fit(X, y)
    with pytest.raises(InvalidInputError, match=message):
        model.forget(**wrong)
    assert len(model.kneighbors(X[:1]).indices[0]) == 30


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"y": [1.0]}, "one target for each of the 5 rows"),
        ({"y": np.full(5, np.nan)}, "NaN or infinite in 5 of 5"),
        ({"window": 3}, "window = 3"),
        ({"sample_weight": np.ones(5)}, "not to fit"),
        ({"noise_variance": np.ones(5)}, "fitted without"),
    ],
)
def test_what_cannot_come(wrong, message):
    X, y = table(500)
    model = GPnnRegressor(**GIVEN | {"calibration_size": 0}).fit(X, y)
    with pytest.raises(InvalidInputError, match=message):
        model.partial_fit(**{"X": X[:5], "y": y[:5]} | wrong)
    assert model.partial_fit(X[:0], y[:0])._n_seen == 500
