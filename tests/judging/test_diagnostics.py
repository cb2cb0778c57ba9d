import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import BayesianRidge, LinearRegression

from gpnn import CalibratedRegressor, GPnnRegressor, Hyperparameters, InvalidInputError
from gpnn.diagnostics import Cloud, diagnose, findings, verdict
from gpnn.judging.diagnostics.measure import importances
from gpnn.stages.whitening import Whitener

PARAMS = Hyperparameters(1.0, 0.9, 0.1)


def titles(found) -> str:
    return "; ".join(finding.title for finding in found.findings)


def test_says_what_evaluate_and_diagnose_say(wavy, wavy_model, wavy_diagnosis):
    X, y = wavy[0][2000:2500], wavy[1][2000:2500]
    assert wavy_diagnosis.scores == wavy_model.evaluate(X, y, units="y")
    assert wavy_diagnosis.whitened_scores == wavy_model.evaluate(X, y)
    assert list(wavy_diagnosis.reliability.pit) == wavy_model.diagnose(X, y)["pit"]
    assert wavy_diagnosis.explained == pytest.approx(wavy_model.score(X, y))


def test_a_good_fit_is_trusted(wavy_diagnosis):
    assert wavy_diagnosis.verdict.trusted
    assert wavy_diagnosis.verdict.sentence.startswith("Trust these intervals: 90 % intervals hold ")
    assert "of 500 test rows." in wavy_diagnosis.verdict.sentence
    assert not [finding for finding in wavy_diagnosis.findings if finding.severity == "warning"]


def test_the_record_of_the_fit(wavy_model, wavy_diagnosis):
    fit = wavy_diagnosis.fit
    assert (fit.n_rows, fit.kernel, fit.n_neighbors) == (2000, wavy_model.kernel_, wavy_model.n_neighbors_)
    assert len(fit.candidates) > 4
    assert fit.noise_floor == pytest.approx(0.7, rel=0.1)  # the standard deviation of the noise
    assert 2000 * (3 * 4 + 8) < fit.model_bytes < 3e6  # rows in float32 and targets, with little beside
    assert fit.peak_bytes > 1e7
    assert set(fit.seconds) >= {"learn", "index", "calibrate"}
    assert (fit.repeated_rows, fit.seen_rows, fit.far_rows) == (0, 0, pytest.approx(0, abs=0.01))


def test_the_m_curve_is_zero_at_its_best(wavy_diagnosis):
    _, rmse, nll = zip(*wavy_diagnosis.fit.m_losses, strict=True)
    assert min(rmse) == min(nll) == 0


def test_columns_come_by_importance(wavy_diagnosis):
    values = [column.importance for column in wavy_diagnosis.fit.columns]
    assert values == sorted(values, reverse=True)
    assert wavy_diagnosis.fit.columns[0].name == "column 0"  # sin(2x), against products of the other two


@pytest.mark.parametrize("mode", ["diagonal", "full"])
def test_importance_is_the_inverse_lengthscale_whatever_the_units(rng, mode):
    X = rng.normal(size=(20_000, 3)) * [1.0, 1e4, 1e-3]  # independent, so that "full" turns no column into another
    plain = importances(Whitener.fit(X, X[:, 0], mode), X)
    np.testing.assert_allclose(plain, 1 / np.sqrt(3), rtol=0.02)
    if mode == "diagonal":
        lengthscales = np.array([0.1, 1.0, 10.0])
        stretched = importances(Whitener.fit(X, X[:, 0], mode).stretched(1 / lengthscales), X)
        np.testing.assert_allclose(stretched, plain / lengthscales)


def test_an_unrefined_lengthscale_counts_too(wavy):
    X, y = wavy
    short, long = (
        diagnose(GPnnRegressor(params=Hyperparameters(length, 0.9, 0.1), n_jobs=1).fit(X[:500], y[:500]), X[500:600],
                 y[500:600]).fit.columns[0].importance
        for length in (0.5, 5.0)
    )  # fmt: skip
    assert short == pytest.approx(10 * long)


def test_goes_into_json(wavy_diagnosis):
    read = json.loads(json.dumps(wavy_diagnosis.as_dict(), allow_nan=False))
    assert read["verdict"]["trusted"] is True
    assert read["reliability"]["coverage_90"] == wavy_diagnosis.reliability.coverage_90


def test_one_row_goes_into_json_too(wavy, wavy_model):
    found = diagnose(wavy_model, wavy[0][2000:2001], wavy[1][2000:2001])
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["calibration_interval"] == [0.0, None]


def test_the_target_is_named_by_its_series(wavy, wavy_model):
    X, y = wavy[0][2000:2100], pd.Series(wavy[1][2000:2100], name="depth")
    assert diagnose(wavy_model, X, y).target == "depth"
    assert diagnose(wavy_model, X, y.to_numpy()).target == "y"


def test_other_estimators_have_predictions_but_no_record(wavy):
    X, y = wavy
    found = diagnose(
        CalibratedRegressor(BayesianRidge(), random_state=0).fit(X[:2000], y[:2000]), X[2000:2500], y[2000:2500]
    )
    assert found.fit is None
    assert found.model == "CalibratedRegressor"


