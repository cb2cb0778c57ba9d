"""Boosted trees beside the process, where judges gain by them.

Where y jumps at thresholds of columns, trees find in few splits what a distance has to learn from many rows. They learn
from rows that are no judges, or in folds where every row is one; the judges then say how far the law follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpnn.common import metrics
from gpnn.common.types import Array, Prediction
from gpnn.engines.parallel import in_parallel
from gpnn.stages.forest import Binned, Forest, Grown, Growth
from gpnn.stages.holdout import Rows
from gpnn.stages.weighing import FEWEST, Weighing, fit_weighing, judged

Columns = NDArray[np.int64]

_FEW_ROWS = 10_000  # from which few trees learn, to say whether more are worth their time
_HOPELESS = 1.5  # times the process's RMSE, of these few
_ROWS, _NUMBERS = 100_000, 4_000_000  # that trees learn from, at most: rows, and rows times columns that each sees
_HASTY = Growth(30, rate=0.3, leaves=31)
_SEEN, _TRIED = 64, 0.7  # columns that a tree sees, and the share of them for each split
_FEW_GROWN = Growth(100, rate=0.1, leaves=31, seen=_SEEN, tried=_TRIED)
_MOST_GROWN, _RATE, _PATIENCE = 400, 0.1, 20
_ROWS_OF_LEAF, _LEAVES = 150, (31, 255)
"""Larger trees where there are more rows did better, on splits of thirty real tables."""
_JUDGES, _JUDGES_SHARE = 10_000, 0.2  # that weigh them, at most, and of all rows: from these no tree learns
_SURE = 0.5  # standard errors that their gain must exceed: they will grow again, from more rows,
_CLEAR = 0.005  # and so much of NLL + log RMSE: without them, a model is easier to read
_FOLDS = 5
_FORESTS, _MORE = (2, 4), 1.25
"""That grow from all rows, whose mean errs less: so many where each tree sees all columns, and where it sees only some;
and times the trees that these can do with."""


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


class Few(NamedTuple):
    """Trees that say whether more are worth their time."""

    grown: Grown
    columns: Columns
    """That trees are worth growing from."""


def grow_few(X: Array, y: Array, rows: Rows) -> Few:
    """From few of those rows, no judges among them."""
    rows = rows[:_FEW_ROWS]
    table, y = Binned.of(X[rows]), y[rows]
    columns = _strongest(table, y)
    return Few(table.only(columns).grow(y, np.arange(len(rows)), _FEW_GROWN, seed=0), columns)


def _strongest(table: Binned, y: Array) -> Columns:
    """All columns; of more than a tree sees, those that a few trees gain anything with, the strongest first."""
    if len(table.columns) <= _SEEN:
        return table.columns
    gains = gains_of_columns(table, y)
    return np.argsort(-gains, kind="stable")[: max(np.count_nonzero(gains), 1)]


class _Heard(NamedTuple):
    """What trees say of judges whom none of them has seen."""

    some: Rows
    """Places of these among all judges."""
    said: Array
    how: Growth
    """As many as were of use."""
    forest: Forest | None
    table: Binned | None
    """All rows, if trees are to grow again from them."""


def learn_trees(
    X: Array,
    y: Array,
    rows: Rows,
    law: Prediction,
    local: bool,
    n_jobs: int | None,
    rng: np.random.Generator,
    told: dict,
    few: Callable[[], Few] | None,
) -> tuple[Trees, Array] | None:
    """Trees that judges gain by, and the standardised residuals that these have with them. rows: the numbers of the
    judges among X (n, d), y (n,), which is in whitened units; law: what the process says of them; few: `grow_few`,
    done or under way, or None where rows are so few that each of them is a judge; told: for the report."""
    told["kept"] = False
    if len(rows) < FEWEST:
        return None
    heard = (
        _in_folds(X, y, rows, law, n_jobs, rng, told)
        if few is None
        else _aside(X, y, rows, law, n_jobs, rng, told, few)
    )
    if heard is None:
        return None
    outcome, law = y[rows[heard.some]], law[heard.some]
    own = _saying(heard.said, law)
    trial, weighing = judged(outcome, [law, own], local, rng), fit_weighing(outcome, [law, own], local)
    weight = float(weighing.weights[1])
    told |= {
        "rmse": metrics.rmse(outcome, own) / metrics.rmse(outcome, law), "trees": heard.how.n_trees, "weight": weight,
        "gain": trial.gain, "gain_standard_error": trial.error,
    }  # fmt: skip
    told["kept"] = weight > 0 and trial.exceeds(_SURE, _CLEAR)
    if not told["kept"]:
        return None
    if heard.table is None:
        assert heard.forest is not None
        return Trees(heard.forest, weighing), trial.residuals
    table, how = heard.table, replace(heard.how, n_trees=round(_MORE * heard.how.n_trees))

    def grown(seed: int, _: np.random.Generator) -> Forest:
        return table.grow(y, np.arange(len(X)), how, seed).forest

    n_forests = _FORESTS[len(table.columns) > _SEEN]
    again = in_parallel([partial(grown, seed) for seed in range(1, 1 + n_forests)], rng, n_jobs)
    return Trees(Forest.mean_of(again), weighing), trial.residuals


def _aside(
    X: Array, y: Array, rows: Rows, law: Prediction, n_jobs: int | None, rng, told: dict, few: Callable[[], Few]
) -> _Heard | None:
    """From rows that are no judges; some of these, to whom the others are as any row. None if few trees were
    hopeless."""
    some = rng.permutation(len(rows))[: min(_JUDGES, max(FEWEST, int(_JUDGES_SHARE * len(X))))]
    judges, law = rows[some], law[some]
    outcome = y[judges]

    def asked(one: Grown) -> tuple[Array, float]:
        said = one.forest(X[judges], n_jobs)
        return said, metrics.rmse(outcome, _saying(said, law))

    begun, columns = few()
    said, error = asked(begun)
    told["few_rmse"] = error / metrics.rmse(outcome, law)
    if told["few_rmse"] > _HOPELESS:
        return None
    others, most = rng.permutation(np.delete(np.arange(len(X)), judges)), _most_rows(columns)
    again = len(others) < most  # there are more rows to grow from: the judges', once they have judged
    if again:
        table, how = Binned.of(X, columns), _growth(len(others))
        grown = table.grow(y, others, how, seed=0)
    else:
        table, how = Binned.of(X[others[:most]], columns), _growth(most)
        grown = table.grow(y[others[:most]], np.arange(most), how, seed=0)
    more_said, less = asked(grown)
    if less > error:
        return _Heard(some, said, _FEW_GROWN, begun.forest, table if again else None)
    return _Heard(some, more_said, _enough(how, [grown]), grown.forest, table if again else None)


def _in_folds(
    X: Array, y: Array, rows: Rows, law: Prediction, n_jobs: int | None, rng: np.random.Generator, told: dict
) -> _Heard | None:
    """Each judge hears those that grew without its fold. None if the first fold's were hopeless."""
    fold, table, how = rng.permutation(len(X)) % _FOLDS, Binned.of(X), _growth(len(X))
    table = table.only(_strongest(table, y))
    inside = [np.flatnonzero(fold[rows] == k) for k in range(_FOLDS)]

    def heard(k: int, _: np.random.Generator) -> tuple[Grown, Array]:
        grown = table.grow(y, np.flatnonzero(fold != k), how, seed=k)
        return grown, grown.forest(X[rows[inside[k]]], 1)

    first, outcome, alone = heard(0, rng), y[rows[inside[0]]], law[inside[0]]
    told["few_rmse"] = metrics.rmse(outcome, _saying(first[1], alone)) / metrics.rmse(outcome, alone)
    if told["few_rmse"] > _HOPELESS:
        return None
    every = [first, *in_parallel([partial(heard, k) for k in range(1, _FOLDS)], rng, n_jobs)]
    said = np.empty(len(rows))
    said[np.concatenate(inside)] = np.concatenate([one for _, one in every])
    return _Heard(np.arange(len(rows)), said, _enough(how, [grown for grown, _ in every]), None, table)


def _growth(n: int) -> Growth:
    """Until some of n rows gain no more."""
    return Growth(_MOST_GROWN, _RATE, int(np.clip(n // _ROWS_OF_LEAF, *_LEAVES)), _PATIENCE, _SEEN, _TRIED)


def _enough(how: Growth, grown: Sequence[Grown]) -> Growth:
    return replace(how, n_trees=max(1, round(float(np.mean([one.n_trees for one in grown])))), patience=0)


def _most_rows(columns: Columns) -> int:
    return min(_ROWS, _NUMBERS // min(len(columns), _SEEN))


def gains_of_columns(table: Binned, y: Array) -> Array:
    """(d,): how much of y's squares a few trees take away by splits of each column."""
    return table.grow(y, np.arange(len(y)), _HASTY, seed=0).gains
