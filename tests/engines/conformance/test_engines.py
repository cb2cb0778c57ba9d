"""Every engine gives the laws of the float64 reference: means within 1e-3 sd, variances within 1e-3 of themselves."""

from dataclasses import replace

import numpy as np
import pytest

from gpnn import Broad, GPnnRegressor, Hyperparameters
from gpnn.engines import Noise, Probes
from gpnn.engines.cpu import CPU
from gpnn.engines.descent import Adam
from gpnn.engines.local import make_solver
from gpnn.engines.reference import Reference
from gpnn.errors import InvalidInputError
from gpnn.kernels import KERNELS, get_kernel_or_sum
from gpnn.neighbors import IVF, KDTree
from gpnn.stages.whitening import Whitener

REGIMES = {
    "typical": Hyperparameters(0.7, 2.0, 0.01),
    "smooth": Hyperparameters(11.0, 95.0, 0.0027),
    "ard": Hyperparameters(np.array([0.3, 1.0, 30.0]), 1.5, 0.02),
}
SIZES = np.array([1, 7, 18])


def as_they_are(d: int) -> Whitener:
    """Rows keep their values."""
    return Whitener(np.zeros(d), np.ones(d), 0.0, 1.0)


def build(engine, X, y, m, index="exact"):
    rows = engine.whiten(as_they_are(X.shape[1]), X)
    return engine.build(rows, y, index, m, np.arange(min(len(X), 60)), seed=0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(330, 3)).astype(np.float32)
    X[40:50] = X[40]  # one place, ten values
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.05 * rng.normal(size=330) + 3
    return X[:300], y[:300], X[300:306]


@pytest.fixture(scope="module")
def built(engine, data):
    return build(engine, *data[:2], 20)


@pytest.fixture(scope="module")
def standard(data):
    return build(Reference(1), *data[:2], 20)