def test_a_model_without_a_law_is_refused(wavy):
    with pytest.raises(InvalidInputError, match="CalibratedRegressor"):
        diagnose(LinearRegression().fit(*wavy), *wavy)


# --- warnings, each from data that deserve it -------------------------------------------------------------------------


def test_other_noise_than_in_training_is_not_trusted(wavy, wavy_model, rng):
    X, y = wavy[0][2000:2500], wavy[1][2000:2500]
    found = diagnose(wavy_model, X, y + rng.normal(0, 3, len(y)))
    assert not found.verdict.trusted
    assert "too narrow: 90 % intervals hold only" in found.verdict.sentence
    assert "Intervals are too narrow" in titles(found)
    assert "Variances are too small on average" in titles(found)


def test_too_wide_intervals_are_told(wavy, wavy_model):
    X = wavy[0][2000:2500]
    found = diagnose(wavy_model, X, wavy_model.predict(X) + 0.01)
    assert "wider than they need be" in found.verdict.sentence
    assert "Intervals are too wide" in titles(found)
    assert "α rests on 500 rows, ±" in found.findings[0].cause
    assert all(finding.cause.endswith(".") and finding.cure.endswith(".") for finding in found.findings)


def test_a_bad_tenth_spoils_the_verdict(wavy_diagnosis):
    tenths = wavy_diagnosis.reliability.tenths
    uneven = (*tenths[:-1], replace(tenths[-1], coverage=0.6))
    found = replace(wavy_diagnosis, reliability=replace(wavy_diagnosis.reliability, tenths=uneven))
    assert not verdict(found).trusted
    assert "but only 60.0 % of the tenth of which the model is least sure." in verdict(found).sentence
    assert findings(found)[0].title == "Intervals are right on average, not everywhere"


def test_a_shifted_target_is_found(wavy, wavy_model):
    assert "off to one side" in titles(diagnose(wavy_model, wavy[0][2000:2500], wavy[1][2000:2500] + 1))


def test_shuffled_rows_explain_nothing(wavy, wavy_model, rng):
    assert "inputs say little" in titles(diagnose(wavy_model, wavy[0][2000:2500], rng.permutation(wavy[1][2000:2500])))


def test_test_rows_that_were_trained_on_are_found(wavy, wavy_model):
    assert "among the training rows" in titles(diagnose(wavy_model, wavy[0][:500], wavy[1][:500]))


def test_far_rows_are_found(wavy, wavy_model):
    found = diagnose(wavy_model, wavy[0][2000:2500] * 3, wavy[1][2000:2500])
    outside = [finding for finding in found.findings if "outside the training data" in finding.title]
    assert [finding.severity for finding in outside] == ["warning"]
    assert "(gpnn fit --group or --time)" in outside[0].cure
    assert "recalibrate" in outside[0].cure


def test_far_rows_are_found_without_a_far_part_too(wavy):
    model = GPnnRegressor(params=PARAMS, n_jobs=1).fit(wavy[0][:500], wavy[1][:500])
    found = diagnose(model, wavy[0][2000:2500] * 5, wavy[1][2000:2500])
    assert found.support is None
    assert "outside the training data" in titles(found)


def test_rows_are_counted_by_support(wavy, wavy_model, wavy_diagnosis):
    support = wavy_diagnosis.support
    law = wavy_model.predict_distribution(wavy[0][2000:2500])
    z_squared = (wavy[1][2000:2500] - law.mean) ** 2 / law.variance
    inside = law.support >= 0.01
    assert (support.inside.n_rows, support.outside.n_rows) == (inside.sum(), (~inside).sum())
    assert support.inside.z_squared == pytest.approx(z_squared[inside].mean())
    assert support.parts[0] == support.outside or support.outside.n_rows == 0
    assert sum(part.n_rows for part in support.parts) == 500
    assert sum(part.n_rows * part.coverage for part in support.parts if part.n_rows) == pytest.approx(
        500 * wavy_diagnosis.reliability.coverage_90
    )
    assert not support.foreseen
    assert support.share_outside < 0.05


@pytest.mark.parametrize(
    ("share", "coverage", "foreseen", "expected"),
    [
        (0.01, 0.5, False, []),
        (0.06, 0.9, False, ["note"]),
        (0.4, 0.9, False, ["warning"]),
        (0.4, 0.9, True, []),
        (0.4, 0.7, False, ["warning", "warning: narrow"]),
        (0.4, 0.7, True, ["warning: narrow"]),
        (0.4, 0.99, True, ["note: wide"]),
    ],
)
def test_how_rows_outside_the_support_are_judged(wavy_diagnosis, share, coverage, foreseen, expected):
    n = round(500 * share)
    support = wavy_diagnosis.support
    outside = replace(support.outside, n_rows=n, coverage=coverage, z_squared=1.5)
    support = replace(support, outside=outside, inside=replace(support.inside, n_rows=500 - n), foreseen=foreseen)
    about = [
        finding.severity + finding.title.removeprefix("Intervals outside the support are too").replace(" ", ": ")
        if finding.title.startswith("Intervals outside")
        else finding.severity
        for finding in findings(replace(wavy_diagnosis, support=support))
        if "outside" in finding.title
    ]
    assert about == expected


