"""Several targets: y (n, k). Each is a model of its own; those that share a metric share the search and the factor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from gpnn.common.errors import InvalidInputError
from gpnn.common.scales import ScaleColumns
from gpnn.common.types import Array, Prediction
from gpnn.engines import Engine, LocalSolution
from gpnn.engines.parallel import blocks
from gpnn.stages.near import Answer, Near, nested_sizes
from gpnn.stages.noise import Weightless, check_new_noise, moments
from gpnn.stages.validation import check_new_rows

_BLOCK = 32_768  # queries whose innovations are held together
_NOTHING = Prediction(np.zeros(0), np.zeros(0))
_AS_GOOD = 0.01  # of NLL + log RMSE, that a target may lose by another's metric


class SeveralTargets:
    """What `GPnnRegressor` does where y has columns. `targets_[j]` is the model of the j-th, as good as any other."""

    def _fit_targets(self: Any, X, Y: Array, told: dict) -> Any:
        self._refuse_to_ensemble("of several targets")
        self.__dict__.pop("index_", None)
        missing = np.isnan(Y)
        if missing.all(axis=0).any():
            raise InvalidInputError(f"y has no value at all in column {int(np.argmax(missing.all(axis=0)))}.")
        models: list[Any] = []
        self.target_groups_ = []
        for j in range(Y.shape[1]):
            known = np.flatnonzero(~missing[:, j])
            rows = X if len(known) == len(Y) else _rows(X, known)
            own = {name: _of_target(values, known, j, len(Y)) for name, values in told.items() if values is not None}
            model, group = self._fit_target(models, rows, Y[known, j], own)
            if len(known) < len(Y):
                _number_rows(model, known, len(Y))
            models.append(model)
            if group is None:
                self.target_groups_.append([j])
            else:
                self.target_groups_[group].append(j)
        self.targets_, first = models, models[0]
        self.n_features_in_ = first.n_features_in_
        if hasattr(first, "feature_names_in_"):
            self.feature_names_in_ = first.feature_names_in_
        for group in self.target_groups_:
            _share_index([models[j] for j in group])
        self.fit_report_ = {"n": len(Y), "d": self.n_features_in_, "targets": [model.fit_report_ for model in models]}
        return self

    def _fit_target(self: Any, models: list, X, y, told: dict) -> tuple[Any, int | None]:
        """A model of one target, and the group that it joins: the one whose metric does best for it, if that is as good
        as its own."""
        leaders = [models[group[0]] for group in self.target_groups_]
        adopted = (
            [] if self.shared_metric is False else [_adopting(self, leader).fit(X, y, **told) for leader in leaders]
        )
        scores = [model.fit_report_.get("judged", -np.inf) for model in adopted]
        best = int(np.argmin(scores)) if scores else None
        if self.shared_metric is True and best is not None:
            return adopted[best], best
        own = clone(self).fit(X, y, **told)
        if best is not None and scores[best] <= own.fit_report_.get("judged", np.inf) + _AS_GOOD:
            return adopted[best], best
        return own, None

    def _each_learns(self: Any, X, Y, told: dict, window: int | None) -> None:
        """New rows, of which each target learns those where it is known."""
        Y = several(Y)
        if Y is None or Y.shape != (len(X), len(self.targets_)):
            raise InvalidInputError(f"y must have a column for each of the {len(self.targets_)} targets.")
        for j, model in enumerate(self.targets_):
            known = np.flatnonzero(~np.isnan(Y[:, j]))
            own = {
                name: None if values is None else _of_target(values, known, j, len(Y)) for name, values in told.items()
            }
            model._learn_later(X[known], Y[known, j], own, window, known, len(Y))

    def _laws(self: Any, X, noise_variance) -> Prediction:
        """Of all targets: means, variances and supports (q, k)."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        laws: list[Any] = [None] * len(self.targets_)
        where = {name: getattr(self, name) for name in ("engine", "n_jobs", "batch_size")}
        for model in self.targets_:
            model.set_params(**where)
        for group in self.target_groups_:
            models = [self.targets_[j] for j in group]
            told = [_noise_for(model, noise_variance, j, len(X)) for j, model in zip(group, models, strict=True)]
            parts = [
                _group_laws(models, X[part], [None if known is None else known[part] for known in told])
                for part in blocks(len(X), _BLOCK)
            ]
            for k, j in enumerate(group):
                laws[j] = Prediction.joined([part[k] for part in parts]) if parts else _NOTHING
        supports = [law.support for law in laws]
        support = None if any(of is None for of in supports) else np.stack(supports, axis=1)
        law = _stacked(laws, support)
        if all(one.scale is None for one in laws):
            return law
        inner = _stacked([law if law.inner is None else law.inner for law in laws], support)
        return replace(law, inner=inner, scale=ScaleColumns(tuple(model.target_scale_ for model in self.targets_)))

    def _of_target(self: Any, law: Prediction, j: int) -> Prediction:
        support = None if law.support is None else law.support[:, j]
        if law.inner is not None:
            inner = Prediction(law.inner.mean[:, j], law.inner.variance[:, j], support=support)
            return Prediction.through(self.targets_[j].target_scale_, inner)
        return Prediction(law.mean[:, j], law.variance[:, j], support=support)

    def _ask_one(self: Any) -> InvalidInputError:
        return InvalidInputError(
            f"This model has {len(self.targets_)} targets, and that is a question to one of them: ask "
            "model.targets_[0], which is a GPnnRegressor like any other."
        )

    def _adopt(self: Any, leader, y: Array, weights: Array | None, report: dict) -> None:
        """Kernel, metric and θ̂ of another target, before its calibration."""
        self.kernel_ = leader.kernel_
        self.whitener_ = replace(leader.whitener_, y_std=moments(y, weights)[1])
        self.params_ = leader.params_.scaled(1 / leader.alpha_)
        report["whitening"] = leader.fit_report_["whitening"]
        if "candidates" in leader.fit_report_:
            report["candidates"] = leader.fit_report_["candidates"]


