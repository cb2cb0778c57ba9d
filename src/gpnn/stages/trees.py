"""Boosted trees beside the process, where judges gain by them.

Where y jumps at thresholds of columns, trees find in few splits what a distance has to learn from many rows. They learn
from rows that are no judges; the judges then say how far the law follows them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpnn.common import metrics
from gpnn.common.types import Array, Prediction
from gpnn.engines.parallel import in_parallel
from gpnn.stages.forest import Binned, Forest, Grown, Growth
from gpnn.stages.holdout import Rows
from gpnn.stages.weighing import FEWEST, Weighing, fit_weighing, judged

_FEW_ROWS = 10_000  # from which few trees learn, to say whether more are worth their time
_HOPELESS = 1.5  # times the process's RMSE, of these few
_ROWS, _NUMBERS = 100_000, 4_000_000  # that trees learn from, at most: rows, and rows times columns
_HASTY = Growth(30, rate=0.3, leaves=31)
_TRIED = 0.7  # of the columns, for each split
_FEW_GROWN = Growth(100, rate=0.1, leaves=31, tried=_TRIED)
_MOST_GROWN, _RATE, _PATIENCE = 400, 0.1, 20
_ROWS_OF_LEAF, _LEAVES = 150, (31, 255)
"""Larger trees where there are more rows did better, on splits of thirty real tables."""
_JUDGES, _JUDGES_SHARE = 10_000, 0.2  # that weigh them, at most, and of all rows: from these no tree learns
_SURE = 0.5  # standard errors that their gain must exceed: they will grow again, from more rows,
_CLEAR = 0.005  # and so much of NLL + log RMSE: without them, a model is easier to read
_FORESTS, _MORE = 2, 1.25  # that grow from all rows, their mean errs less; times the trees that these can do with


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


def grow_few(X: Array, y: Array, rows: Rows) -> Grown:
    """Few trees from few of those rows, no judges among them: do they say anything?"""
    rows = rows[:_FEW_ROWS]
    return Binned.of(X[rows]).grow(y[rows], np.arange(len(rows)), _FEW_GROWN, seed=0)


def learn_trees(
    X: Array,
    y: Array,
    rows: Rows,
    law: Prediction,
    local: bool,
    n_jobs: int | None,
    rng: np.random.Generator,
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
    judges, law = rows[some], law[some]
    outcome = y[judges]
    alone = metrics.rmse(outcome, law)

    def said_by(one: Grown) -> Prediction:
        return _saying(one.forest(X[judges], n_jobs), law)

    few_said = said_by(few())
    told["few_rmse"] = metrics.rmse(outcome, few_said) / alone
    if told["few_rmse"] > _HOPELESS:
        return None
    others, most = rng.permutation(np.delete(np.arange(len(X)), judges)), _most_rows(X)
    again = len(others) < most  # there are more rows to grow from: the judges', once they have judged
    table = np.concatenate([others, judges]) if again else others[:most]
    binned, learned = Binned.of(X[table]), np.arange(min(len(others), most))
    how = Growth(_MOST_GROWN, _RATE, int(np.clip(len(learned) // _ROWS_OF_LEAF, *_LEAVES)), _PATIENCE, _TRIED)
    grown, said = binned.grow(y[table], learned, how, seed=0), few_said
    if metrics.rmse(outcome, more_said := said_by(grown)) < metrics.rmse(outcome, few_said):
        said = more_said
    else:
        grown, how = few(), _FEW_GROWN
    trial, weighing = judged(outcome, [law, said], local, rng), fit_weighing(outcome, [law, said], local)
    trees = Trees(grown.forest, weighing)
    told |= {
        "rmse": metrics.rmse(outcome, said) / alone, "trees": grown.n_trees, "weight": trees.weight,
        "gain": trial.gain, "gain_standard_error": trial.error,
    }  # fmt: skip
    told["kept"] = trees.weight > 0 and trial.exceeds(_SURE, _CLEAR)
    if not told["kept"]:
        return None
    if again:
        how = replace(how, n_trees=round(_MORE * grown.n_trees), patience=0)

        def grow(number: int, _: np.random.Generator) -> Forest:
            return binned.grow(y[table], np.arange(len(table)), how, seed=number).forest

        forests = in_parallel([partial(grow, number) for number in range(1, 1 + _FORESTS)], rng, n_jobs)
        trees = replace(trees, forest=Forest.mean_of(forests))
    return trees, trial.residuals


def _most_rows(X: Array) -> int:
    return min(_ROWS, _NUMBERS // X.shape[1])


def gains_of_columns(X: Array, y: Array) -> Array:
    """(d,): how much of y's squares a few trees take away by splits of each column."""
    return Binned.of(X).grow(y, np.arange(len(X)), _HASTY, seed=0).gains