def agree(found, true):
    for name in ("mean", "variance", "innovations"):
        assert np.isfinite(getattr(found, name)).all(), name
    assert (np.abs(found.mean - true.mean) / np.sqrt(true.variance)).max() < 1e-3
    np.testing.assert_allclose(found.variance, true.variance, rtol=1e-3)
    roughness, expected = (each.innovations.mean(axis=1) for each in (found, true))
    np.testing.assert_allclose(roughness, expected, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("regime", REGIMES)
def test_laws_along_a_path_of_sizes(built, standard, data, kernel, regime):
    args = (data[2], SIZES, KERNELS[kernel], REGIMES[regime])
    agree(built.path(*args), standard.path(*args))


def test_several_tiles_of_neighbours(engine, standard, data):
    """More than one tile of a blocked factorisation, and neither a multiple of it."""
    args = (data[2][:2], np.array([50, 75]), KERNELS["matern32"], REGIMES["typical"])
    agree(build(engine, *data[:2], 75).path(*args), standard.path(*args))


def test_a_row_is_not_predicted_from_itself(built, standard, data):
    X, y, _ = data
    args = (X[38:44], SIZES, KERNELS["exponential"], REGIMES["typical"], np.array([38, 39, 40, -1, 42, 43]))
    agree(built.path(*args), standard.path(*args))
    noiseless = built.path(X[:4], np.array([5]), KERNELS["exponential"], Hyperparameters(1.0, 1.0, 1e-6), np.arange(4))
    assert (np.abs(noiseless.mean[:, 0] - y[:4]) > 1e-3).all()


def test_fewer_innovations_are_the_first_of_all(built, data):
    args = (data[2], SIZES, KERNELS["rbf"], REGIMES["typical"], None)
    few, every = (built.path(*args, n_innovations=k).innovations for k in (4, None))
    assert few.shape == (6, 4)
    np.testing.assert_array_equal(few, every[:, :4])


def test_repeated_rows_without_noise_get_a_bounded_recorded_jitter(engine, rng):
    X = np.zeros((40, 2), np.float32)
    held = build(engine, X, rng.normal(size=40), 12)
    found = held.path(X[:3], np.array([12]), KERNELS["rbf"], Hyperparameters(1.0, 1.0, 0.0))
    assert np.isfinite(found.mean).all()
    assert (found.variance >= 0).all()
    assert 0 < found.jitter.max() <= 1e-4


@pytest.mark.parametrize("kernel", KERNELS)
def test_far_away_the_prior_returns(built, data, kernel):
    params = Hyperparameters(1e-3, 2.0, 0.01)
    found = built.path(data[2][:2] + np.float32(1e15), np.array([15]), KERNELS[kernel], params)
    np.testing.assert_allclose(found.mean, 0, atol=1e-6)
    np.testing.assert_allclose(found.variance, 2.01, rtol=1e-5)


def test_one_row(engine):
    held = build(engine, np.array([[1.0, 2.0]], np.float32), np.array([3.0]), 1)
    found = held.path(np.array([[1.0, 2.0]], np.float32), np.array([1]), KERNELS["rbf"], Hyperparameters(1.0, 1.0, 0.5))
    np.testing.assert_allclose(found.mean, 2.0, rtol=1e-4)  # 3·σ_f²/(σ_f² + σ_ξ²)
    np.testing.assert_allclose(found.variance, 1.5 - 1 / 1.5, rtol=1e-4)


def test_more_neighbours_than_rows(built, data):
    with pytest.raises(InvalidInputError, match="fewer than 301 rows"):
        built.neighbors(data[2], 301)


@pytest.mark.parametrize("index", [KDTree(), "flat", IVF(recall=1.0, n_cells=5)], ids=["kdtree", "flat", "ivf"])
def test_exact_indexes_find_the_nearest_rows(engine, index, rng):
    X = rng.normal(size=(700, 2)).astype(np.float32)
    X[:70] = X[0]
    X[350:, 0] = np.round(X[350:, 0])
    queries = rng.normal(size=(5, 2)).astype(np.float32)
    held = build(engine, X, np.zeros(700), 90, index)
    found = held.neighbors(queries, 90)
    distances = np.linalg.norm(X[None].astype(float) - queries[:, None], axis=2)
    np.testing.assert_allclose(found.distances, np.sort(distances, axis=1)[:, :90], rtol=1e-5, atol=1e-6)
    numbers = held.index.order[found.indices]
    np.testing.assert_allclose(np.take_along_axis(distances, numbers, axis=1), found.distances, rtol=1e-5, atol=1e-6)
    assert all(len(set(row)) == 90 for row in numbers)
    assert held.recall(engine.whiten(as_they_are(2), queries), 90) == 1


def test_an_inverted_file_reaches_the_recall_asked_for(engine, rng):
    X = rng.normal(size=(1500, 4))
    held = build(engine, X, np.zeros(1500), 10, IVF(recall=0.9, n_cells=30))
    assert held.index.n_probed < 30
    assert 0.8 < held.recall(engine.whiten(as_they_are(4), rng.normal(size=(30, 4))), 10) <= 1


def test_a_query_is_answered_alike_alone_and_in_company(built, data):
    args = (np.array([18]), KERNELS["matern52"], REGIMES["smooth"])
    together = built.path(data[2], *args)
    for q in (0, 5):
        alone = built.path(data[2][q : q + 1], *args)
        assert alone.mean[0, 0] == together.mean[q, 0]
        assert alone.variance[0, 0] == together.variance[q, 0]


@pytest.mark.parametrize("mode", ["full", "diagonal", "ranks", "none"])
def test_rows_are_whitened_alike(engine, mode, rng):
    X = rng.exponential(size=(400, 3)) * [1, 100, 0.01]
    X[:200, 2] = X[0, 2]
    whitener, far = Whitener.fit(X, X[:, 0], mode), np.vstack([X[:60], 1e3 * X[:5], -X[:5], [[1e40, 0, 0]]])
    hidden = np.array([0, 7, 61])
    for gone in (None, hidden):
        ours = engine.whiten(whitener, far, gone)
        ours = ours if isinstance(ours, np.ndarray) else ours.cpu().numpy()
        np.testing.assert_allclose(ours, CPU(1).whiten(whitener, far, gone), rtol=1e-6)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_learning_sees_the_same_slopes(engine, kernel, known, rng):
    X = rng.normal(size=(90, 3)).astype(np.float32)
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=90)
    probes = Probes(X[:7], y[:7], np.array([0, 1, 2, -1, 4, 5, 6]))
    noise = Noise(rng.uniform(0.2, 2, 90), rng.uniform(0, 1, 90)) if known else None
    probes = replace(probes, noise=noise[:7] if known else None)
    theta, batch = np.array([0.5, 1.0, 2.0, 0.9, 0.05]), np.array([0, 3, 5])
    found = []
    for of in (CPU(1), engine):
        learner = of.learner(of.whiten(as_they_are(3), X), y, 0, noise)
        near = learner.neighborhoods(probes, theta[:3], 31)
        slopes = near.gradient(batch, KERNELS[kernel], theta, 0.3, 1.1)
        found.append((*slopes, near.predict(KERNELS[kernel], Hyperparameters(theta[:3], 0.9, 0.05))))
        np.testing.assert_array_equal(learner.take(np.array([3, 1])), X[[3, 1]])
    (gradient, count, innovation, (law, innovations)), ours = found
    np.testing.assert_allclose(ours[0], gradient, rtol=1e-8)
    assert ours[1] == count == 3
    assert ours[2] == pytest.approx(innovation)
    np.testing.assert_allclose(ours[3][0].mean, law.mean, rtol=1e-8)
    np.testing.assert_allclose(ours[3][0].variance, law.variance, rtol=1e-8)
    np.testing.assert_allclose(ours[3][1], innovations, rtol=1e-6)


