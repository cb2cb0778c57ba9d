"""Every index against plain brute force."""

import pickle

import numpy as np
import pytest

from gpnn.engines.cpu.neighbors import ivf
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.errors import InvalidInputError
from gpnn.neighbors import IVF, Flat, KDTree, make_index, recall

EXACT = {"kdtree": KDTree(), "flat": Flat(), "ivf, all cells": IVF(recall=1.0, n_cells=7)}


def brute_force(X, queries, m):
    distances = np.linalg.norm(X[None].astype(float) - queries[:, None].astype(float), axis=2)
    return np.sort(distances, axis=1)[:, :m]


def build(spec, X, m, **kwargs):
    rows = Rows.allocate(*X.shape)
    rows[:] = X
    return spec.build(rows, m, X[:100], **kwargs)


def make(rng, n, d):
    X = rng.normal(size=(n, d)).astype(np.float32)
    X[: n // 10] = X[0]  # many copies of one row
    X[n // 2 :, 0] = np.round(X[n // 2 :, 0])  # and ties
    return X, rng.normal(size=(40, d)).astype(np.float32)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("n", "d", "m"), [(5000, 2, 50), (3001, 5, 400), (997, 20, 10), (200, 1, 200), (33, 3, 1)])
def test_exact_answers(name, n, d, m, rng):
    X, queries = make(rng, n, d)
    index = build(EXACT[name], X, m)
    found = index.query(queries, m)
    np.testing.assert_allclose(found.distances, brute_force(X, queries, m), rtol=1e-5, atol=1e-6)
    # the indices are what the distances say, and no row comes twice
    points = index.points(found.indices)
    np.testing.assert_array_equal(points, X[index.order[found.indices]])
    np.testing.assert_allclose(np.linalg.norm(points - queries[:, None], axis=2), found.distances, rtol=1e-4, atol=1e-6)
    assert all(len(set(row)) == m for row in found.indices)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("n", "d", "m"), [(4000, 2, 30), (3000, 5, 200), (600, 1, 600)])
def test_rows_that_are_equally_far_are_taken_in_the_order_of_the_table(name, n, d, m, rng):
    X, queries = (np.round(1.5 * rng.normal(size=(k, d))).astype(np.float32) for k in (n, 60))
    squared = ((X[None] - queries[:, None]) ** 2).sum(axis=2)  # whole numbers: no rounding
    expected = np.argsort(squared, axis=1, kind="stable")[:, :m]
    index = build(EXACT[name], X, m)
    np.testing.assert_array_equal(index.order[index.query(queries, m).indices], expected)


@pytest.mark.parametrize("m", [32, 160, 400, 720])
def test_rows_in_a_regular_pattern(m):
    """Near rows at regular intervals, which a sample at regular intervals sees all or none of."""
    query = np.zeros((1, 2), np.float32)
    for period in (*range(2, 30), 64):
        for near in (0.1, 10.0):
            X = np.full((4000, 2), 1.0, np.float32) + np.linspace(0, 0.01, 4000, dtype=np.float32)[:, None]
            X[::period] *= near
            found = build(Flat(), X, m).query(query, m)
            np.testing.assert_allclose(found.distances, brute_force(X, query, m), rtol=1e-5)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("n", [300, 25_000])
def test_a_query_that_is_not_a_number_has_no_neighbours(name, n, rng):
    index = build(EXACT[name], make(rng, n, 2)[0], 10)
    with pytest.raises(InvalidInputError, match="fewer than"):
        index.query(np.full((1, 2), np.nan, np.float32), 10)


@pytest.mark.parametrize("name", EXACT)
def test_more_neighbours_than_rows(name, rng):
    index = build(EXACT[name], rng.normal(size=(50, 2)).astype(np.float32), 50)
    with pytest.raises(InvalidInputError, match="fewer than 51 rows"):
        index.query(np.zeros((1, 2), np.float32), 51)


