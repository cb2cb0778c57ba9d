"""The measurement: one prediction of the test rows, and a look at how they lie among the training rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import pairwise
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from gpnn.common import metrics
from gpnn.common.errors import InvalidInputError
from gpnn.common.provenance import machine, now, versions
from gpnn.common.reliability import inside
from gpnn.common.types import Array, Prediction
from gpnn.engines import make_engine
from gpnn.judging.diagnostics.findings import findings, verdict
from gpnn.judging.diagnostics.reasons import reasons
from gpnn.judging.diagnostics.values import Cloud, Column, Diagnostics, FitRecord, Map, Support, SupportPart
from gpnn.regressor import GPnnRegressor
from gpnn.stages.calibration import interval
from gpnn.stages.contract import DistributionRegressor
from gpnn.stages.far import OUTSIDE
from gpnn.stages.sampling import Reservoir
from gpnn.stages.validation import check_new_rows
from gpnn.stages.whitening import Whitener
from gpnn.theory import limits

_PROBES = 1000  # rows whose nearest neighbour is looked at
_FAR = 3.0  # times the distance that 99 % of training rows keep to their nearest
_CELLS = 40  # along each side of a map
_NEAR = 0.1  # lengthscales; nothing within is far
_EXPLAINED = 3  # test rows
_HELD = 100_000  # whose inputs are held, of a table that comes in parts
_SUPPORTS = (0.0, OUTSIDE, 0.1, 0.5, 1.0)
_OF_THE_MOMENT = ("n_jobs", "verbose")  # settings that change no number, and may have changed since the fit


def diagnose(model: DistributionRegressor, X, y, *, target: str | None = None) -> Diagnostics:
    """Measure a fitted model on rows X (n, d), y (n,) that it has not seen.

    `target` names y in charts; without it the name of a pandas or polars series is used.
    """
    if not isinstance(model, DistributionRegressor):
        raise InvalidInputError(
            f"{type(model).__name__} predicts no law. diagnose takes the estimators of this package; put another "
            "library's into gpnn.CalibratedRegressor(…) first."
        )
    start = perf_counter()
    law = model.predict_distribution(X)
    seconds = perf_counter() - start
    name = target or getattr(y, "name", None) or "y"
    y = metrics.observed(y, law)
    if not isinstance(model, GPnnRegressor):
        return _diagnosed(model, _Tested(y, law, seconds), str(name))
    X, worst = check_new_rows(model, X), _worst(y, law)
    return _diagnosed(model, _Tested(y, law, seconds, X, worst, X[worst]), str(name))


def diagnose_parts(model: GPnnRegressor, parts: Iterable[tuple], target: str) -> Diagnostics:
    """The same of test rows that come in parts (X, y); of their inputs a sample is held, and what stands out."""
    some, tested = Reservoir(_HELD, seed=0), []
    far, far_rows = np.zeros((0, model.n_features_in_)), np.zeros(0, np.int64)
    error = np.zeros(0)
    seconds = 0.0
    for X, y in parts:
        start = perf_counter()
        law = model.predict_distribution(X)
        seconds += perf_counter() - start
        y, X, first = metrics.observed(y, law), check_new_rows(model, X), some.n
        some.add(X, y)
        worst = _worst(y, law)
        far, far_rows = np.concatenate([far, X[worst]]), np.append(far_rows, first + worst)
        error = np.append(error, np.abs(y[worst] - law.mean[worst]) / law.std[worst])
        kept = np.argsort(-error, kind="stable")[:_EXPLAINED]
        far, far_rows, error = far[kept], far_rows[kept], error[kept]
        tested.append((y, law))
    y, law = np.concatenate([y for y, _ in tested]), Prediction.joined([law for _, law in tested])
    return _diagnosed(model, _Tested(y, law, seconds, some.drawn().X, far_rows, far), target)


@dataclass(frozen=True)
class _Tested:
    """Test rows that were predicted: targets, laws, and of their inputs as many as need be."""

    y: Array
    law: Prediction
    seconds: float
    X: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """Random ones, or all; none where the model is not ours to look into."""
    worst: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Numbers of those that lie farthest off, in standard deviations, and their inputs."""
    X_worst: Array = field(default_factory=lambda: np.zeros((0, 0)))