@pytest.mark.parametrize("known", [False, True])
def test_sums_of_kernels_are_learned_and_solved_by_every_engine(engine, built, standard, data, known, rng):
    kernel, params = get_kernel_or_sum("matern32+exponential"), Hyperparameters(0.5, 0.9, 0.05, Broad(0.4, 3.0))
    agree(built.path(data[2], SIZES, kernel, params), standard.path(data[2], SIZES, kernel, params))
    X, y = rng.normal(size=(90, 3)).astype(np.float32), rng.normal(size=90)
    noise = Noise(rng.uniform(0.2, 2, 90), rng.uniform(0, 1, 90)) if known else None
    probes = Probes(X[:7], y[:7], np.array([0, 1, 2, -1, 4, 5, 6]), noise[:7] if known else None)
    found = []
    for of in (CPU(1), engine):
        near = of.learner(of.whiten(as_they_are(3), X), y, 0, noise).neighborhoods(probes, params.metric, 31)
        law, innovations = near.predict(kernel, params)
        found.append(
            [*near.gradient(np.array([0, 3, 5]), kernel, params.as_vector(3), 0.3, 1.1), law.mean, innovations]
        )
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)


@pytest.mark.parametrize("kernel", ["matern32", "matern32+exponential"])
def test_learning_goes_the_same_way(engine, kernel, rng):
    X, kernel = rng.normal(size=(90, 3)).astype(np.float32), get_kernel_or_sum(kernel)
    y, probes = np.sin(X[:, 0]), Probes(X[:40], np.sin(X[:40, 0]), np.arange(40))
    batches = np.array([rng.choice(40, 16, replace=False) for _ in range(8)])
    paths = []
    for of in (CPU(1), engine):
        near = of.learner(of.whiten(as_they_are(3), X), y, 0).neighborhoods(probes, 1.0, 18)
        u = np.log([0.5, 1.0, 2.0, 0.9, 0.05, *((0.9, 2.0, 5.0, 0.3) if kernel.broad else ())])
        path, typical = near.descend(kernel, batches, u, Adam(0.1, len(u), 8), 1.0)
        paths.append([*path.T, typical])
    for theirs, ours in zip(*paths, strict=True):  # slopes may be float32's
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.parametrize("known", [False, True])
def test_learning_sees_the_same_slopes_through_a_map(engine, known, rng):
    X, y = rng.normal(size=(90, 3)).astype(np.float32), rng.normal(size=90)
    noise = Noise(rng.uniform(0.2, 2, 90), rng.uniform(0, 1, 90)) if known else None
    probes = Probes(X[:7], y[:7], np.array([0, 1, 2, -1, 4, 5, 6]), noise[:7] if known else None)
    x_map, batch = rng.normal(size=(3, 3)), np.array([0, 3, 5])
    found = []
    for of in (CPU(1), engine):
        learner = of.learner(of.whiten(as_they_are(3), X), y, 0, noise)
        near = learner.neighborhoods(probes, x_map, 31)
        found.append(near.map_gradient(batch, KERNELS["matern52"], x_map, np.array([0.9, 0.05]), 0.3, 1.1))
        law = learner.after(x_map).neighborhoods(probes.after(x_map), 1.0, 20).predict(
            KERNELS["rbf"], Hyperparameters(1.0, 0.9, 0.05)
        )[0]  # fmt: skip
        mapped = of.learner(of.whiten(as_they_are(3), (X @ x_map).astype(np.float32)), y, 0, noise)
        again = mapped.neighborhoods(probes.after(x_map), 1.0, 20).predict(
            KERNELS["rbf"], Hyperparameters(1.0, 0.9, 0.05)
        )[0]  # fmt: skip
        np.testing.assert_allclose(law.mean, again.mean, rtol=1e-4)
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_probes_learn_from_the_rows_chosen_for_them(engine, rng):
    X = rng.normal(size=(50, 3)).astype(np.float32)
    y, chosen = np.sin(X[:, 0]), rng.permuted(np.tile(np.arange(10, 50), (4, 1)), axis=1)[:, :12]
    probes, kernel, params = Probes(X[:4], y[:4], np.arange(4)), KERNELS["matern32"], Hyperparameters(0.7, 0.9, 0.05)
    laws = []
    for of in (CPU(1), engine):
        learner = of.learner(of.whiten(as_they_are(3), X), y, seed=0)
        laws.append(learner.among(probes, chosen).predict(kernel, params)[0])
    np.testing.assert_allclose(laws[1].mean, laws[0].mean, rtol=1e-8)
    exact = make_solver("reference")(X[:4], X[chosen], y[chosen], kernel, params)
    np.testing.assert_allclose(laws[1].mean, exact.mean, rtol=1e-5)
    np.testing.assert_allclose(laws[1].variance, exact.variance, rtol=1e-5)


