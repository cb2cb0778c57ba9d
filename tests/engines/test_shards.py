"""Shards against brute force, and against each other: how the rows were cut must not show in any bit."""

import numpy as np
import pytest

from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.cpu.neighbors.cuts import Cuts
from gpnn.engines.cpu.neighbors.shards import Joined, Shards, boxes_of
from gpnn.errors import InvalidInputError
from gpnn.neighbors import IVF, Flat, KDTree, recall


def cut(X, shard_of, spec, regions=None, halo=((), ())):
    parts, boxes, own = [], [], []
    for k in np.unique(shard_of):
        numbers = np.flatnonzero(shard_of == k)
        own.append(len(numbers))
        numbers = np.concatenate([numbers, np.asarray(halo[0], int)[np.asarray(halo[1]) == k]])
        rows = Rows.allocate(len(numbers), X.shape[1])
        rows[:] = X[numbers]
        boxes.append(boxes_of(rows, np.arange(len(numbers)) < own[-1]))
        index = spec.build(rows, 10, X[:100])
        index.order = numbers[index.order]
        parts.append(index)
    return Shards(parts, *map(np.array, zip(*boxes, strict=True)), None, regions, own)


def cut_with_halos(X, n_shards, spec, farthest, share):
    cuts = Cuts.learn(X, n_shards)
    shard_of, regions = cuts(X, np.arange(len(X))), cuts.with_halos(X, farthest, share)
    return cut(X, shard_of, spec, regions, cuts.halo(X, shard_of, regions))


def brute_force(X, queries, m):
    """Nearest first, by the squared distances that the compiled scan finds; ties by number."""
    rows = Rows.allocate(*X.shape)
    rows[:] = X
    found = Flat().build(rows, 1, X[:1]).query(queries, len(X))
    numbers = np.argsort(found.indices, axis=1)  # distances by row
    squared = np.take_along_axis(found.distances, numbers, axis=1)
    return np.argsort(squared, axis=1, kind="stable")[:, :m]


