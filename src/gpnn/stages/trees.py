"""Boosted trees beside the process, where judges gain by them.

Where y jumps at thresholds of columns, trees find in few splits what a distance has to learn from many rows. Where it
is a straight line and noise, they begin from one. They learn from rows that are no judges, or in folds where every row
is one; the judges then say how far the law follows them.
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
from gpnn.stages.mean import Linear
from gpnn.stages.weighing import FEWEST, Weighing, fit_weighing, judged

Columns = NDArray[np.int64]

_FEW_ROWS = 10_000  # from which few trees learn, to say whether more are worth their time
_HOPELESS = 1.5  # times the process's RMSE, of these few
_ROWS, _NUMBERS = 100_000, 4_000_000  # that trees learn from, at most: rows, and rows times columns that each sees
_HASTY = Growth(30, rate=0.3, leaves=31)
_SEEN, _TRIED = 64, 0.7  # columns that a tree sees, and the share of them for each split
_FEW_GROWN = Growth(100, rate=0.1, leaves=31, seen=_SEEN, tried=_TRIED)
_BARE = Growth(0, rate=0.1, leaves=31)
"""The line that trees would begin from, and nothing else."""
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


@dataclass(frozen=True)
class _Ground:
    """What trees grow from: a table, and y (n,), or what a line leaves of it."""

    table: Binned
    y: Array
    line: Linear | None = None

    @classmethod
    def of(cls, table: Binned, X: Array, y: Array, rows: Rows, with_line: bool) -> _Ground:
        """rows: that the line may be drawn from."""
        if not with_line:
            return cls(table, y)
        line = Linear().fit(X[rows], y[rows])
        return cls(table, y - line.predict(X), line)

    def grow(self, rows: Rows, how: Growth, seed: int) -> Grown:
        grown = self.table.grow(self.y, rows, how, seed)
        return replace(grown, forest=replace(grown.forest, line=self.line))


class Few(NamedTuple):
    """Trees that say whether more are worth their time."""

    grown: tuple[Grown, ...]
    """From y, and from what a line leaves of it."""
    columns: Columns
    """That trees are worth growing from."""


def grow_few(X: Array, y: Array, rows: Rows) -> Few:
    """From few of those rows, no judges among them."""
    X, y = X[rows[:_FEW_ROWS]], y[rows[:_FEW_ROWS]]
    table, every = Binned.of(X), np.arange(len(X))
    columns = _strongest(table, y)
    table = table.only(columns)
    plain, lined = (_Ground.of(table, X, y, every, line).grow(every, _FEW_GROWN, seed=0) for line in (False, True))
    return Few((plain, lined), columns)


def _strongest(table: Binned, y: Array) -> Columns:
    """All columns; of more than a tree sees, those that a few trees gain anything with, the strongest first."""
    if len(table.columns) <= _SEEN:
        return table.columns
    gains = gains_of_columns(table, y)
    return np.argsort(-gains, kind="stable")[: max(np.count_nonzero(gains), 1)]


class Learned(NamedTuple):
    trees: Trees
    residuals: Array
    """Of the judges that were heard, standardised."""
    some: Rows
    """Places of these among all judges."""
    law: Prediction
    """Of them, with the say of trees that had not seen them."""


class _Heard(NamedTuple):
    """What trees say of judges whom none of them has seen."""

    some: Rows
    """Places of these among all judges."""
    said: Array
    how: Growth
    """As many as were of use."""
    lined: bool
    """Whether they begin from a line."""
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
) -> Learned | None:
    """Trees that judges gain by. rows: the numbers of the
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
        "rmse": metrics.rmse(outcome, own) / metrics.rmse(outcome, law), "trees": heard.how.n_trees,
        "line": heard.lined, "weight": weight, "gain": trial.gain, "gain_standard_error": trial.error,
    }  # fmt: skip
    told["kept"] = weight > 0 and trial.exceeds(_SURE, _CLEAR)
    if not told["kept"]:
        return None
    if heard.table is None:
        assert heard.forest is not None
        return Learned(Trees(heard.forest, weighing), trial.residuals, heard.some, weighing([law, own]))
    every, how = np.arange(len(X)), replace(heard.how, n_trees=round(_MORE * heard.how.n_trees))
    ground = _Ground.of(heard.table, X, y, every, heard.lined)

    def grown(seed: int, _: np.random.Generator) -> Forest:
        return ground.grow(every, how, seed).forest

    n_forests = _FORESTS[len(heard.table.columns) > _SEEN]
    again = in_parallel([partial(grown, seed) for seed in range(1, 1 + n_forests)], rng, n_jobs)
    return Learned(Trees(Forest.mean_of(again), weighing), trial.residuals, heard.some, weighing([law, own]))