def _stacked(laws: list[Prediction], support: Array | None) -> Prediction:
    mean, variance = (np.stack([getattr(law, name) for law in laws], axis=1) for name in ("mean", "variance"))
    return Prediction(mean, variance, support=support)


def _adopting(model, leader) -> Any:
    adopting = clone(model).set_params(n_neighbors=leader.n_neighbors_)
    adopting._leader = leader
    return adopting


def same_rows(leader, n: int, hidden) -> bool:
    """Whether a fit to n rows, of which no prediction uses those hidden, predicts from the very rows of the leader."""
    return len(hidden) == len(leader._set_aside) == 0 and n == len(leader._y)


def several(y) -> Array | None:
    """y (n, k) as numbers, NaN where an entry is missing; None if it is one target."""
    table = np.asarray(y)
    if table.ndim != 2 or table.shape[1] < 2:
        return None
    try:
        values = table.astype(float)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"y must be numbers: {error}.") from error
    if np.isinf(values).any():
        raise InvalidInputError("y contains inf. An entry that is not known is NaN.")
    return values


def _rows(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows] if isinstance(X, np.ndarray) else np.asarray(X)[rows]


def _of_target(values, rows, j: int, n: int):
    """What was told of the rows, or of each target's."""
    array = np.asarray(values)
    return (array[:, j] if array.ndim == 2 else np.broadcast_to(array, (n,)))[rows]


def _noise_for(model, noise_variance, j: int, n: int) -> Array | None:
    if noise_variance is None:
        return None
    array = np.asarray(noise_variance, dtype=float)
    return check_new_noise(model, n, array[:, j] if array.ndim == 2 else array)


def _number_rows(model, known, n: int) -> None:
    """A model of the rows whose target is known speaks of them as they are numbered among all."""
    absent = np.setdiff1d(np.arange(n), known, assume_unique=True)
    report = model.fit_report_ | {"n": n}
    Weightless(absent).number_rows_of(model, known, report)
    model.fit_report_, model._n_seen = report, n


def _share_index(models: list) -> None:
    """Members of a group that predict from the same rows do so by one index."""
    leader = models[0]
    for model in models[1:]:
        if not np.array_equal(model._set_aside, leader._set_aside) or model.n_neighbors_ != leader.n_neighbors_:
            continue
        place = np.empty(len(model._y), np.int64)
        place[model.index_.order] = np.arange(len(place))
        as_leader = place[leader.index_.order]
        model.index_, model._y = leader.index_, model._y[as_leader]
        model._noise = None if model._noise is None else model._noise[as_leader]


def _group_laws(models: list, X: Array, told: list[Array | None]) -> list[Prediction]:
    """Of models that share a metric, in units of y: from one search and one factor, where they share the rows too."""
    leader = models[0]
    engine = leader._holding_engine()
    together = [model for model in models if model.index_ is leader.index_ and _same_noise(model, leader)]
    if len(together) == 1 or not callable(getattr(engine, "targets", None)):
        return [model._law(X, model._holding_engine(), known)[0] for model, known in zip(models, told, strict=True)]
    near, Y = leader._near(), np.stack([model._y for model in together], axis=1)
    kept = max(0 if model._scale is None else model._scale.n_neighbors for model in together)
    X_star = engine.whiten(near.whitener, leader._used(X))
    sizes = nested_sizes(near.n_neighbors)
    found = engine.targets(X_star, sizes, near.kernel, near.params, Y, kept, leader._bar("predict"))
    laws = {id(model): _Solved.of(model, leader, found, k) for k, model in enumerate(together)}
    return [
        model._law(X, engine if id(model) in laws else model._holding_engine(), known, laws.get(id(model)))[0]
        for model, known in zip(models, told, strict=True)
    ]


def _same_noise(model, leader) -> bool:
    """In units of their own variances, which α has multiplied."""
    if model._noise is None or leader._noise is None:
        return model._noise is leader._noise
    ours, theirs = (one._noise.scaled(1 / one.alpha_) for one in (model, leader))
    return bool(np.allclose(ours.known, theirs.known) and np.array_equal(ours.share, theirs.share))


@dataclass
class _Solved:
    """Stands in for `Near`: laws that were made for all targets at once, block after block."""

    near: Near
    claimed: Prediction
    innovations: Array
    jitter: Array
    nested: Array
    done: int = 0

    @classmethod
    def of(cls, model, leader, found: LocalSolution, k: int) -> _Solved:
        factor = model.alpha_ / leader.alpha_  # the systems are the leader's
        near = model._near()
        unbiasing = near.params.unbiasing(near.n_neighbors) if near.unbiased else 1.0
        nested = factor * found.variance
        claimed = Prediction(found.mean[:, k] * unbiasing, nested[:, -1])
        return cls(near, claimed, found.innovations[:, k] / factor, found.jitter, nested)

    def law(self, engine: Engine, X: Array, progress: Any = None) -> Answer:
        part = slice(self.done, self.done + len(X))
        self.done = part.stop
        claimed = self.claimed[part]
        innovations = self.innovations[part, : 0 if self.near.scale is None else self.near.scale.n_neighbors]
        law = self.near.calibrated(claimed, innovations)
        return Answer(law, claimed.variance, self.jitter[part], self.nested[part])
