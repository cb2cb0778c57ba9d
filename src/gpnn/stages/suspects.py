"""Targets that cannot be right: a sensor's −9999, a slipped decimal point, errors of a law without variance.

One such row moves the means around it, and a thousand of them widen every interval. They are looked for twice. Before
anything is learned: is the tail of y longer than its own beginning lets expect, and do the rows there stand alone among
their neighbours? And after: are there judges whose errors stand out from the other judges' errors in the same way? Only
then is every row held against what its neighbours say, and learning done again without those that nothing supports.

What is honest but heavy-tailed (lognormal, counts, Student-t) has a tail that begins early: nothing stands out from
it, and nothing is left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

from gpnn.common.errors import GPnnWarning
from gpnn.common.kernels import get_kernel_or_sum
from gpnn.common.provenance import FitReport
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, Noise, Whitening
from gpnn.engines.parallel import blocks
from gpnn.stages.holdout import Holdout, Rows

CHOICES = ("leave out", "keep")

_BULK = 0.9  # share of the rows that are taken to be right, from which scales are made
_WILD = 4.0  # where the far tail begins, in units of what the bulk stays within
_STEEPEST = 4.0  # tail index beyond which tails are not told apart: few rows of a bounded y say nothing of its tail
_CHANCE = 1e-4  # that a tail is called too long which is not
_NEIGHBORS, _SUPPORT = 8, 3  # of so many nearest others, so many alike make a row one of a kind that exists
_REPEATED, _APART, _DISTINCT = 3, 0.5, 50  # a sentinel: how often; from the others, in units of their span; of how many
_LOOKS = 2  # at all rows, each followed by another fit
_PASSES, _PASS_NEIGHBORS, _PASS_ROWS = 3, 64, 32_768
_MANY, _LOST = 0.005, 1e-3  # shares of the rows
_FAR_BETTER, _ON_EITHER_SIDE = 0.8, 0.2
_MEDIAN = 0.6745  # of |z|, where z is Gaussian
_LEAST_NOISE = 1e-6
_PROBES = 1000  # on which an index tunes itself
_LISTED, _WORTH_A_LINE = 20, 5.0  # rows in the report; those not left out, from so many sd

Progress = str | None


@dataclass(frozen=True)
class Suspects:
    """Rows left out, by number, sorted."""

    rows: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    sentinels: dict[float, int] = field(default_factory=dict)
    """Values that stand for something else, and how often."""

    def __len__(self) -> int:
        return len(self.rows)

    def left_out_of(self, X: Array, y: Array, holdout: Holdout) -> tuple[Array, Array, Holdout, Rows]:
        """The other rows, the hold-out numbered among them, and their numbers."""
        n = len(y)
        if len(self) == 0:
            return X, y, holdout, np.arange(n)
        kept = np.setdiff1d(np.arange(n), self.rows, assume_unique=True)
        place = np.full(n, -1)
        place[kept] = np.arange(len(kept))
        learn, judge, hidden = (place[rows] for rows in (holdout.learn, holdout.judge, holdout.hidden))
        left = Holdout(learn[learn >= 0], judge[judge >= 0], hidden[hidden >= 0], holdout.n_parts)
        return X[kept], y[kept], left, kept

    def number_rows_of(self, model, kept: Rows) -> None:
        """A model fitted to the `kept` rows speaks of them by their numbers in the user's table from now on."""
        if len(self):
            model._set_aside = np.union1d(self.rows, kept[model._set_aside])
            model.calibration_rows_ = kept[model.calibration_rows_]
            if model._far is not None:
                model._far = replace(model._far, rows=kept[model._far.rows])