def _aside(
    X: Array, y: Array, rows: Rows, law: Prediction, n_jobs: int | None, rng, told: dict, few: Callable[[], Few]
) -> _Heard | None:
    """From rows that are no judges; some of these, to whom the others are as any row. None if few trees were
    hopeless."""
    some = rng.permutation(len(rows))[: min(_JUDGES, max(FEWEST, int(_JUDGES_SHARE * len(X))))]
    judges, law = rows[some], law[some]
    X_judges, outcome = X[judges], y[judges]

    def asked(one: Grown) -> tuple[Array, float]:
        said = one.forest(X_judges, n_jobs)
        return said, metrics.rmse(outcome, _saying(said, law))

    begun, columns = few()
    answers = [asked(one) for one in begun]
    lined = answers[1][1] < answers[0][1]
    said, error = answers[lined]
    told["few_rmse"] = error / metrics.rmse(outcome, law)
    if told["few_rmse"] > _HOPELESS:
        return None
    others, most = rng.permutation(np.delete(np.arange(len(X)), judges)), _most_rows(columns)
    again = len(others) < most  # there are more rows to grow from: the judges', once they have judged
    if not again:
        X, y, others = X[others[:most]], y[others[:most]], np.arange(most)
    table, how = Binned.of(X, columns), _growth(len(others))
    ground = _Ground.of(table, X, y, others, lined)
    ways = [(_FEW_GROWN, begun[lined], said, error)]
    for growth in (how, _BARE) if lined else (how,):
        grown = ground.grow(others, growth, seed=0)
        ways.append((growth, grown, *asked(grown)))
    growth, grown, said, _ = min(ways, key=lambda way: way[-1])
    return _Heard(some, said, _enough(growth, [grown]), lined, grown.forest, table if again else None)


def _in_folds(
    X: Array, y: Array, rows: Rows, law: Prediction, n_jobs: int | None, rng: np.random.Generator, told: dict
) -> _Heard | None:
    """Each judge hears those that grew without its fold. None if the first fold's were hopeless."""
    fold, table, how = rng.permutation(len(X)) % _FOLDS, Binned.of(X), _growth(len(X))
    table = table.only(_strongest(table, y))
    inside = [np.flatnonzero(fold[rows] == k) for k in range(_FOLDS)]

    def heard(k: int, lined: bool, how: Growth, _: np.random.Generator) -> tuple[Grown, Array]:
        others = np.flatnonzero(fold != k)
        grown = _Ground.of(table, X, y, others, lined).grow(others, how, seed=k)
        return grown, grown.forest(X[rows[inside[k]]], 1)

    def in_turn(*asked: tuple[int, bool, Growth]) -> list[tuple[Grown, Array]]:
        return in_parallel([partial(heard, *of) for of in asked], rng, n_jobs)

    outcome, alone = y[rows[inside[0]]], law[inside[0]]
    ways = ((False, how), (True, how), (True, _BARE))
    first = in_turn(*((0, *way) for way in ways))
    errors = [metrics.rmse(outcome, _saying(said, alone)) for _, said in first]
    best = int(np.argmin(errors))
    told["few_rmse"] = errors[best] / metrics.rmse(outcome, alone)
    if told["few_rmse"] > _HOPELESS:
        return None
    lined, how = ways[best]
    every = [first[best], *in_turn(*((k, lined, how) for k in range(1, _FOLDS)))]
    said = np.empty(len(rows))
    said[np.concatenate(inside)] = np.concatenate([one for _, one in every])
    return _Heard(np.arange(len(rows)), said, _enough(how, [grown for grown, _ in every]), lined, None, table)


def _growth(n: int) -> Growth:
    """Until some of n rows gain no more."""
    return Growth(_MOST_GROWN, _RATE, int(np.clip(n // _ROWS_OF_LEAF, *_LEAVES)), _PATIENCE, _SEEN, _TRIED)


def _enough(how: Growth, grown: Sequence[Grown]) -> Growth:
    return replace(how, n_trees=round(float(np.mean([one.n_trees for one in grown]))), patience=0)


def _most_rows(columns: Columns) -> int:
    return min(_ROWS, _NUMBERS // min(len(columns), _SEEN))


def gains_of_columns(table: Binned, y: Array) -> Array:
    """(d,): how much of y's squares a few trees take away by splits of each column."""
    return table.grow(y, np.arange(len(y)), _HASTY, seed=0).gains