def test_who_was_told_of_groups_foresees_them(wavy, few_steps):
    X, y = wavy[0][:600], wavy[1][:600]
    groups = np.arange(600) % 20
    model = GPnnRegressor(kernel="rbf", whitening="diagonal", n_neighbors=32, n_jobs=1, random_state=0)
    found = diagnose(model.fit(X, y, groups=groups), wavy[0][2000:2300] * 2, wavy[1][2000:2300])
    assert found.support.foreseen
    assert "outside the training data" not in titles(found)


def test_few_rows_do_not_convince(wavy, wavy_model):
    found = diagnose(wavy_model, wavy[0][2000:2050], wavy[1][2000:2050])
    assert not found.verdict.trusted
    assert "Only 50 test rows" in titles(found)


def test_heavy_tails_are_found(wavy, wavy_model, rng):
    y = wavy[1][2000:2500].copy()
    y[:5] += 30
    assert "heavy tails" in titles(diagnose(wavy_model, wavy[0][2000:2500], y))


def test_constant_columns_repeated_rows_and_no_calibration_are_found(wavy):
    X = np.column_stack([wavy[0], np.ones(3000)])
    frame = pd.DataFrame(X, columns=["a", "b", "c", "always"])
    twice = pd.concat([frame[:400], frame[:400]], ignore_index=True)
    model = GPnnRegressor(params=PARAMS, whitening="diagonal", calibration_size=0, n_jobs=1)
    model.fit(twice, np.tile(wavy[1][:400], 2))
    found = diagnose(model, frame[500:800], wavy[1][500:800])
    for title in ("Columns without effect", "Training rows repeat", "Not calibrated"):
        assert title in titles(found)
    assert "always" in next(f.cause for f in found.findings if f.title == "Columns without effect")


@pytest.mark.parametrize(
    ("change", "title"),
    [
        ({"recall": 0.8}, "misses neighbours"),
        ({"jitter": 1e-6}, "Singular systems"),
        ({"alpha": 1.0, "alpha_interval": (0.5, 1.5)}, "calibration factor is uncertain"),
        ({"n_neighbors": 400}, "More neighbours may help"),
        ({"noise_floor": 0.01}, "room above the noise floor"),
    ],
)
def test_what_the_fit_recorded_is_judged(wavy_diagnosis, change, title):
    before = replace(wavy_diagnosis, fit=replace(wavy_diagnosis.fit, n_neighbors=64))
    assert title not in "; ".join(finding.title for finding in findings(before))
    found = replace(before, fit=replace(before.fit, **change))
    assert title in "; ".join(finding.title for finding in findings(found))


def test_every_finding_has_a_cause_and_a_cure(wavy, wavy_model):
    found = diagnose(wavy_model, wavy[0][:150] * 2, -wavy[1][:150])
    assert len(found.findings) > 3
    assert all(finding.cause.endswith(".") and finding.cure.endswith(".") for finding in found.findings)
    order = [finding.severity for finding in found.findings]
    assert order == sorted(order, reverse=True)  # "warning" before "note"


# --- the cloud --------------------------------------------------------------------------------------------------------


def test_few_rows_are_points(rng):
    x = rng.normal(size=100)
    cloud = Cloud.of(x, x + 1)
    assert cloud.cell is None
    assert cloud.observed == tuple(x)


def test_many_rows_are_counted_in_cells(rng):
    observed, predicted = rng.normal(size=(2, 50_000))
    cloud = Cloud.of(observed, predicted)
    assert sum(cloud.counts) == 50_000
    assert len(cloud.counts) < 2304
    assert np.average(cloud.observed, weights=cloud.counts) == pytest.approx(observed.mean(), abs=cloud.cell)
    assert max(cloud.observed) + cloud.cell / 2 == pytest.approx(max(observed.max(), predicted.max()), abs=cloud.cell)


def test_a_cloud_without_extent():
    assert Cloud.of(np.full(5000, 7.0), np.full(5000, 7.0)).counts == (5000,)


@pytest.mark.filterwarnings("ignore::gpnn.GPnnWarning")
def test_wrong_targets_are_listed(wavy, few_steps):
    X, y = wavy[0][:1000], wavy[1][:1000].copy()
    y[[3, 500, 900]] = -9999.0
    model = GPnnRegressor(kernel="matern52", whitening="diagonal", random_state=0, n_jobs=1).fit(X, y)
    found = next(one for one in diagnose(model, *(part[2000:2200] for part in wavy)).findings if "wrong" in one.title)
    assert found.severity == "warning"
    assert "3 of 1,000 were left out" in found.cause
    assert all(f"row {row} (-9999, expected" in found.cause for row in (3, 500, 900))
    assert "-9999 seems to stand for something else" in found.cause
