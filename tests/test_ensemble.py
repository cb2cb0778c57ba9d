"""`ensemble=` end to end: kept where judges gain, else as if it had not been asked for."""

import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

from gpnn import GPnnRegressor, Hyperparameters, InvalidInputError
from gpnn.stages import ensemble as stage
from gpnn.stages.weighing import Weighing

ALONE = GPnnRegressor(
    refine=False, whitening="diagonal", n_neighbors=40, calibration_size=600, far=False, random_state=0, n_jobs=1
)


def together(sure=-np.inf, **settings):
    """Fitted so that the ensemble is kept if its gain is so many standard errors."""

    def fit(X, y, **told):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stage, "SURE", sure)
            return clone(ALONE).set_params(**({"ensemble": 3} | settings)).fit(X, y, **told)

    return fit


@pytest.fixture(scope="module")
def data():
    """Smooth in one column, with corners and steps in others: no kernel is right for all."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, size=(3000, 3))
    y = np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + np.floor(X[:, 2]) + 0.1 * rng.normal(size=len(X))
    return X[:2400], y[:2400], X[2400:], y[2400:]


@pytest.fixture(scope="module")
def alone(data):
    return clone(ALONE).fit(*data[:2])


@pytest.fixture(scope="module")
def fitted(data):
    return together()(*data[:2])


def test_the_leaders_answer_together(fitted, alone, data):
    X_test, y_test = data[2:]
    told = fitted.fit_report_["ensemble"]
    assert told["kept"]
    assert len(told["members"]) == len(told["weights"]) == 3
    kinds = [(one["whitening"], one["kernel"], one["mapped"]) for one in told["members"]]
    assert len(set(kinds)) == 3
    assert kinds[0] == (alone.fit_report_["whitening"], alone.kernel_, False)
    assert sum(told["weights"]) == pytest.approx(1)
    assert min(told["weights"]) >= 0
    assert told["gain_standard_error"] > 0
    ours, theirs = (model.evaluate(X_test, y_test) for model in (fitted, alone))
    assert ours["rmse"] < 1.02 * theirs["rmse"]
    assert 0.85 < ours["coverage_90"] < 0.95
    assert 0.8 < ours["calibration"] < 1.25
    assert told["gain"] > told["gain_standard_error"]  # it would have been kept anyway
    assert ours["nll"] < theirs["nll"]
    assert not np.array_equal(fitted.predict(X_test), alone.predict(X_test))


def test_the_winner_is_what_it_is_without(fitted, alone, data):
    """So what is left of an ensemble that is not kept is bit for bit what ensemble=1 gives."""
    refused = together(sure=np.inf)(*data[:2])
    told = refused.fit_report_["ensemble"]
    assert not told["kept"]
    assert {"weights", "gain", "gain_standard_error"} <= told.keys()
    X_test = data[2]
    for law in zip(*(model.predict_interval(X_test) for model in (refused, alone)), strict=True):
        np.testing.assert_array_equal(*law)
    np.testing.assert_array_equal(refused.kneighbors(X_test[:5]).indices, fitted.kneighbors(X_test[:5]).indices)
    assert "ensemble" not in alone.fit_report_


def test_each_query_is_answered_from_itself_alone(fitted, data):
    X_test = data[2]
    by_one = np.concatenate([fitted.predict(X_test[k : k + 1]) for k in range(5)])
    np.testing.assert_array_equal(by_one, fitted.predict(X_test)[:5])
    other = copy.copy(fitted).set_params(n_jobs=2, batch_size=7)
    np.testing.assert_array_equal(other.predict(X_test), fitted.predict(X_test))
    mean, _ = fitted.predictor()(X_test)
    np.testing.assert_array_equal(mean, fitted.predict(X_test))


def test_a_file_holds_all_of_them(fitted, data, tmp_path):
    fitted.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    assert len(loaded._ensemble.companions) == len(fitted._ensemble.companions)
    for ours, theirs in zip(fitted.predict_interval(data[2]), loaded.predict_interval(data[2]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_broken_ensemble_is_not_written(fitted, tmp_path):
    broken = copy.copy(fitted)
    weighing = Weighing(np.ones(7) / 7)
    broken._ensemble = stage.Ensemble(fitted._ensemble.companions, weighing)
    with pytest.raises(InvalidInputError, match="weights"):
        broken.save(tmp_path / "model.gpnn")


def test_what_is_a_question_to_one_model_is_refused(fitted, alone, data):
    X, y, X_test, _ = data
    for ask in (
        lambda: fitted.explain(X_test),
        lambda: fitted.influence([0], X_test),
        lambda: fitted.sample_y(X_test),
        lambda: fitted.predict(X_test, return_cov=True),
        lambda: fitted.predict_exceedance(X_test, 0.0),
        lambda: fitted.partial_fit(X_test, np.zeros(len(X_test))),
        lambda: fitted.forget([1]),
        lambda: clone(fitted).fit(X, np.stack([y, -y], axis=1)),
        lambda: clone(fitted).fit_stream(lambda: iter([(X, y)]), "nowhere"),
    ):
        with pytest.raises(InvalidInputError, match="ensemble=1"):
            ask()
    for wrong in (0, -1, 2.5, "auto", True):
        with pytest.raises(InvalidInputError, match="ensemble"):
            clone(alone).set_params(ensemble=wrong).fit(X, y)


def test_what_asks_for_means_and_widths_is_answered_by_all(fitted, data):
    X_test, y_test = data[2:]
    curve = fitted.partial_dependence(X_test[:50], 0, grid=[0.5])
    moved = X_test[:50].copy()
    moved[:, 0] = 0.5
    assert curve.mean[0] == pytest.approx(fitted.predict(moved).mean())
    assert fitted.relevance().share.sum() == pytest.approx(1)
    wider = copy.copy(fitted).recalibrate(X_test, fitted.predict(X_test) + 3 * (y_test - fitted.predict(X_test)))
    ratio = wider.predict(X_test, return_std=True)[1] / fitted.predict(X_test, return_std=True)[1]
    assert np.median(ratio) > 2


def test_few_rows_and_given_parameters_leave_the_winner_alone(data):
    X, y = data[:2]
    few = together()(X[:1000], y[:1000])
    assert not few.fit_report_["ensemble"]["kept"]
    assert "2,000" in few.fit_report_["ensemble"]["why"]
    given = together(params=Hyperparameters(1.0, 1.0, 0.1))(X, y)
    assert "no second" in given.fit_report_["ensemble"]["why"]


def test_a_second_fit_forgets_the_first(fitted, alone, data):
    again = copy.copy(fitted).set_params(ensemble=1).fit(*data[:2])
    np.testing.assert_array_equal(again.predict(data[2]), alone.predict(data[2]))


def test_rows_that_were_hidden_return_to_every_member(data):
    X, y, X_test, y_test = data
    model = together(holdout=KFold(2, shuffle=True, random_state=0))(X, y)
    assert "return rows" in model.fit_report_["seconds"]
    assert all(len(one.y) == len(X) for one in model._ensemble.companions)
    assert len(together(return_rows=False)(X, y)._ensemble.companions[0].y) == len(X) - 600
    assert model.evaluate(X_test, y_test)["rmse"] < 0.4


def test_noise_that_is_known_goes_to_every_member(data):
    X, y, X_test, y_test = data
    rng = np.random.default_rng(0)
    known = np.where(rng.random(len(X)) < 0.3, 1.0, 0.0)
    model = together()(X, y + np.sqrt(known) * rng.normal(size=len(X)), noise_variance=known)
    assert all(one.noise is not None for one in model._ensemble.companions)
    scores = model.evaluate(X_test, y_test, noise_variance=0.0)
    assert 0.6 < scores["calibration"] < 1.5
    assert scores["rmse"] < 0.4


def test_far_from_all_rows_the_winner_and_the_models_for_gaps_answer(data, few_steps):
    X, y, X_test, _ = data
    model = together(far=True)(X, y)
    alone = copy.copy(model)
    alone._ensemble = None
    beyond = X_test[:50] + 5
    ours, theirs = (one.predict_distribution(beyond) for one in (model, alone))
    np.testing.assert_array_equal(ours.mean, theirs.mean)
    np.testing.assert_array_equal(ours.variance, theirs.variance)
    assert (ours.support < 0.01).all()
    assert not np.array_equal(model.predict(X_test), alone.predict(X_test))


def test_a_learned_metric_is_each_members_own(data, few_steps):
    X, y, X_test, y_test = data
    model = together(refine="columns", kernel="auto")(X, y)
    companions = model._ensemble.companions
    assert not any(np.array_equal(one.whitener.x_map, model.whitener_.x_map) for one in companions)
    assert model.evaluate(X_test, y_test)["rmse"] < 0.25
