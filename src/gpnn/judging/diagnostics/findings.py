"""What a diagnosis means: a verdict in one sentence, and warnings, each with its cause and its cure."""

from __future__ import annotations

from collections.abc import Iterator

from gpnn.common.errors import listed
from gpnn.common.reliability import sampling_error
from gpnn.judging.diagnostics.values import Diagnostics, Finding, FitRecord, Support, Verdict
from gpnn.stages.far import OUTSIDE

_SURE = 2.6  # standard errors: beyond, it is hardly chance (1 %)
_COVERAGE_OFF = 0.02  # of the 90 % intervals of all rows
_TENTH_UNEVEN, _TENTH_BAD = 0.05, 0.1  # of those of a tenth of the rows; the latter is twice the misses promised
_CALIBRATION_OFF = 0.1
_HEAVY_TAIL = 0.25
_FEW_ROWS = 200
_MANY_OUTSIDE, _SOME_OUTSIDE, _FEWEST_OUTSIDE = 0.1, 0.03, 30  # of the support: shares, and rows for a judgement


def verdict(found: Diagnostics) -> Verdict:
    """Are the intervals as wide as they should be?"""
    off = _coverage_off(found)
    if off < 0:
        return Verdict(False, f"Do not trust these intervals, they are too narrow: {_held(found, 'only ')}")
    if off > 0:
        return Verdict(False, f"These intervals are wider than they need be: {_held(found)}")
    if found.n_rows < _FEW_ROWS:
        return Verdict(False, f"Too few test rows to be sure: {_held(found)}")
    bad = _tenths_off(found, _TENTH_BAD)
    if bad:
        but = f", but only {percent(found.reliability.tenths[bad[0] - 1].coverage)} of {_tenth(found, bad[0])}."
        return Verdict(False, f"Trust these intervals on average only: {_held(found).removesuffix('.')}{but}")
    return Verdict(True, f"Trust these intervals: {_held(found)}")


def findings(found: Diagnostics) -> tuple[Finding, ...]:
    """All that is worth knowing, warnings first."""
    everything = [*_of_predictions(found), *(_of_fit(found, found.fit) if found.fit else ())]
    return tuple(sorted(everything, key=lambda finding: finding.severity != "warning"))


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _held(found: Diagnostics, only: str = "") -> str:
    return f"90 % intervals hold {only}{percent(found.reliability.coverage_90)} of {found.n_rows:,} test rows."


def _coverage_off(found: Diagnostics) -> float:
    """Coverage less 90 %, or 0 where the difference is small or may be chance."""
    difference = found.reliability.coverage_90 - 0.9
    tolerated = max(_COVERAGE_OFF, sampling_error(0.9, found.n_rows, _SURE))
    return difference if abs(difference) > tolerated else 0.0


def _alpha_error(found: Diagnostics) -> str:
    """How far chance may have moved α, where that is known."""
    if found.fit is None or found.fit.calibration_size == 0:
        return ""
    low, high = found.fit.alpha_interval
    return f": α rests on {found.fit.calibration_size:,} rows, ±{percent((high - low) / 2 / found.fit.alpha, 0)}"


def _tenths_off(found: Diagnostics, least: float) -> list[int]:
    """Numbers of the tenths (1: the surest) that miss their 90 % intervals by `least` too often, the worst first."""
    tenths = dict(enumerate(found.reliability.tenths, start=1))
    tolerated = {k: max(least, sampling_error(0.9, tenth.n_rows, _SURE + 0.5)) for k, tenth in tenths.items()}
    return sorted((k for k in tenths if tenths[k].coverage < 0.9 - tolerated[k]), key=lambda k: tenths[k].coverage)


def _tenth(found: Diagnostics, number: int) -> str:
    last = len(found.reliability.tenths)
    which = {1: "the tenth of which the model is surest", last: "the tenth of which the model is least sure"}
    return which.get(number, f"tenth number {number} by predicted sd")