def make(rng, n, d, n_queries=40):
    X = rng.normal(size=(n, d)).astype(np.float32)
    X[: n // 10] = X[0]  # many copies of one row
    X[n // 2 :] = np.round(X[n // 2 :], 1)  # and many as far as each other
    queries = rng.normal(size=(n_queries, d)).astype(np.float32)
    queries[:5] = X[:5]
    return X, queries


@pytest.mark.parametrize("spec", [KDTree(), Flat(), IVF(recall=1.0)], ids=["kdtree", "flat", "ivf, all cells"])
@pytest.mark.parametrize(("n", "d", "m"), [(3000, 2, 40), (2001, 6, 150), (300, 1, 300)])
def test_answers_do_not_depend_on_how_rows_were_cut(spec, n, d, m, rng):
    X, queries = make(rng, n, d)
    true = brute_force(X, queries, m)
    by_cuts = Cuts.learn(X, 7)(X, np.arange(n))
    for shard_of in (np.zeros(n, int), by_cuts, rng.integers(0, 5, n)):
        index = cut(X, shard_of, spec)
        found = index.query(queries, m)
        np.testing.assert_array_equal(index.order[found.indices], true)
        np.testing.assert_array_equal(index.points(found.indices), X[true])
        assert index.exact


@pytest.mark.parametrize("spec", [KDTree(), Flat(), IVF(recall=1.0)], ids=["kdtree", "flat", "ivf, all cells"])
@pytest.mark.parametrize("depth", [0.0, 0.05, 0.5])
def test_rows_on_borders_are_in_several_shards_and_count_once(spec, depth, rng):
    X, queries = make(rng, 2500, 3)
    X[X[:, 0] > 1] = np.round(X[X[:, 0] > 1])
    true = brute_force(X, queries, 60)
    index = cut_with_halos(X, 6, spec, np.full(500, depth + 0.1), 0.7)
    assert index.n == len(X) < len(index.order)
    found = index.query(queries, 60)
    np.testing.assert_array_equal(index.order[found.indices], true)
    np.testing.assert_array_equal(index.points(found.indices), X[true])


def test_halos_are_as_deep_as_the_share_of_queries_asked_for_needs(rng):
    X = rng.uniform(size=(20_000, 3)).astype(np.float32)
    farthest = cut(X, np.zeros(len(X), int), KDTree()).query(X[:2000], 20).distances[:, -1]
    new, shares = rng.uniform(size=(2000, 3)).astype(np.float32), []
    for share in (0.0, 0.8, 0.9, 0.98):
        index = cut_with_halos(X, 8, KDTree(), farthest, share)
        index.query(new, 19)
        shares.append(index.by_one_shard / index.queries)
        assert len(index.order) < (1 + share) * len(X) + 1
    assert shares[0] < 0.7
    np.testing.assert_allclose(shares[1:], [0.8, 0.9, 0.98], atol=0.03)


def test_where_most_rows_are_in_one_place_no_halo_holds_them_all(rng):
    X = rng.normal(size=(5000, 2)).astype(np.float32)
    X[1000:] = X[0]
    index = cut_with_halos(X, 5, KDTree(), np.full(500, 0.3), 0.9)
    assert max(len(part.order) for part in index.parts) <= 2 * max(index.own)
    np.testing.assert_array_equal(index.order[index.query(X[:30], 40).indices], brute_force(X, X[:30], 40))


def test_a_query_asks_only_shards_that_could_hold_a_nearer_row(rng):
    X = rng.uniform(size=(20_000, 2)).astype(np.float32)
    index = cut(X, Cuts.learn(X, 16)(X, np.arange(len(X))), KDTree())
    index.query(X[:500], 10)
    assert index.queries == 500
    assert index.by_one_shard > 350
    assert index.questions < 700


def test_approximate_shards_find_what_they_promise_and_look_no_farther(rng, monkeypatch):
    X = rng.normal(size=(12_000, 12)).astype(np.float32)
    index = cut(X, Cuts.learn(X, 4)(X, np.arange(len(X))), IVF(recall=0.95))
    assert not index.exact
    assert recall(index.query(X[:200], 10), index.exact_query(X[:200], 10)) > 0.93
    assert cut(X, np.arange(len(X)) % 3, KDTree(slack=2.0)).query(X[:5], 10).distances[:, 0].max() == 0


def test_too_few_rows_are_named(rng):
    X = rng.normal(size=(30, 2)).astype(np.float32)
    with pytest.raises((InvalidInputError, IndexError)):
        cut(X, np.arange(30) % 2, KDTree()).query(X[:2], 31)


@pytest.mark.parametrize("n_shards", [1, 2, 5, 16])
def test_cuts_share_rows_out_evenly_even_where_most_are_the_same(n_shards, rng):
    X = rng.normal(size=(20_000, 3)).astype(np.float32)
    X[:15_000] = X[0]  # a region with most of the rows
    cuts = Cuts.learn(X[::10], n_shards)
    counts = np.bincount(cuts(X, np.arange(len(X))), minlength=n_shards)
    assert cuts.n_shards == n_shards == len(counts)
    assert counts.max() < 1.3 * len(X) / n_shards
    assert counts.min() > 0.7 * len(X) / n_shards


def test_rows_go_where_they_go_whatever_comes_with_them(rng):
    X = np.round(rng.normal(size=(1000, 3)), 1).astype(np.float32)
    cuts, numbers = Cuts.learn(X, 6), np.arange(1000)
    some = rng.permutation(1000)[:100]
    np.testing.assert_array_equal(cuts(X, numbers)[some], cuts(X[some], numbers[some]))


def test_joined_columns_are_as_one(rng):
    parts = [rng.normal(size=n) for n in (3, 1, 7)]
    joined, whole = Joined(parts), np.concatenate(parts)
    places = rng.integers(0, 11, (4, 5))
    np.testing.assert_array_equal(joined[places], whole[places])
    np.testing.assert_array_equal(np.asarray(joined), whole)
    np.testing.assert_array_equal(joined[2:9], whole[2:9])
    assert joined[4] == whole[4]
    assert len(joined) == 11