def test_singular_probes_are_passed_over_in_learning(engine):
    X, y = np.zeros((20, 2), np.float32), np.arange(20.0)
    learner = engine.learner(engine.whiten(as_they_are(2), X), y, seed=0)
    near = learner.neighborhoods(Probes(X[:4], y[:4], np.arange(4)), 1.0, 5)
    gradient, count, _ = near.gradient(np.arange(4), KERNELS["rbf"], np.array([1.0, 1.0, 1.0, 0.0]), 0.3, 1.0)
    assert count == 0
    np.testing.assert_array_equal(gradient, 0)
    law, innovations = near.predict(KERNELS["rbf"], Hyperparameters(1.0, 1.0, 0.0))
    assert np.isinf(law.variance).all()
    np.testing.assert_array_equal(innovations, 1)


def test_a_model_fitted_on_one_engine_predicts_on_another(engine, data, tmp_path):
    X, y, queries = data
    settings = {"params": Hyperparameters(0.5, 0.9, 0.05), "kernel": "matern32", "n_neighbors": 15, "random_state": 0}
    here = GPnnRegressor(**settings, calibration_size=12, n_jobs=1).fit(X, y)
    there = GPnnRegressor(**settings, calibration_size=12, n_jobs=1, engine=engine).fit(X, y)
    assert there.fit_report_["engine"] == engine.describe()
    there.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    assert loaded.engine == "cpu"  # where work runs is a matter of the machine, not of the model
    true = here.predict_distribution(queries)
    for model in (there, loaded, here.set_params(engine=engine)):
        law = model.predict_distribution(queries)
        assert (np.abs(law.mean - true.mean) / true.std).max() < 1e-3
        np.testing.assert_allclose(law.variance, true.variance, rtol=1e-3)
    np.testing.assert_array_equal(loaded.kneighbors(queries).indices, there.kneighbors(queries).indices)


def test_patches_are_held_out_on_any_engine(engine, data):
    X, y, queries = data
    settings = {"params": REGIMES["ard"], "n_neighbors": 5, "holdout": "patches", "calibration_size": 10}
    model = GPnnRegressor(**settings, random_state=0, n_jobs=1, engine=engine).fit(X, y)
    same = GPnnRegressor(**settings, random_state=0, n_jobs=1).fit(X, y)
    np.testing.assert_array_equal(model.calibration_rows_, same.calibration_rows_)
    np.testing.assert_allclose(model.predict(queries), same.predict(queries), rtol=1e-3)


def test_parameters_in_other_units_give_the_same_means(built, data):
    """Both variances times a factor: the same means, variances times that."""
    args = (data[2], np.array([10]), KERNELS["rbf"])
    one, ten = (built.path(*args, replace(REGIMES["typical"].scaled(alpha))) for alpha in (1.0, 10.0))
    np.testing.assert_allclose(ten.mean, one.mean, rtol=1e-5)
    np.testing.assert_allclose(ten.variance, 10 * one.variance, rtol=1e-5)
