"""Boosted trees beside the process, where judges gain by them.

Where y jumps at thresholds of columns, trees find in few splits what a distance has to learn from many rows. They learn
from rows that are no judges; the judges then say how far the law follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gpnn.common import metrics
from gpnn.common.types import Array, Prediction
from gpnn.engines.parallel import for_each_block, in_parallel
from gpnn.stages.weighing import FEWEST, Weighing, fit_weighing, judged

_FEW_ROWS = 10_000  # from which few trees learn, to say whether more are worth their time
_HOPELESS = 1.5  # times the process's RMSE, of these few
_ROWS, _NUMBERS = 100_000, 4_000_000  # that trees learn from, at most: rows, and rows times columns
_HASTY: dict = {"max_iter": 30, "learning_rate": 0.3, "early_stopping": False}
_FEW_GROWN: dict = {
    "max_iter": 100, "learning_rate": 0.1, "early_stopping": False, "max_leaf_nodes": 31, "max_features": 0.7,
}  # fmt: skip
_GROWN: dict = {
    "max_iter": 400, "learning_rate": 0.1, "early_stopping": True, "n_iter_no_change": 20, "max_features": 0.7,
}  # fmt: skip
_ROWS_OF_LEAF, _LEAVES = 150, (31, 255)
"""Larger trees where there are more rows, of random columns, did better than scikit-learn's own settings, on splits of
thirty real tables."""
_JUDGES, _JUDGES_SHARE = 10_000, 0.2  # that weigh them, at most, and of all rows: from these no tree learns
_SURE = 0.5  # standard errors that their gain must exceed: they will grow again, from more rows,
_CLEAR = 0.005  # and so much of NLL + log RMSE: without them, a model is easier to read
_TWO = 1_000_000  # numbers from which on two forests, whose mean errs less, grow in little more time than one
_BLOCK = 4096


@dataclass(frozen=True)
class Forest:
    """Trees in arrays, one after another, level by level: children come after their parents, the right one after the
    left."""

    base: float
    roots: NDArray[np.int32]
    column: NDArray[np.int32]
    """Of each node; −1 for leaves."""
    value: Array
    """Threshold, up to which rows go left; of leaves, what they say."""
    left: NDArray[np.int32]

    @classmethod
    def of(cls, model: Any) -> Forest:
        """The trees of a fitted HistGradientBoostingRegressor. It has no public name for them; converters to other
        formats read them in the same way."""
        trees = [stage[0].nodes for stage in model._predictors]
        sizes = [len(nodes) for nodes in trees]
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        nodes, first = np.concatenate(trees), np.repeat(roots, sizes)
        order = np.lexsort((np.arange(len(nodes)), nodes["depth"], first))  # they come branch by branch
        place = np.argsort(order)
        children, nodes = place[nodes["left"] + first][order], nodes[order]
        leaf = nodes["is_leaf"].astype(bool)
        column, left = (np.where(leaf, -1, of).astype(np.int32) for of in (nodes["feature_idx"], children))
        value = np.where(leaf, nodes["value"], nodes["num_threshold"])
        return cls(float(np.ravel(model._baseline_prediction)[0]), roots, column, value, left)

    @classmethod
    def mean_of(cls, forests: Sequence[Forest]) -> Forest:
        first = np.cumsum([0] + [len(one.column) for one in forests[:-1]]).astype(np.int32)
        roots, left = (
            np.concatenate([getattr(one, name) + at for one, at in zip(forests, first, strict=True)])
            for name in ("roots", "left")
        )
        column, value = (np.concatenate([getattr(one, name) for one in forests]) for name in ("column", "value"))
        value = np.where(column < 0, value / len(forests), value)
        return cls(float(np.mean([one.base for one in forests])), roots, column, value, left)

    def __call__(self, X: Array, n_jobs: int | None = None) -> Array:
        """What they say of rows X (q, d)."""
        from gpnn.engines.compiled.trees import add_trees  # numba comes with it: not before it is needed

        said = np.full(len(X), self.base)

        def add(part: slice) -> None:
            add_trees(X[part], self.roots, self.column, self.value, self.left, said[part])

        for_each_block(add, len(X), _BLOCK, n_jobs)
        return said


@dataclass(frozen=True)
class Trees:
    """What they say of y in whitened units, and how far the law follows them."""

    forest: Forest
    weighing: Weighing
    """The process's weight first."""

    @property
    def weight(self) -> float:
        return float(self.weighing.weights[1])

    def beside(self, law: Prediction, X: Array, alone: Array | float = 0.0, n_jobs: int | None = None) -> Prediction:
        """The process's law of rows X (q, d), with their say. alone: from 0 to 1, where there is to be less of it."""
        together = self.weighing([law, _saying(self.forest(X, n_jobs), law)])
        share = 1 - np.asarray(alone)
        mean = law.mean + share * (together.mean - law.mean)
        return replace(law, mean=mean).with_own(law.own * (together.own / law.own) ** share)