def leave_out_suspects(
    model,
    X: Array,
    y: Array,
    queries,
    engine: Engine,
    rng: np.random.Generator,
    report: FitReport,
    noise: Noise | None = None,
) -> None:
    """Fit a `GPnnRegressor` without suspects, until nothing stands out any more."""
    table, X = X, model._used(X)

    def fit(suspects: Suspects) -> tuple[Prediction, Array]:
        law = model._fit_without(suspects, X, table, y, queries, engine, rng, report, noise)
        return law, (y[model.calibration_rows_] - law.mean) / law.std

    progress, wanted = model._bar("suspects"), model.suspects != "keep"
    suspects = Suspects()
    if wanted and noise is None:  # far values may be the noise that they are known to have
        with report.stage("suspects"):
            suspects = first_look(X, y, lambda: model._whitener(X, y, "diagonal", warn=False), engine, progress)
    law, errors = fit(suspects)
    for _ in range(_LOOKS):
        certain = standing_out(errors)
        if not (wanted and (certain or uneven(errors))):
            break
        with report.stage("suspects"):
            known, suspects = suspects, second_look(model, X, y, suspects, certain, engine, progress, noise)
        if np.array_equal(known.rows, suspects.rows):
            break
        report.pop("finalists", None)
        law, errors = fit(suspects)
    if wanted:
        in_units = np.asarray if model.target_scale_.plain else model.target_scale_.back
        suspects = replace(suspects, sentinels={float(in_units(t)): k for t, k in suspects.sentinels.items()})
        report["left_out"], report["sentinels"] = len(suspects), [*suspects.sentinels]
        if len(suspects):
            out = suspects.rows
            law, _ = model._inner_law(table[out], model._holding_engine(), None if noise is None else noise.known[out])
        rows = suspects.rows if len(suspects) else model.calibration_rows_
        report["suspicious"] = _listed(rows, y[rows], law, len(suspects) > 0, in_units)
        warn_of(suspects, report["suspicious"], len(y))


def tail_index(u: Array, end: float) -> float:
    """a, where u beyond 1 falls as u⁻ᵃ: Hill's estimate from what is below `end`, knowing only how much is not."""
    tail = u[u > 1]
    spread = float(np.sum(np.log(np.minimum(tail, end))))
    return min(float(np.sum(tail <= end)) / spread, _STEEPEST) if spread > 0 else _STEEPEST


def too_long_a_tail(u: Array, far: Array, begin: float) -> bool:
    """Whether the values in `far` lie farther beyond `begin` than all of `u`, of which a tenth is above 1, let expect.

    Honest tails fall at least as fast further out as they begin: of k values, Σ log(far/begin) is at most Gamma(k, a),
    and the largest passes x with probability k(x/begin)⁻ᵃ at most.
    """
    k = len(far)
    if k == 0:
        return False
    beyond = tail_index(u, begin) * np.log(far / begin)
    return bool(gammaincc(k, np.sum(beyond)) < _CHANCE or k * np.exp(-np.max(beyond)) < _CHANCE)


# --- before learning --------------------------------------------------------------------------------------------------


def first_look(X: Array, y: Array, whitening: Callable[[], Whitening], engine: Engine, progress: Progress) -> Suspects:
    """Rows whose y is wild by itself, and which their nearest others (after `whitening`) do not support."""
    middle = float(np.median(y))
    low, high = np.quantile(y, [1 - _BULK, _BULK])
    scale = max(high - middle, middle - low)
    sentinels = _isolated_values(y)
    sides = []
    if scale > 0:
        u = (y - middle) / scale
        size = np.abs(u)
        sides = [side for side in (u, -u, size) if too_long_a_tail(size, side[side > _WILD], _WILD)]
    if not sides and not sentinels:
        return Suspects()
    alone = Alone(X, whitening(), engine, progress)
    found = np.zeros(len(y), dtype=bool)
    for side in sides:
        rows = np.flatnonzero(side > _WILD)
        wild = _wild_alone(rows, side, alone)
        if too_long_a_tail(size, side[wild], _WILD):
            found[wild] = True
    named = {}
    for value in sentinels:
        same = y == value
        rows = np.flatnonzero(same)
        if len(alone(rows, same.__getitem__)) > len(rows) / 2:
            found[rows] = True
            named[value] = len(rows)
    return Suspects(np.flatnonzero(found), named)


def _wild_alone(rows: Rows, side: Array, alone: Alone) -> Rows:
    """Those of the rows that stand alone, as most do that lie at least half as far out: of a regime, only its edge."""
    far = rows[np.argsort(-side[rows])]
    is_alone = np.isin(far, alone(far, lambda near: side[near] > side[far, None] / 2))
    n_like_it = np.searchsorted(-side[far], -side[far] / 2, side="right")
    return np.sort(far[is_alone & (np.cumsum(is_alone)[n_like_it - 1] > n_like_it / 2)])