def _worst(y: Array, law: Prediction) -> NDArray[np.int64]:
    return np.argsort(-np.abs(y - law.mean) / law.std, kind="stable")[:_EXPLAINED]


def _diagnosed(model: DistributionRegressor, tested: _Tested, name: str) -> Diagnostics:
    y, law, X, worst = tested.y, tested.law, tested.X, tested.worst
    z_squared = metrics.z_squared(y, law)
    largest = np.sort(z_squared)[-max(1, len(y) // 100) :]
    found = Diagnostics(
        model=type(model).__name__,
        target=name,
        n_rows=len(y),
        scores=model._scores(y, law, "y"),
        whitened_scores=model._scores(y, law, "whitened"),
        calibration_interval=interval(z_squared),
        spread=float(np.std(y)),
        bias=float(np.mean(y - law.mean)),
        tail=float(largest.sum() / z_squared.sum()) if z_squared.sum() > 0 else 0.0,
        reliability=model._reliability(y, law),
        cloud=Cloud.of(y, law.mean),
        fit=_fit_record(model, X) if isinstance(model, GPnnRegressor) else None,
        support=_support(model, y, law),
        reasons=reasons(model, tested.X_worst, law[worst], worst, y[worst]) if isinstance(model, GPnnRegressor) else (),
        map=_map(model, X) if isinstance(model, GPnnRegressor) and model.n_features_in_ == 2 else None,
        predict_seconds=tested.seconds,
        created=now(),
        machine=machine(),
        versions=versions("gpnn"),
    )
    return replace(found, verdict=verdict(found), findings=findings(found))


def importances(whitener: Whitener, X: Array) -> Array:
    """Of each column of X (n, d), or of its ranks: its standard deviation times the length of its row of the map.

    Whitened rows are (x − μ) times that map, and the learned lengthscales are part of it (`Whitener.stretched`): with
    "diagonal" or "ranks" this is 1/(l√d), and with "full" the length of all that moves when this column alone does.
    """
    strength = np.abs(whitener.x_map) if whitener.x_map.ndim == 1 else np.linalg.norm(whitener.x_map, axis=1)
    return strength * np.std(X if whitener.ranks is None else whitener.ranks(X), axis=0, dtype=np.float64)


def _map(model: GPnnRegressor, X: Array) -> Map:
    X = np.asarray(X, dtype=float)
    x, y = (np.linspace(column.min(), column.max(), _CELLS) for column in X.T)
    cells = np.column_stack([np.tile(x, _CELLS), np.repeat(y, _CELLS)])
    law, _ = model._law(cells, model._holding_engine())
    names = getattr(model, "feature_names_in_", ["column 0", "column 1"])
    values = (tuple(found.tolist()) for found in (x, y, law.mean, law.std))
    return Map((str(names[0]), str(names[1])), *values)


def _support(model: DistributionRegressor, y: Array, law: Prediction) -> Support | None:
    if law.support is None:
        return None
    support, z_squared = law.support, metrics.z_squared(y, law)
    in_90 = inside((y - law.mean) / law.std, model._quantile_of(law), 0.9)

    def part(low: float, high: float) -> SupportPart:
        rows = (low <= support) & ((support < high) | (high == 1))
        coverage, mean = (float(of[rows].mean()) if rows.any() else np.nan for of in (in_90, z_squared))
        return SupportPart(low, high, int(rows.sum()), coverage, mean)

    far = getattr(model, "_far", None)
    return Support(
        outside=part(0.0, OUTSIDE),
        inside=part(OUTSIDE, 1.0),
        parts=tuple(part(low, high) for low, high in pairwise(_SUPPORTS)),
        foreseen=far is not None and not np.isfinite(far.mixture.edge),
    )


def _in_units(model: GPnnRegressor, std: float) -> float:
    """A standard deviation on the scale that y was learned on, in the units of y: what it is about y's mean."""
    scale = model.target_scale_
    if scale.plain:
        return std
    return float(np.sqrt(scale.moments(np.atleast_1d(scale(model._y_scale[0])), np.atleast_1d(std))[1][0]))


def _fit_record(model: GPnnRegressor, X: Array) -> FitRecord:
    model._consolidate()
    report, params, settings = model.fit_report_, model.params_, model.get_params(deep=False)
    lengthscale = float(np.mean(params.lengthscale))
    names = getattr(model, "feature_names_in_", [f"column {k}" for k in range(X.shape[1])])
    # One lengthscale is part of the map after refinement, and is 1 then; else it stands beside it.
    strengths = model._on_all_columns(importances(model.whitener_, model._used(X)))
    columns = [Column(str(name), float(value / lengthscale)) for name, value in zip(names, strengths, strict=True)]
    to_train, among_train = (distances / lengthscale for distances in _nearest_distances(model, X))
    far = max(_FAR * float(np.quantile(among_train, 0.99)), _NEAR)
    return FitRecord(
        n_rows=report["n"],
        kernel=model.kernel_,
        whitening=report["whitening"],
        n_neighbors=model.n_neighbors_,
        kernel_variance=params.kernel_variance,
        noise_variance=params.noise_variance,
        alpha=model.alpha_,
        alpha_interval=model.alpha_interval_,
        calibration_size=report.get("calibration_size", 0),
        shape=model.shape_.name,
        noise_floor=_in_units(model, model.whitener_.y_std * _noise_floor(params.noise_variance, model.n_neighbors_)),
        index=report["index"],
        recall=report["recall"],
        jitter=report["jitter"],
        columns=tuple(sorted(columns, key=lambda column: -column.importance)),
        m_curve=tuple(report.get("m_curve", ())),
        candidates=tuple(report.get("candidates", ())),
        finalists=tuple(report.get("finalists", ())),
        engine=report.get("engine", "cpu"),  # files from before there were others do not say
        predict_engine=make_engine(model.engine, model.n_jobs).describe(),
        seconds=dict(report["seconds"]),
        model_bytes=sum({id(array): array.nbytes for array in _arrays(model, set())}.values()),
        peak_bytes=report.get("peak_memory"),
        repeated_rows=float(np.mean(among_train == 0)),
        seen_rows=float(np.mean(to_train == 0)),
        far_rows=float(np.mean(to_train > far)),
        left_out=report.get("left_out", 0),
        suspicious=tuple(report.get("suspicious", ())),
        sentinels=tuple(report.get("sentinels", ())),
        settings={name: str(value) for name, value in sorted(settings.items()) if name not in _OF_THE_MOMENT},
    )


def _noise_floor(noise_variance: float, n_neighbors: int) -> float:
    """√(σ_ξ²(1 + 1/m)) (Theorem 1, the matched case)."""
    return float(limits(noise_variance, noise_variance, n_neighbors).rmse) if noise_variance > 0 else 0.0


def _nearest_distances(model: GPnnRegressor, X: Array) -> tuple[Array, Array]:
    """Distances of some test rows to the nearest training row, and of some training rows to the nearest other one."""
    rng = np.random.default_rng(0)
    test = rng.choice(len(X), min(len(X), _PROBES), replace=False)
    train = rng.choice(len(model.index_.order), min(len(model.index_.order), _PROBES), replace=False)
    to_train = model.index_.query(model.whitener_.transform(model._used(X[test])), 1).distances[:, 0]
    among_train = model.index_.query(model.index_.points(train), 2).distances[:, 1]
    return to_train, among_train


def _arrays(thing, seen: set[int]) -> Iterator[Array]:
    """The arrays that an object holds, at any depth; what a view looks at in place of the view."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing if thing.base is None or not isinstance(thing.base, np.ndarray) else thing.base
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from _arrays(value, seen)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from _arrays(value, seen)
    elif is_dataclass(thing):
        for part in fields(thing):
            yield from _arrays(getattr(thing, part.name), seen)
    elif hasattr(thing, "__dict__") and type(thing).__module__.startswith("gpnn"):
        yield from _arrays(vars(thing), seen)