@pytest.mark.parametrize("name", EXACT)
def test_order_is_a_permutation_and_threads_do_not_change_it(name, rng):
    X, queries = make(rng, 4000, 4)
    one, two = (build(EXACT[name], X, 20, n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(np.sort(one.order), np.arange(4000))
    np.testing.assert_array_equal(one.order, two.order)
    np.testing.assert_array_equal(one.query(queries, 20).indices, two.query(queries, 20).indices)


@pytest.mark.parametrize("name", EXACT)
def test_all_rows_identical(name):
    X = np.ones((500, 3), np.float32)
    found = build(EXACT[name], X, 30).query(X[:2] + 1, 30)
    np.testing.assert_allclose(found.distances, np.sqrt(3), rtol=1e-6)


@pytest.mark.parametrize("spec", [KDTree(), KDTree(slack=2), Flat(), IVF()])
def test_a_query_is_answered_alike_alone_and_in_company(spec, rng):
    X, queries = make(rng, 6000, 6)
    index = build(spec, X, 100)
    together = index.query(queries, 100)
    for q in range(len(queries)):
        np.testing.assert_array_equal(index.query(queries[q : q + 1], 100).indices[0], together.indices[q])


@pytest.mark.parametrize("spec", [IVF(recall=0.95), IVF(recall=0.99)])
def test_inverted_file_reaches_the_recall_asked_for(spec, rng):
    X = rng.normal(size=(30_000, 12)).astype(np.float32)
    queries = rng.normal(size=(200, 12)).astype(np.float32)
    rows = Rows.allocate(*X.shape)
    rows[:] = X
    index = spec.build(rows, 100, queries[:100])
    measured = recall(index.query(queries[100:], 100), index.exact_query(queries[100:], 100))
    assert measured > spec.recall - 0.01
    assert index.n_probed < len(index._starts) // 2


def test_an_inverted_file_has_more_neighbours_than_it_was_tuned_for(rng):
    """Where its cells hold too few rows, it looks at all."""
    X, queries = make(rng, 3000, 4)
    index = build(IVF(recall=0.5), X, 5)
    assert index.n_probed * len(X) / len(index._starts) < 400
    found = index.query(queries, 400)
    exact = index.exact_query(queries, 400)
    np.testing.assert_array_equal(np.sort(found.indices), np.sort(exact.indices))
    assert (np.diff(found.distances, axis=1) >= 0).all()


def test_slack_trades_recall(rng):
    X = rng.normal(size=(20_000, 8)).astype(np.float32)
    queries = rng.normal(size=(100, 8)).astype(np.float32)
    index = build(KDTree(slack=2), X, 100)
    assert 0.9 < recall(index.query(queries, 100), index.exact_query(queries, 100)) <= 1
    assert not index.exact


@pytest.mark.parametrize("name", EXACT)
def test_pickles(name, rng):
    X, queries = make(rng, 1000, 3)
    index = build(EXACT[name], X, 10)
    copy = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(copy.query(queries, 10).indices, index.query(queries, 10).indices)


def test_choice():
    assert isinstance(make_index("auto", 10**6, 8, 400), KDTree)
    assert isinstance(make_index("auto", 10**4, 50, 400), Flat)
    assert isinstance(make_index("auto", 10**6, 50, 400), IVF)
    assert isinstance(make_index("exact", 10**6, 50, 400), Flat)
    own = IVF(0.5)
    assert make_index(own, 10, 2, 1) is own
    with pytest.raises(InvalidInputError, match="kdtree"):
        make_index("hnsw", 10, 2, 1)
    with pytest.raises(InvalidInputError, match="slack"):
        KDTree(slack=0.5)
    with pytest.raises(InvalidInputError, match="recall"):
        IVF(recall=0)


def test_centres_looked_for_by_region_are_nearly_always_the_nearest(rng, monkeypatch):
    X = rng.normal(size=(40_000, 12)).astype(np.float32)
    before = build(IVF(n_cells=600), X, 20)
    monkeypatch.setattr(ivf, "_MANY", 0)
    index = build(IVF(n_cells=600), X, 20)
    centres = index._centres.take(np.arange(600)).astype(float)
    distances = ((X[::20, None].astype(float) - centres) ** 2).sum(axis=2)
    cell = np.empty(len(X), int)
    cell[index.order] = np.repeat(np.arange(600), np.diff(index._starts))
    own = distances[np.arange(len(distances)), cell[::20]]
    assert np.mean(own <= distances.min(axis=1) * (1 + 1e-5)) > 0.9
    assert np.mean(own) < 1.01 * np.mean(distances.min(axis=1))
    assert index.n_probed <= 1.2 * before.n_probed
    assert recall(index.query(X[:50], 20), index.exact_query(X[:50], 20)) > 0.97
    again = build(IVF(n_cells=600), X, 20, n_jobs=2)
    np.testing.assert_array_equal(index.order, again.order)