def _isolated_values(y: Array) -> list[float]:
    """Values at either end of y that stand there several times, far from all others, which are many and various."""
    found: list[float] = []
    rest = y
    while len(rest) > 0.9 * len(y):
        for end, other in ((rest.min(), rest.max()), (rest.max(), rest.min())):
            inner = rest[rest != end]
            if len(inner) == 0 or len(rest) - len(inner) < _REPEATED:
                continue
            nearest = inner.min() if end < other else inner.max()
            if abs(nearest - end) >= _APART * abs(other - nearest) and len(np.unique(inner)) >= _DISTINCT:
                found.append(float(end))
                rest = inner
                break
        else:
            break
    return found


class Alone:
    """Whether rows stand alone: hardly any of the nearest others, in a plain metric, is like them."""

    def __init__(self, X: Array, whitening: Whitening, engine: Engine, progress: Progress):
        self.n = min(_NEIGHBORS, len(X) - 1)
        self.X, self.whitening, self.engine = X, whitening, engine
        rows = engine.whiten(whitening, X, progress=progress)
        self.built = _indexed(engine, rows, np.zeros(len(X)), self.n + 1, progress)

    def __call__(self, rows: Rows, alike: Callable[[Rows], NDArray[np.bool_]]) -> Rows:
        """Those of the rows that stand alone. alike: which of their nearest, by number (q, k), are like them."""
        found = self.built.neighbors(self.engine.whiten(self.whitening, self.X[rows]), self.n + 1).indices
        nearest = self.built.index.order[found].astype(np.int64)
        others = alike(nearest) & (nearest != rows[:, None])
        return rows[others.sum(axis=1) < _SUPPORT]


# --- after ------------------------------------------------------------------------------------------------------------


def standing_out(errors: Array) -> bool:
    """Whether some of the judges' standardised errors are too large for the others."""
    u = _in_units_of_the_bulk(errors)
    return too_long_a_tail(u, u[u > _WILD], _WILD)


def uneven(errors: Array) -> bool:
    """Whether they may be: many are large, as those of honest data sometimes are."""
    return float(np.sum(_in_units_of_the_bulk(errors) > _WILD)) > _MANY * len(errors)


def _in_units_of_the_bulk(errors: Array) -> Array:
    size = np.abs(errors)
    scale = float(np.quantile(size, _BULK)) if len(size) else 0.0
    return size / scale if scale > 0 else np.zeros(len(size))


def second_look(
    model,
    X: Array,
    y: Array,
    suspects: Suspects,
    certain: bool,
    engine: Engine,
    progress: Progress,
    noise: Noise | None = None,
) -> Suspects:
    """Every row against its nearest others, in the learned metric: those that stand out alone are suspects.

    First with a low limit: if most rows are predicted far better without what lies beyond, on either side, it was in
    their way, and wrong. Else, where it is certain that something is, with a limit beyond which one honest row in a
    thousand lies, however long the tail of their errors is.
    """
    in_units = None if noise is None else noise.in_units_of(model.whitener_.y_std)
    view = View(X, model.whitener_.transform_y(model._add_mean(X, y, -1.0)), model, engine, progress, in_units)
    sure = np.flatnonzero(np.isin(y, list(suspects.sentinels)))
    begun = view.errors(suspects.rows, model.params_)
    quieter = view.errors(suspects.rows, begun.with_noise_of_the_bulk(model.params_))
    good = _FAR_BETTER * min(begun.typical, quieter.typical)
    for limit in (_WILD, None) if certain else (_WILD,):
        out, errors, params = suspects.rows, begun, model.params_
        for _ in range(_PASSES):  # errors nearby are in the way at first; rows that look well then are taken back
            out = np.union1d(view.standing_out(errors, out, limit), sure)
            params = errors.with_noise_of_the_bulk(params)
            errors = view.errors(out, params)
        above = float(np.mean(errors.raw[out] > 0)) if len(out) else 0.0
        if errors.typical < good and min(above, 1 - above) > _ON_EITHER_SIDE:
            return replace(suspects, rows=out)
    return replace(suspects, rows=out) if certain else suspects


@dataclass(frozen=True)
class Errors:
    """Of all rows, each predicted from its nearest others."""

    raw: Array
    standardised: Array

    @property
    def typical(self) -> float:
        return float(np.median(np.abs(self.raw)))

    def with_noise_of_the_bulk(self, params: Hyperparameters) -> Hyperparameters:
        """Wrong rows look like noise to θ̂; most rows show how much there is."""
        shown = (np.median(np.abs(self.standardised)) / _MEDIAN) ** 2
        return replace(params, noise_variance=max(min(shown, 1.0) * params.noise_variance, _LEAST_NOISE))


