import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpnn import Hyperparameters, InvalidInputError, Prediction
from gpnn.baselines import BCM, GRBCM, RBCM, ExactGP, GPoE, PoE
from gpnn.baselines.experts import aggregate, bcm, gpoe, grbcm, poe, rbcm

ALL = [PoE, GPoE, BCM, RBCM, GRBCM]
PARAMS = Hyperparameters(0.8, 1.7, 0.05)


@parametrize_with_checks([kind(expert_size=50, n_steps=5, random_state=0) for kind in ALL])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)


# --- the rules --------------------------------------------------------------------------------------------------------


@pytest.fixture
def laws(rng):
    """Four experts' laws of f* at 50 queries, no variance above the prior's 1.7."""
    return [Prediction(rng.normal(size=50), rng.uniform(0.01, 1.7, size=50)) for _ in range(4)]


PRIOR = Prediction(np.zeros(1), np.full(1, 1.7))


def test_rules_as_published(laws):
    mean, variance = (np.array([getattr(law, name) for law in laws]) for name in ("mean", "variance"))
    entropy = 0.5 * (np.log(1.7) - np.log(variance))

    def check(law, beta, prior_share):
        precision = (beta / variance).sum(axis=0) + prior_share / 1.7
        np.testing.assert_allclose(law.variance, 1 / precision)
        np.testing.assert_allclose(law.mean, (beta * mean / variance).sum(axis=0) / precision)

    check(poe(laws), 1.0, 0.0)
    check(gpoe(laws, 4), 0.25, 0.0)
    check(bcm(laws, PRIOR), 1.0, 1 - 4)
    check(rbcm(laws, PRIOR), entropy, 1 - entropy.sum(axis=0))


def test_grbcm_as_published(laws):
    communication, *augmented = laws
    smaller = [Prediction(law.mean, communication.variance * law.variance / 1.7) for law in augmented]
    beta = np.array([0.5 * np.log(communication.variance / law.variance) for law in smaller])
    beta[0] = 1
    precision = sum(b / law.variance for b, law in zip(beta, smaller, strict=True))
    precision = precision - (beta.sum(axis=0) - 1) / communication.variance
    product = sum(b * law.mean / law.variance for b, law in zip(beta, smaller, strict=True))
    product = product - (beta.sum(axis=0) - 1) * communication.mean / communication.variance
    law = grbcm(smaller, communication)
    np.testing.assert_allclose(law.mean, product / precision)
    np.testing.assert_allclose(law.variance, 1 / precision)


def test_rbcm_with_all_weights_one_is_bcm(laws):
    ones, committee = aggregate(laws, lambda i, law: np.ones(50), PRIOR), bcm(laws, PRIOR)
    np.testing.assert_array_equal(ones.mean, committee.mean)
    np.testing.assert_array_equal(ones.variance, committee.variance)


def test_where_experts_know_nothing_the_prior_returns_except_for_poe():
    nothing = [Prediction(np.zeros(3), np.full(3, 1.7))] * 6
    for law in (gpoe(nothing, 6), bcm(nothing, PRIOR), rbcm(nothing, PRIOR), grbcm(nothing, nothing[0])):
        np.testing.assert_allclose(law.variance, 1.7)
    np.testing.assert_allclose(poe(nothing).variance, 1.7 / 6)


# --- the estimators ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exact(wavy):
    X, y = wavy
    return ExactGP(params=PARAMS).fit(X[:300], y[:300]).predict_distribution(X[2000:2100])


@pytest.mark.parametrize(
    ("kind", "expert_size"), [(PoE, 300), (GPoE, 300), (BCM, 300), (GRBCM, 300), (GRBCM, 150)]
)  # one expert, and one beside the communication expert
def test_one_expert_is_the_exact_process(wavy, exact, kind, expert_size):
    X, y = wavy
    model = kind(expert_size=expert_size, params=PARAMS, random_state=0).fit(X[:300], y[:300])
    assert model.n_experts_ == 300 // expert_size
    law = model.predict_distribution(X[2000:2100])
    np.testing.assert_allclose(law.mean, exact.mean, rtol=1e-6)
    np.testing.assert_allclose(law.variance, exact.variance, rtol=1e-6)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("kernel", ["rbf", "exponential"])
def test_variances_are_positive_and_include_the_noise(wavy, kind, kernel):
    X, y = wavy
    params = Hyperparameters(3.0, 50.0, 1e-6)
    model = kind(expert_size=100, kernel=kernel, params=params, random_state=0).fit(X[:600], y[:600])
    near, far = X[:50], np.full((1, 3), 1e20)
    variance = model.predict_distribution(np.concatenate([near, X[600:700], far])).variance
    assert (variance >= 1e-6 * model.whitener_.y_std**2).all()
    share = 1 / 6 if kind is PoE else 1
    assert variance[-1] == pytest.approx((50.0 * share + 1e-6) * model.whitener_.y_std**2)


@pytest.mark.parametrize("kind", ALL)
def test_learns(wavy, kind):
    X, y = wavy
    model = kind(expert_size=250, optimizer="lbfgs", random_state=0).fit(X[:1000], y[:1000])
    scores = model.evaluate(X[2000:], y[2000:])
    assert scores["rmse"] < 0.3
    assert 0.2 < scores["calibration"] < 2


def test_experts_are_a_random_partition_into_equal_sizes(wavy):
    X, y = wavy
    model = PoE(expert_size=150, params=PARAMS, random_state=0).fit(X[:1000], y[:1000])
    assert sorted(len(part) for part in model._X) == [142, 143, 143, 143, 143, 143, 143]
    np.testing.assert_allclose(np.sort(np.concatenate(model._y)), np.sort(model.whitener_.transform_y(y[:1000])))
    assert not np.array_equal(np.concatenate(model._y), model.whitener_.transform_y(y[:1000]))


def test_same_seed_same_numbers_whatever_the_threads(wavy):
    X, y = wavy
    settings = {"expert_size": 150, "n_steps": 5, "random_state": 3}
    one = RBCM(n_jobs=1, **settings).fit(X[:500], y[:500])
    three = RBCM(n_jobs=3, **settings).fit(X[:500], y[:500])
    assert one.params_ == three.params_
    np.testing.assert_array_equal(one.predict(X[2000:]), three.predict(X[2000:]))
    np.testing.assert_array_equal(one.predict(X[2000:]), pickle.loads(pickle.dumps(one)).predict(X[2000:]))


def test_settings_and_failed_fits(wavy):
    X, y = (part[:100] for part in wavy)
    for settings in ({"expert_size": 1}, {"n_steps": 0}, {"optimizer": "sgd"}, {"kernel": "gauss"}):
        with pytest.raises(InvalidInputError, match=next(iter(settings))):
            PoE(**settings).fit(X, y)
    model = PoE(expert_size=50, params=PARAMS).fit(X, y)
    with pytest.raises(InvalidInputError):
        model.set_params(expert_size=0).fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)