def _of_predictions(found: Diagnostics) -> Iterator[Finding]:
    scores, tenths = found.scores, found.reliability.tenths
    off = _coverage_off(found)
    if off:
        yield Finding(
            "warning",
            "Intervals are too narrow" if off < 0 else "Intervals are too wide",
            f"{_held(found)} The rows on which the model was calibrated were {'easier' if off < 0 else 'harder'} than "
            f"these: the test rows come from another time, place or population, or by chance{_alpha_error(found)}.",
            "Say what the rows to be predicted are: fit(X, y, groups=…) if of new groups, times=… if later "
            "(gpnn fit --group or --time), holdout='patches' if they lie in gaps. Or, with recent outcomes, "
            "model.recalibrate(X_recent, y_recent) (gpnn recalibrate).",
        )
    uneven = _tenths_off(found, _TENTH_UNEVEN)
    if uneven:
        bad = _tenths_off(found, _TENTH_BAD)
        yield Finding(
            "warning" if bad else "note",
            "Intervals are right on average, not everywhere",
            f"90 % intervals hold {percent(tenths[uneven[0] - 1].coverage)} of {_tenth(found, uneven[0])}. The noise "
            "depends on something that the standard deviations do not follow.",
            "calibration='local' (the default) lets the spread vary with x, the better the more rows it has to learn "
            "from (calibration_size); a column that says how noisy a row is helps most.",
        )
    low, high = found.calibration_interval
    mean_z = scores["calibration"]
    if not low <= 1 <= high and abs(mean_z - 1) > _CALIBRATION_OFF:
        yield Finding(
            "warning",
            f"Variances are {'too small' if mean_z > 1 else 'too large'} on average",
            f"The mean of z² = (y − mean)²/variance is {mean_z:.2f} (95 %: {low:.2f} to {high:.2f}), and should be 1.",
            "Calibrate on more rows, and on rows like these: model.recalibrate(X, y), or gpnn recalibrate. "
            "Where tails are heavy, a few rows decide this number: look at the coverage.",
        )
    if found.support is not None:
        yield from _of_support(found.support)
    if found.tail > _HEAVY_TAIL:
        yield Finding(
            "note",
            "Errors have heavy tails",
            f"The worst hundredth of the rows makes up {percent(found.tail, 0)} of Σ z² (8 % for a Gaussian law). "
            "NLL and the mean of z² are decided by them.",
            "Use predict_interval and predict_quantiles, whose shape follows the errors, not mean ± 2 sd; look at "
            "those rows for wrong values; compare models by CRPS or coverage.",
        )
    if abs(found.bias) > max(4 * found.scores["rmse"] / found.n_rows**0.5, 0.1 * found.scores["rmse"]):
        yield Finding(
            "warning",
            "Predictions are off to one side",
            f"Observed values are {abs(found.bias):.3g} {'above' if found.bias > 0 else 'below'} predictions on "
            "average, which chance does not explain: the target has drifted, or its units have changed.",
            "Fit again with recent rows; mean='linear' follows a trend.",
        )
    if found.explained < 0.1:
        yield Finding(
            "warning",
            "The inputs say little about the target",
            f"RMSE is {scores['rmse']:.3g}, and {found.spread:.3g} for always predicting the mean "
            f"(R² = {found.explained:.2f}).",
            "Check that rows of X and y belong together and that no informative column was left out.",
        )
    if found.n_rows < _FEW_ROWS:
        yield Finding(
            "note",
            f"Only {found.n_rows} test rows",
            f"Chance alone moves the coverage of 90 % intervals by ±{percent(sampling_error(0.9, found.n_rows))}.",
            "Test on a thousand rows or more, if they can be had.",
        )


def _of_support(support: Support) -> Iterator[Finding]:
    outside, inside, share = support.outside, support.inside, support.share_outside
    n_rows = outside.n_rows + inside.n_rows
    by_chance = OUTSIDE + sampling_error(OUTSIDE, n_rows, _SURE)
    fare = f"90 % intervals hold {percent(outside.coverage)} of these rows (mean z² {outside.z_squared:.2f})"
    if inside.n_rows:
        fare += f", and {percent(inside.coverage)} of the others ({inside.z_squared:.2f})"
    if share > max(by_chance, _SOME_OUTSIDE) and not support.foreseen:
        yield Finding(
            "warning" if share > _MANY_OUTSIDE else "note",
            "Test rows lie outside the training data",
            f"{percent(share)} of the test rows are outside the support: farther from the training rows than 99 of 100 "
            f"of those are from each other. A model learned for gaps answers there. {fare}.",
            "If rows to come are of new groups or later, say so: fit(X, y, groups=…) or times=… (gpnn fit --group or "
            "--time). With some of their outcomes, model.recalibrate(X, y) (gpnn recalibrate). Or add training rows "
            "there.",
        )
    off = outside.coverage - 0.9
    tolerated = max(_TENTH_UNEVEN, sampling_error(0.9, outside.n_rows, _SURE))
    if outside.n_rows >= _FEWEST_OUTSIDE and abs(off) > tolerated:
        narrow, than_hidden = off < 0, "harder" if off < 0 else "easier"
        yield Finding(
            "warning" if narrow else "note",
            f"Intervals outside the support are too {'narrow' if narrow else 'wide'}",
            f"{outside.n_rows:,} test rows are outside the support. {fare}: they are {than_hidden} than the parts of "
            "the table that were hidden in training.",
            "model.recalibrate(X, y) with outcomes of such rows (gpnn recalibrate) has a factor for them alone."
            if support.foreseen
            else "model.recalibrate(X, y) with outcomes of such rows (gpnn recalibrate) has a factor for them alone; "
            "groups=… or times=… in fit (gpnn fit --group or --time) hides the parts that matter.",
        )


