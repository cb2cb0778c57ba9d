import numpy as np
import pytest

from gpnn import Prediction
from gpnn.errors import GPnnWarning, InvalidInputError
from gpnn.stages.whitening import Ranks, Whitener


@pytest.fixture
def correlated(rng):
    X = rng.normal(size=(2000, 4)) @ rng.normal(size=(4, 4)) * [1, 1e6, 1e-6, 1] + [0, 1e7, 3, -5]
    return X, rng.normal(3, 2, size=2000)


def test_full_whitening_gives_covariance_one_over_d(correlated):
    X, y = correlated
    Z = Whitener.fit(X, y, "full").transform(X)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(np.cov(Z.T, bias=True), np.eye(4) / 4, atol=0.01)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-5)


def test_diagonal_scales_and_none_leaves_alone(correlated):
    X, y = correlated
    Z = Whitener.fit(X, y, "diagonal").transform(X)
    np.testing.assert_allclose(Z.var(axis=0), 1 / 4, rtol=1e-4)
    np.testing.assert_allclose(np.corrcoef(Z.T), np.corrcoef(X.T), atol=1e-5)
    np.testing.assert_allclose(Whitener.fit(X, y, "none").transform(X), X, rtol=1e-6)


def test_units_do_not_matter(correlated):
    X, y = correlated
    factors = np.array([1e-30, 1, 1e30, 1e3])
    Z, Z2 = (Whitener.fit(rows, y, "full").transform(rows) for rows in (X, X * factors))
    distances, distances2 = (np.linalg.norm(z[:50, None] - z[None, :50], axis=2) for z in (Z, Z2))
    np.testing.assert_allclose(distances, distances2, atol=1e-4)


def test_targets_and_predictions_go_back_to_their_units(correlated):
    X, y = correlated
    w = Whitener.fit(X, y)
    z = w.transform_y(y)
    assert z.mean() == pytest.approx(0, abs=1e-12)
    assert z.std() == pytest.approx(1)
    back = w.inverse(Prediction(z, np.full(len(y), 0.25)))
    np.testing.assert_allclose(back.mean, y)
    np.testing.assert_allclose(back.std, 0.5 * y.std())


def test_constant_and_collinear_columns_are_named(correlated):
    X, y = correlated
    X = np.column_stack([X, np.full(len(X), 7.0), X[:, 0] - 2 * X[:, 3]])
    with pytest.warns(GPnnWarning) as caught:
        w = Whitener.fit(X, y, columns=list("abcdef"))
    messages = [str(warning.message) for warning in caught]
    assert any("constant" in message and message.endswith(": e.") for message in messages)
    assert any("linearly dependent" in message and message.endswith(": a, d, f.") for message in messages)
    assert np.isfinite(w.transform(X)).all()


@pytest.mark.parametrize("value", [0.1, 0.3, 7.7, -1e9])
def test_long_constant_columns_are_seen_as_constant(value, rng):
    X = np.column_stack([np.full(70_000, value), rng.normal(size=70_000)])
    with pytest.warns(GPnnWarning, match="1 input column is constant"):
        w = Whitener.fit(X, X[:, 1], "diagonal")
    assert w.x_map[0] == 0


def test_a_row_is_whitened_alike_alone_and_in_company(rng):
    X = rng.normal(size=(500, 15))
    w = Whitener.fit(X, X[:, 0])
    together = w.transform(X)
    for i in (0, 7, 499):
        np.testing.assert_array_equal(w.transform(X[i : i + 1])[0], together[i])


def test_values_far_outside_stay_finite(correlated):
    X, y = correlated
    assert np.isfinite(Whitener.fit(X, y).transform(np.full((1, 4), 1e300))).all()


def test_refuses_overflow_and_unknown_modes(correlated):
    X, y = correlated
    with pytest.raises(InvalidInputError, match=r"column 1.*overflow"):
        Whitener.fit(X * [1, 1e300, 1, 1], y)
    with pytest.raises(InvalidInputError, match="diagonal"):
        Whitener.fit(X, y, "pca")


def test_ranks_are_the_same_for_any_increasing_transform_of_a_column(rng):
    X = rng.normal(size=(3000, 2))
    Z, Z2 = (Whitener.fit(rows, X[:, 0], "ranks").transform(rows) for rows in (X, np.exp(3 * X)))
    np.testing.assert_allclose(Z, Z2, atol=0.01)
    np.testing.assert_allclose(Z.var(axis=0), 1 / 2, rtol=1e-4)
    order = np.argsort(X[:, 0])
    assert (np.diff(Z[order, 0]) >= 0).all()


def test_ranks_of_ties_stand_in_their_middle_and_go_on_outside(rng):
    X = np.column_stack([rng.permutation(np.repeat([0.0, 5.0, 1000.0], [600, 300, 100])), rng.normal(size=1000)])
    ranks, _ = Ranks.fit(X)
    zero, five, between, thousand, beyond = ranks(np.array([[x, 0.0] for x in (0, 5, 502.5, 1000, 2000)]))[:, 0]
    np.testing.assert_allclose([zero, five, thousand], 511 * np.array([0.3, 0.75, 0.95]), atol=1)
    assert five < between < thousand
    ranked = ranks(X)[:, 0]
    assert beyond - 511 == pytest.approx(1000 * ranked.std() / X[:, 0].std())
    assert ranks(X[:, [0, 1]])[7, 0] == ranks(X[7:8])[0, 0]


def test_constant_columns_have_one_rank(rng):
    X = np.column_stack([np.full(500, 3.0), rng.normal(size=500)])
    with pytest.warns(GPnnWarning, match="constant"):
        w = Whitener.fit(X, X[:, 1], "ranks")
    Z = w.transform(np.vstack([X, [[1e300, 1e300]]]))
    assert np.isfinite(Z).all()
    assert (Z[:, 0] == 0).all()
