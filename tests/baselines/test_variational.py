"""SVGP and VNNGP against the exact GP that both approximate, and as estimators among others."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpnn import InvalidInputError, Prediction
from gpnn.baselines import SVGP, VNNGP
from gpnn.errors import MissingExtraError
from gpnn.kernels import get_kernel, squared_distances

try:
    import gpytorch  # noqa: F401
    import torch

    from gpnn.baselines import _gpytorch
except ImportError as error:
    pytest.skip(f"{error.name} is not installed: pip install 'gpnn[baselines]'", allow_module_level=True)

QUICK_SVGP = SVGP(n_inducing=60, batch_size=200, learning_rate=0.05, n_epochs=15, device="cpu", random_state=0)
QUICK_VNNGP = VNNGP(n_neighbors=16, batch_size=64, learning_rate=0.03, n_epochs=6, device="cpu", random_state=0)
BOTH = pytest.mark.parametrize("model", [QUICK_SVGP, QUICK_VNNGP], ids=["SVGP", "VNNGP"])


@parametrize_with_checks(
    [
        SVGP(n_inducing=20, n_epochs=25, learning_rate=0.1, device="cpu", random_state=0),
        VNNGP(n_neighbors=8, batch_size=32, n_epochs=5, learning_rate=0.1, device="cpu", random_state=0),
    ]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def fits(wavy):
    X, y = wavy
    return {type(model): clone(model).fit(X[:1000], y[:1000]) for model in (QUICK_SVGP, QUICK_VNNGP)}


def covariances(model, X, y, X_star):
    """K of the rows, k* of the queries, and z, all in whitened units, with the parameters that `model` learned."""
    p, kernel = model.params_, get_kernel(model.kernel)
    A, B = (np.asarray(model.whitener_.transform(rows), dtype=float) / p.lengthscale for rows in (X, X_star))
    K, k_star = (p.kernel_variance * kernel.correlation(squared_distances(A, rows)) for rows in (A, B))
    return K, k_star, model.whitener_.transform_y(y)


def exact_gp(model, X, y, X_star):
    """The exact GP's law of whitened y*, and its log likelihood per row."""
    K, k_star, z = covariances(model, X, y, X_star)
    p = model.params_
    K += p.noise_variance * np.eye(len(K))
    w = np.linalg.solve(K, k_star)
    evidence = -0.5 * (z @ np.linalg.solve(K, z) + np.linalg.slogdet(K)[1] + len(z) * np.log(2 * np.pi))
    variance = p.kernel_variance + p.noise_variance - (w * k_star).sum(axis=0)
    return Prediction(w.T @ z, variance), evidence / len(z)


def whitened(model, X_star):
    law = model.predict_distribution(X_star)
    return law.affine(-model.whitener_.y_mean / model.whitener_.y_std, 1 / model.whitener_.y_std)


# --- against the exact GP ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(0)
    X, X_star = rng.uniform(-2, 2, size=(40, 2)), rng.uniform(-2, 2, size=(50, 2))
    return X, 3 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=40), X_star


def test_svgp_with_every_row_an_inducing_point_approaches_the_exact_gp(small):
    X, y, X_star = small
    model = SVGP(learning_rate=0.02, n_epochs=600, device="cpu", random_state=0).fit(X, y)
    assert len(model.inducing_points_) == 40
    exact, evidence = exact_gp(model, X, y, X_star)
    law = whitened(model, X_star)
    assert (np.abs(law.mean - exact.mean) / exact.std).max() < 0.05
    np.testing.assert_allclose(law.variance, exact.variance, rtol=0.03)
    assert evidence - 0.01 < model.fit_report_["elbo"] < evidence + 1e-3  # a lower bound, and a tight one


