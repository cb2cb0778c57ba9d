import numpy as np
import pytest

from gpnn.common.errors import InvalidInputError
from gpnn.regressor import GPnnRegressor
from gpnn.stages.hiding import FOLDS, Groups, Slabs, Times, check_queries_to_come, nearest_seen

ALL = slice(0, 10)


def numbers(n=400, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def test_a_slab_hides_the_rows_around_a_probe_in_one_column_and_its_equals():
    near = numbers()
    near[:, 0] = np.round(2 * near[:, 0])  # of few values
    seen, probes = np.arange(400), np.arange(10)
    hidden = Slabs(near).mask(probes, seen, np.random.default_rng(0))(ALL)
    assert hidden.any(axis=1).all()
    for probe, mask in zip(probes, hidden, strict=True):
        assert mask[probe]
        together = [
            column
            for column in range(3)
            if np.array_equal(
                mask, (near[:, column] >= near[mask, column].min()) & (near[:, column] <= near[mask, column].max())
            )
        ]
        assert together  # an interval of one of the columns, and all of it


def test_columns_that_keep_no_rows_apart_are_not_drawn():
    near = numbers(d=2)
    near[:, 1] *= 1e-6
    assert Slabs(near)._relevance[0] > 0.999


@pytest.mark.parametrize("columns", [numbers(), np.ones((300, 2), np.float32)])
def test_slabs_judge_about_a_fifth_of_the_rows_in_each_fold(columns):
    for fold in Slabs(columns).folds(np.random.default_rng(1)):
        assert 0.15 < len(fold.hidden) / len(columns) < 0.31
        assert np.array_equal(np.sort(fold.judge), fold.hidden)
        assert len(fold.part) == len(fold.judge)


def test_groups_are_hidden_whole():
    labels = np.repeat(np.arange(20), 15)
    groups = Groups(labels)
    hidden = groups.mask(np.arange(10), np.arange(300), np.random.default_rng(0))(ALL)
    assert np.array_equal(hidden, labels[:10, None] == labels)
    folds = groups.folds(np.random.default_rng(0))
    assert len(folds) == FOLDS
    for fold in folds:
        assert np.isin(labels[fold.hidden], labels[fold.judge]).all()
        assert not np.isin(np.delete(labels, fold.hidden), labels[fold.judge]).any()


def test_times_judge_what_comes_after_what_is_seen():
    rng = np.random.default_rng(3)
    times = Times(rng.permutation(500).astype(float))
    for fold in times.folds(rng):
        seen = np.setdiff1d(np.arange(500), fold.hidden)
        assert times.times[seen].max() < times.times[fold.judge].min()
    probes = np.flatnonzero(times.times > 400)[:10]
    hidden = times.mask(probes, np.arange(500), rng)(ALL)
    assert (times.times[None, :] >= times.times[probes, None])[~hidden].sum() == 0


def test_the_nearest_rows_that_are_seen():
    rows, rng = numbers(300, 4), np.random.default_rng(0)
    X, own = rows[:10], np.arange(10)
    hidden = rng.random((10, 300)) < 0.5
    found = nearest_seen(rows, X, own, 5, lambda part: hidden[part])
    for probe in range(10):
        distance = np.linalg.norm(rows.astype(float) - X[probe], axis=1)
        distance[hidden[probe]] = np.inf
        distance[probe] = np.inf
        assert np.array_equal(found[probe], np.argsort(distance)[:5])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": [1] * 9, "times": None}, "shape"),
        ({"groups": [1, 2, 3, 1, 2, 3, 1, 2, 3, 1], "times": None}, "distinct"),
        ({"groups": ["a", None] * 5, "times": None}, "missing in 5"),
        ({"groups": None, "times": np.array(["b", "a", "d", "c", "e"] * 2)}, "no order in time"),
        ({"groups": None, "times": np.array([0.0, np.nan] * 5)}, "missing"),
        ({"groups": range(10), "times": range(10)}, "not both"),
    ],
)
def test_what_is_wrong_with_groups_and_times_is_said(given, message):
    with pytest.raises(InvalidInputError, match=message):
        check_queries_to_come(GPnnRegressor(), 10, **given)


def test_dates_are_times():
    times = np.datetime64("2026-01-01") + np.arange(10)
    found = check_queries_to_come(GPnnRegressor(), 10, None, times)
    assert isinstance(found, Times)
    assert (np.diff(found.times) > 0).all()


@pytest.mark.parametrize("settings", [{"refine": False}, {"holdout": "patches"}])
def test_groups_need_a_choice_that_can_follow_them(settings):
    with pytest.raises(InvalidInputError, match="refine=True"):
        check_queries_to_come(GPnnRegressor(**settings), 10, range(10), None)