def _of_fit(found: Diagnostics, fit: FitRecord) -> Iterator[Finding]:
    low, high = fit.alpha_interval
    if fit.calibration_size == 0:
        yield Finding(
            "warning",
            "Not calibrated",
            "No rows were held out for phase 2 (calibration_size=0), so that nothing keeps the variances honest.",
            "Leave calibration_size at 'auto'.",
        )
    elif high - low > 0.3 * fit.alpha:
        yield Finding(
            "note",
            "The calibration factor is uncertain",
            f"α = {fit.alpha:.2f} lies between {low:.2f} and {high:.2f} with probability 95 %, from "
            f"{fit.calibration_size:,} rows: few, or with heavy tails.",
            "More training rows; calibration='local' puts a floor under variances that a few rows break.",
        )
    if fit.suspicious:
        yield _suspicious(fit)
    if fit.seen_rows > max(0.01, 3 * fit.repeated_rows):
        yield Finding(
            "warning",
            "Test rows are among the training rows",
            f"{percent(fit.seen_rows)} of the test rows lie exactly where a training row does. If they are the same "
            "rows, every score here is too good.",
            "Split before rows are repeated or joined, and by group where one thing has several rows (GroupKFold).",
        )
    if fit.repeated_rows > 0.05:
        yield Finding(
            "note",
            "Training rows repeat",
            f"{percent(fit.repeated_rows)} of the training rows lie exactly where another does.",
            "If they are copies, drop them; if they are measurements repeated, all is well: the noise is learned "
            "from them.",
        )
    if fit.far_rows > 0.01 and found.support is None:  # else it is said what becomes of them
        yield Finding(
            "warning",
            "Test rows lie outside the training data",
            f"{percent(fit.far_rows)} of the test rows are much farther from the training rows than these are from "
            "each other. There, the prediction returns to the overall mean and its sd to that of y.",
            "Add training rows there, or fit with holdout='patches', which calibrates on rows predicted from afar.",
        )
    if fit.recall < 0.95:
        yield Finding(
            "warning",
            "The index misses neighbours",
            f"{fit.index} finds {percent(fit.recall)} of the true nearest rows.",
            "index=gpnn.neighbors.IVF(recall=0.999), or index='exact' if time allows.",
        )
    if fit.jitter > 0:
        yield Finding(
            "note",
            "Singular systems",
            f"Up to {fit.jitter:.0e}·σ_f² was added to the diagonal of some local systems: rows repeat while the "
            "noise is close to zero.",
            "Drop repeated rows, or give params with a larger noise_variance.",
        )
    curve = fit.m_curve
    largest = max((point["n_neighbors"] for point in curve), default=None)
    if fit.n_neighbors == largest and fit.n_neighbors < fit.n_rows // 2:
        yield Finding(
            "note",
            "More neighbours may help",
            f"m = {fit.n_neighbors} is the largest that was tried, and the best.",
            f"n_neighbors={2 * fit.n_neighbors} and compare; time grows as m³.",
        )
    constant = [column.name for column in fit.columns if column.importance == 0]
    if constant:
        yield Finding(
            "note",
            "Columns without effect",
            f"{listed(constant)}: constant in the test rows, or of no weight in the learned metric.",
            "Drop those that are constant in the training rows too: less memory, and neighbours are found faster.",
        )
    if fit.noise_floor > 0 and found.scores["rmse"] > 2 * fit.noise_floor:
        yield Finding(
            "note",
            "There is room above the noise floor",
            f"RMSE is {found.scores['rmse']:.3g}, {found.scores['rmse'] / fit.noise_floor:.1f} times the "
            f"{fit.noise_floor:.3g} that the noise alone would leave with endless data.",
            "More rows bring it closer. So do columns that say more, and leaving out those that say nothing.",
        )


def _suspicious(fit: FitRecord) -> Finding:
    rows = listed([f"row {one['row']} ({one['y']:.4g}, expected {one['expected']:.4g})" for one in fit.suspicious])
    if not fit.left_out:
        return Finding(
            "note",
            "Some training targets are far off",
            f"{len(fit.suspicious)} calibration rows or more lie many sd from what their neighbours say: {rows}.",
            "Look at them; if they are wrong, correct them or leave them out.",
        )
    values = [f"{value:g}" for value in fit.sentinels]
    meant = f" {listed(values)} seems to stand for something else." if values else ""
    return Finding(
        "warning",
        "Training targets look wrong",
        f"{fit.left_out:,} of {fit.n_rows:,} were left out, as nothing around is like them: {rows}.{meant} "
        "The intervals are for a y without such errors.",
        "Correct those rows or leave them out. If they are right, fit with suspects='keep'.",
    )