def test_vnngp_with_all_other_rows_as_neighbours_approaches_the_exact_gp(small):
    X, y, X_star = small
    model = VNNGP(n_neighbors=39, learning_rate=0.02, n_epochs=400, device="cpu", random_state=0).fit(X, y)
    exact, evidence = exact_gp(model, X, y, X_star)
    law = whitened(model, X_star)
    assert (np.abs(law.mean - exact.mean) / exact.std).max() < 0.05
    # A diagonal q(u) has variances 1/Λ_ii, where Λ is the precision of u given y; u has the jitter as a nugget.
    K, k_star, _ = covariances(model, X, y, X_star)
    p, prior = model.params_, K + model._jitter * np.eye(40)
    precision = np.linalg.inv(prior) + np.eye(40) / (p.noise_variance - model._jitter)
    w = np.linalg.solve(prior, k_star)
    variance = p.kernel_variance - (w * k_star).sum(axis=0) + (w**2).T @ (1 / np.diag(precision)) + p.noise_variance
    np.testing.assert_allclose(law.variance, variance, rtol=0.03)
    # What that costs: overconfidence, and a gap between bound and evidence.
    assert (law.variance < exact.variance).all()
    assert evidence - 1 < model.fit_report_["elbo"] < evidence


@BOTH
@pytest.mark.parametrize("kernel", ["rbf", "exponential", "matern32", "matern52"])
def test_the_closed_form_predictions_are_gpytorchs(wavy, monkeypatch, model, kernel):
    X, y = wavy
    trained = []
    maximise = _gpytorch._maximise_bound

    def record(gp, *args, **kwargs):
        trained.append(gp)
        return maximise(gp, *args, **kwargs)

    monkeypatch.setattr(_gpytorch, "_maximise_bound", record)
    model = clone(model).set_params(kernel=kernel, n_epochs=3).fit(X[:300], y[:300])
    gp = trained[0].eval()
    X_star = torch.tensor(model.whitener_.transform(X[2000:2100])).to(next(gp.parameters()))
    with torch.no_grad():
        theirs = gp.likelihood(gp(X_star))
    ours = whitened(model, X[2000:2100])
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=2e-4)
    # VNNGP's strategy leaves the jitter out at new rows; ours counts it as the noise that it is at all others.
    nugget = model._jitter if isinstance(model, VNNGP) else 0
    np.testing.assert_allclose(ours.variance - nugget, theirs.variance, atol=2e-4)


def test_earlier_neighbours(rng, monkeypatch):
    monkeypatch.setattr(_gpytorch, "_DISTANCES", 200)  # several blocks
    X = rng.normal(size=(50, 3))
    found = _gpytorch.earlier_neighbors(torch.tensor(X), 7).numpy()
    r2 = squared_distances(X, X)
    for i in range(7, 50):
        np.testing.assert_array_equal(found[i - 7], np.argsort(r2[i, :i])[:7])


# --- as estimators ----------------------------------------------------------------------------------------------------


@BOTH
def test_learns_and_knows_how_well(fits, wavy, model):
    X, y = wavy
    fitted = fits[type(model)]
    scores = fitted.evaluate(X[2000:], y[2000:])
    assert scores["rmse"] < 0.35
    assert scores["nll"] < 0.3  # 1.42 without learning anything
    assert 0.2 < scores["calibration"] < 1.5
    mean, std = fitted.predict(X[2000:2010], return_std=True)
    np.testing.assert_array_equal(mean, fitted.predict(X[2000:2010]))
    assert (std > fitted.whitener_.y_std * np.sqrt(fitted.params_.noise_variance) * (1 - 1e-9)).all()
    assert set(fitted.fit_report_) == {"n", "d", "device", "elbo", "seconds"}
    assert fitted.predict(np.empty((0, 3))).shape == (0,)


@BOTH
def test_far_outside_the_data_the_prior_returns(fits, wavy, model):
    fitted, y = fits[type(model)], wavy[1][:1000]
    mean, std = fitted.predict(np.full((1, 3), 1e25), return_std=True)
    p = fitted.params_
    assert mean[0] == pytest.approx(y.mean(), rel=1e-6)
    assert std[0] == pytest.approx(y.std() * np.sqrt(p.kernel_variance + p.noise_variance), rel=1e-6)