def _saying(said: Array, law: Prediction) -> Prediction:
    """The trees' own law, as sure as the process is: they do not say how sure they are."""
    return replace(law, mean=said)


class Grown(NamedTuple):
    forest: Forest
    settings: dict
    """With which as many trees grow again."""


def grow_few(X: Array, y: Array, rows: NDArray[np.integer]) -> Grown:
    """Few trees from few of those rows, no judges among them: do they say anything?"""
    return _grown(X, y, rows[:_FEW_ROWS], _FEW_GROWN)


def learn_trees(
    X: Array,
    y: Array,
    rows: NDArray[np.integer],
    law: Prediction,
    local: bool,
    n_jobs: int | None,
    rng,
    told: dict,
    few: Callable[[], Grown],
) -> tuple[Trees, Array] | None:
    """Trees that judges gain by, and the standardised residuals that these have with them. rows: the numbers of the
    judges among X (n, d), y (n,), which is in whitened units; law: what the process says of them; few: `grow_few`,
    done or under way; told: for the report."""
    told["kept"] = False
    some = rng.permutation(len(rows))[: min(_JUDGES, max(FEWEST, int(_JUDGES_SHARE * len(X))))]
    if len(some) < FEWEST:
        return None
    others = rng.permutation(np.delete(np.arange(len(X)), rows[some]))
    judges, outcome, law = X[rows[some]], y[rows[some]], law[some]
    grown, alone = [few()], metrics.rmse(outcome, law)

    def error_of(one: Grown) -> float:
        return metrics.rmse(outcome, _saying(one.forest(judges, n_jobs), law)) / alone

    told["few_rmse"] = error_of(grown[0])
    if told["few_rmse"] > _HOPELESS:
        return None
    grown.append(_grown(X, y, others[: _most_rows(X)], _GROWN))
    best = min(grown, key=error_of)
    laws = [law, _saying(best.forest(judges, n_jobs), law)]
    trial, weighing = judged(outcome, laws, local, rng), fit_weighing(outcome, laws, local)
    trees = Trees(best.forest, weighing)
    told |= {
        "rmse": error_of(best), "trees": len(best.forest.roots), "weight": trees.weight,
        "gain": trial.gain, "gain_standard_error": trial.error,
    }  # fmt: skip
    told["kept"] = trees.weight > 0 and trial.exceeds(_SURE, _CLEAR)
    if not told["kept"]:
        return None
    if len(others) < _most_rows(X):  # now that they have been judged, from the judges' rows too
        every = rng.permutation(len(X))[: _most_rows(X)]
        n_forests = 2 if len(every) * X.shape[1] >= _TWO else 1
        tasks = [partial(_regrown, X, y, every, best.settings | {"random_state": k}) for k in range(n_forests)]
        trees = replace(trees, forest=Forest.mean_of(in_parallel(tasks, rng, n_jobs)))
    return trees, trial.residuals


def _regrown(X: Array, y: Array, rows: NDArray[np.integer], settings: dict, _: np.random.Generator) -> Forest:
    return _grown(X, y, rows, settings).forest


def _most_rows(X: Array) -> int:
    return min(_ROWS, _NUMBERS // X.shape[1])


def gains_of_columns(X: Array, y: Array) -> Array:
    """(d,): how much of y's squares a few trees take away by splits of each column."""
    nodes = np.concatenate([stage[0].nodes for stage in _boosted(X, y, _HASTY)._predictors])
    inner = nodes[nodes["is_leaf"] == 0]
    return np.bincount(inner["feature_idx"], weights=inner["gain"], minlength=X.shape[1]).astype(float)


def _grown(X: Array, y: Array, rows: NDArray[np.integer], settings: dict) -> Grown:
    settings = {"max_leaf_nodes": int(np.clip(len(rows) // _ROWS_OF_LEAF, *_LEAVES))} | settings
    model = _boosted(X[rows], y[rows], settings)
    return Grown(Forest.of(model), settings | {"max_iter": model.n_iter_, "early_stopping": False})


def _boosted(X: Array, y: Array, settings: dict) -> Any:
    """By one thread: those of OpenMP wait for each other at every split, and where others use the cores that takes far
    longer than the work."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # which takes a while, and no prediction needs

    with threadpool_limits(1, user_api="openmp"):
        return HistGradientBoostingRegressor(**({"random_state": 0} | settings)).fit(X, y)
