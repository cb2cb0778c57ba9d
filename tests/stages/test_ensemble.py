"""Several candidates that answer together."""

import numpy as np

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.common.kernels import get_kernel
from gpnn.engines import make_engine
from gpnn.stages.candidates import Candidate
from gpnn.stages.ensemble import Companion, Ensemble, Together, contenders
from gpnn.stages.weighing import Weighing
from gpnn.stages.whitening import Whitener


def test_contenders_are_the_leaders_of_kinds_in_their_metric(rng):
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    whiteners = {"diagonal": Whitener.fit(X, y, "diagonal"), "full": Whitener.fit(X, y, "full")}
    lengthscales, x_map = np.array([2.0, 0.5]), np.array([[1.0, 0.3], [0.0, 1.0]])
    params = Hyperparameters(lengthscales, 1.0, 0.1)
    tried = [
        Candidate("diagonal", "rbf", True, params, x_map=x_map),
        Candidate("diagonal", "rbf", True, params.scaled(2.0), x_map=x_map),
        Candidate("diagonal", "rbf", True, params),
        Candidate("full", "matern32", True, params),
    ]
    found = contenders(tried, whiteners, 3)
    assert [one.told["mapped"] for one in found] == [True, False, False]
    assert [one.kernel for one in found] == ["rbf", "rbf", "matern32"]
    assert found[0].params == Hyperparameters(1.0, 1.0, 0.1)
    np.testing.assert_allclose(
        found[0].whitener.transform(X), whiteners["diagonal"].transform(X) @ x_map / lengthscales, atol=1e-6
    )


def test_together_is_every_member_by_itself_weighed(rng):
    """Against two models that were fitted alone."""
    X = rng.uniform(-2, 2, size=(600, 2))
    y, X_star = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=600), rng.uniform(-2, 2, size=(40, 2))
    given = {"rbf": Hyperparameters(0.8, 1.0, 0.01), "exponential": Hyperparameters(2.0, 1.0, 0.02)}
    alone = [
        GPnnRegressor(kernel=kernel, params=params, whitening=whitening, n_neighbors=m, random_state=0).fit(X, y)
        for (kernel, params), whitening, m in zip(given.items(), ("diagonal", "full"), (30, 50), strict=True)
    ]
    first, second = alone
    other = Companion(
        "exponential", second.whitener_, second.params_, 50, second.alpha_, second.floor_, second._scale, False,
        second.index_, second._y,
    )  # fmt: skip
    weighing = Weighing(np.array([0.7, 0.3]), 1.1, 0.001)
    near = Together(**vars(first._near()), ensemble=Ensemble([other], weighing))
    assert near.kernel == get_kernel("rbf")
    law, claimed, *_ = near.law(make_engine("cpu").hold(first.index_, first._y), X_star)
    laws = [model._near().law(make_engine("cpu").hold(model.index_, model._y), X_star) for model in alone]
    np.testing.assert_array_equal(claimed, laws[0][1])  # the support is the winner's
    expected = weighing([laws[0][0], laws[1][0]])
    np.testing.assert_allclose(law.mean, expected.mean)
    np.testing.assert_allclose(law.variance, expected.variance)


class _Beyond:
    """Stands in for models for gaps: the support ends at a claimed variance."""

    def __init__(self, edge):
        self.edge, self.mixture = edge, self

    def ramp(self, claimed):
        return np.clip((claimed - self.edge) / self.edge, 0, 1)


def test_beyond_the_support_the_winner_is_alone(rng):
    X = rng.uniform(-2, 2, size=(500, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=500)
    params, X_star = Hyperparameters(0.5, 1.0, 0.01), rng.uniform(-4, 4, size=(60, 2))
    model = GPnnRegressor(kernel="rbf", params=params, whitening="diagonal", n_neighbors=20, random_state=0).fit(X, y)
    engine = make_engine("cpu").hold(model.index_, model._y)
    other = Companion(
        "rbf", model.whitener_, model.params_.scaled(4.0), 20, 1.0, 0.0, None, False, model.index_, -model._y
    )
    members = Ensemble([other], Weighing(np.array([0.5, 0.5])))
    alone, claimed, *_ = model._near().law(engine, X_star)
    far = _Beyond(np.quantile(claimed, 0.1))
    law, *_ = Together(**vars(model._near()), ensemble=members, far=far).law(engine, X_star)
    beyond, inside = claimed > 2 * far.edge, claimed < far.edge
    assert beyond.any()
    assert inside.any()
    np.testing.assert_array_equal(law.mean[beyond], alone.mean[beyond])
    np.testing.assert_array_equal(law.variance[beyond], alone.variance[beyond])
    np.testing.assert_allclose(law.mean[inside], 0, atol=1e-6)
    everywhere, *_ = Together(**vars(model._near()), ensemble=members).law(engine, X_star)
    np.testing.assert_allclose(everywhere.mean, 0, atol=1e-6)