@BOTH
def test_same_seed_same_numbers_and_torchs_own_state_untouched(fits, wavy, model):
    X, y = wavy
    torch.manual_seed(123)
    state = torch.get_rng_state()
    again = clone(model).fit(X[:1000], y[:1000])
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(again.predict(X[2000:]), fits[type(model)].predict(X[2000:]))
    other = clone(model).set_params(random_state=1).fit(X[:1000], y[:1000])
    assert np.abs(other.predict(X[2000:]) - again.predict(X[2000:])).max() > 0


@BOTH
def test_torchs_default_dtype_does_not_matter(fits, wavy, model):
    X, y = wavy
    torch.set_default_dtype(torch.float64)
    try:
        again = clone(model).fit(X[:1000], y[:1000])
    finally:
        torch.set_default_dtype(torch.float32)
    theirs = fits[type(model)]
    assert np.abs(again.predict(X[2000:]) - theirs.predict(X[2000:])).max() < 0.3 * wavy[1].std()
    assert again.fit_report_["elbo"] == pytest.approx(theirs.fit_report_["elbo"], abs=0.05)


@BOTH
def test_pickles_and_predicts_without_torch(fits, wavy, model, tmp_path):
    fitted, X = fits[type(model)], wavy[0][2000:2050]
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps((fitted, X, fitted.predict(X))))
    script = f"""
import pickle, sys
import gpnn
sys.modules["torch"] = sys.modules["gpytorch"] = None
fitted, X, mean = pickle.load(open({str(path)!r}, "rb"))
assert (fitted.predict(X) == mean).all()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@BOTH
@pytest.mark.parametrize("n", [2, 3, 10])
def test_few_rows(wavy, model, n):
    X, y = (part[:n] for part in wavy)
    fitted = clone(model).set_params(whitening="diagonal").fit(X, y)
    mean, std = fitted.predict(wavy[0], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


@BOTH
def test_an_interrupted_fit_leaves_nothing_half_done(fits, wavy, monkeypatch, model):
    X, y = (part[:300] for part in wavy)
    fitted = clone(model).fit(X, y)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.optim.Adam, "step", interrupt)
    state = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X, y)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(NotFittedError):
        fitted.predict(X)


# --- what is refused --------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("missing", ["torch", "gpytorch"])
def test_without_the_extra_the_error_says_how_to_install_it(wavy, monkeypatch, model, missing):
    X, y = (part[:50] for part in wavy)
    monkeypatch.delitem(sys.modules, "gpnn.baselines._gpytorch")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=rf"(?s){missing}.*pip install 'gpnn\[baselines\]'$"):
        clone(model).fit(X, y)


@BOTH
@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "gauss"},
        {"whitening": "pca"},
        {"device": "tpu"},
        {"batch_size": 0},
        {"n_epochs": 0},
        {"n_epochs": 2.5},
        {"learning_rate": 0},
        {"learning_rate": np.inf},
        {"learning_rate": "fast"},
    ],
)
def test_settings(wavy, model, settings):
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        clone(model).set_params(**settings).fit(wavy[0][:50], wavy[1][:50])


def test_sizes(wavy):
    with pytest.raises(InvalidInputError, match="n_inducing"):
        SVGP(n_inducing=0).fit(wavy[0][:50], wavy[1][:50])
    with pytest.raises(InvalidInputError, match="n_neighbors"):
        VNNGP(n_neighbors=0).fit(wavy[0][:50], wavy[1][:50])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_where_there_is_none(wavy):
    with pytest.raises(InvalidInputError, match="sees no CUDA device"):
        SVGP(device="cuda").fit(wavy[0][:50], wavy[1][:50])


@BOTH
def test_a_training_that_diverges_says_so(wavy, model):
    with pytest.raises(InvalidInputError, match="smaller one, such as 1e\\+"):
        clone(model).set_params(learning_rate=1e30).fit(wavy[0][:300], wavy[1][:300])