class View:
    """A fitted model's view of every row."""

    def __init__(self, X: Array, y: Array, model, engine: Engine, progress: Progress, noise: Noise | None = None):
        self.X, self.y, self.model, self.engine, self.progress, self.noise = X, y, model, engine, progress, noise
        self.alone = Alone(X, model.whitener_, engine, progress)

    def errors(self, out: Rows, params: Hyperparameters) -> Errors:
        """Predictions are made from rows that are not `out`."""
        X, engine, whitener, kernel = self.X, self.engine, self.model.whitener_, get_kernel_or_sum(self.model.kernel_)
        kept = np.setdiff1d(np.arange(len(X)), out, assume_unique=True)
        m = min(self.model.n_neighbors_, _PASS_NEIGHBORS, len(kept) - 1)
        own = np.full(len(X), -1)
        own[kept] = np.arange(len(kept))
        rows = engine.whiten(whitener, X, out, self.progress)
        noise = None if self.noise is None else self.noise[kept].scaled(self.model.alpha_)
        known = np.zeros(len(X)) if self.noise is None else self.noise.known
        built = _indexed(engine, rows, self.y[kept], m + 1, self.progress, noise)
        raw, standardised = np.empty((2, len(X)))
        for part in blocks(len(X), _PASS_ROWS):
            X_star = engine.whiten(whitener, X[part])
            local = built.path(X_star, np.array([m]), kernel, params, own[part], 0, self.progress)
            raw[part] = self.y[part] - local.mean[:, 0]
            standardised[part] = raw[part] / np.sqrt(local.variance[:, 0] + known[part])
        return Errors(raw, standardised)

    def standing_out(self, errors: Errors, out: Rows, limit: float | None) -> Rows:
        u = np.abs(errors.standardised)
        u /= np.quantile(u, _BULK)
        if limit is None:
            limit = max(_WILD, (_LOST / (1 - _BULK)) ** (-1 / tail_index(np.delete(u, out), _WILD)))
        found = np.flatnonzero(u > limit)
        mean, own_u, own_error = self.y - errors.raw, u[found, None], np.abs(errors.raw[found, None])
        # Next to a wrong row, others may err for its sake; what supports it lies off its expectation, too.
        return self.alone(
            found,
            lambda near: (u[near] > own_u / 2) & (np.abs(self.y[near] - mean[found, None]) > own_error / 2),
        )


def _indexed(
    engine: Engine, rows, y: Array, n_neighbors: int, progress: Progress, noise: Noise | None = None
) -> Engine:
    probes = np.linspace(0, len(y) - 1, min(len(y), _PROBES)).astype(np.int64)
    return engine.build(rows, y, "auto", n_neighbors, probes, 0, progress, noise)


# --- and what is said of it -------------------------------------------------------------------------------------------


def _listed(rows: Rows, y: Array, law: Prediction, left_out: bool, in_units: Callable) -> list[dict]:
    """The rows (numbers, with their y and what the others say of it) that are farthest off, the farthest first."""
    deviation = (y - law.mean) / law.std
    worst = np.argsort(-np.abs(deviation), kind="stable")[:_LISTED]
    columns = (column[worst].tolist() for column in (rows, in_units(y), in_units(law.mean), deviation))
    return [
        {"row": row, "y": value, "expected": expected, "sd": sd, "left_out": left_out}
        for row, value, expected, sd in zip(*columns, strict=True)
        if left_out or abs(sd) > _WORTH_A_LINE
    ]


def warn_of(suspects: Suspects, listed: list[dict], n: int) -> None:
    """Say what was left out, how to check, and how to have it otherwise."""
    if len(suspects) == 0:
        return
    values = [f"{value:g} ({count} times)" for value, count in suspects.sentinels.items()]
    meant = f" The value {' and '.join(values)} stands for something else, it seems." if values else ""
    some = ", ".join(f"{one['y']:.4g} in row {one['row']}, not about {one['expected']:.4g}" for one in listed[:3])
    warnings.warn(
        f"{len(suspects)} of {n} targets look wrong and were left out: nothing around is like them ({some}).{meant} "
        'Check those rows: fit_report_["suspicious"] lists the worst. If they are right, fit with suspects="keep".',
        GPnnWarning,
        stacklevel=4,
    )
