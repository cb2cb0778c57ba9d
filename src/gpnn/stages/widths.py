"""Boosted trees for the widths of laws, where judges gain by them.

Calibration knows one α, a floor and how rough the rows around a query are. Where y is noisier in some corner of the
table, or the process surer of itself than it should be, trees find that from the errors of judges: they say the
logarithm of a factor for each variance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpnn.common.types import Array, Prediction
from gpnn.engines.parallel import for_each_block, in_parallel
from gpnn.stages.calibration import surprise_in
from gpnn.stages.forest import Binned, Forest, Growth
from gpnn.stages.weighing import FEWEST, Trial

_MOST = 20_000  # judges that are listened to
_COUNTS = (10, 30, 75)  # of trees, that are tried
_GROWN = Growth(_COUNTS[-1], rate=0.1, leaves=8, seen=64, squares=True)
_LEAST, _SHARE = 50, 40  # rows in a leaf, and one in so many of all
_FOLDS = 3
_WILDEST = 50.0  # a square of a standardised error: what is farther off says no more
_SURE, _CLEAR = 2.0, 0.005  # standard errors and nats that judges must gain
_BLOCK = 4096


@dataclass(frozen=True)
class Widths:
    forest: Forest
    """Of the law's variance (its logarithm), its mean, and the columns of the table."""

    def __call__(self, law: Prediction, X: Array, n_jobs: int | None = None) -> Array:
        """Factors (q,) for the variances of rows X (q, d)."""
        said = np.empty(len(X))

        def ask(part: slice) -> None:
            said[part] = self.forest(_columns(law[part], X[part]), 1)

        for_each_block(ask, len(X), _BLOCK, n_jobs)
        return np.exp(said)


def learn_widths(
    X: Array, y: Array, law: Prediction, n_jobs: int | None, rng: np.random.Generator, told: dict
) -> tuple[Widths, Array] | None:
    """Trees that judges X (n, d), y (n,) gain by, of those who did not grow them; and the standardised residuals that
    these have with them. told: for the report."""
    told["kept"] = False
    if len(y) < FEWEST:
        return None
    some = rng.permutation(len(y))[:_MOST]
    X, y, law = X[some], y[some], law[some]
    squared, n = (y - law.mean) ** 2, len(y)
    squares = np.minimum((squared + surprise_in(squared)) / law.own, _WILDEST)
    if not squares.any():  # all of them were predicted exactly
        return None
    seen, part = _columns(law, X), np.arange(n) % _FOLDS
    table = Binned.of(seen)
    how = replace(_GROWN, least_rows=max(_LEAST, n // _SHARE))

    def heard(k: int, _: np.random.Generator) -> Array:
        """What those who grew without it say of a part, for each count."""
        forest = table.grow(squares, np.flatnonzero(part != k), how, seed=k).forest
        return np.stack([forest.first(count)(seen[part == k], 1) for count in _COUNTS])

    said = np.empty((len(_COUNTS), n))
    for k, of_part in enumerate(in_parallel([partial(heard, k) for k in range(_FOLDS)], rng, n_jobs)):
        said[:, part == k] = of_part
    alphas = np.log(np.mean(squared / (law.own * np.exp(said)), axis=1))  # so that variances are right on average
    said += alphas[:, None]
    gains = 0.5 * squared / law.variance * (1 - np.exp(-said)) - 0.5 * said
    best = int(np.argmax(gains.mean(axis=1)))
    error = float(np.std(gains[best], ddof=1) / np.sqrt(n))
    trial = Trial(float(np.mean(gains[best])), error, (y - law.mean) / (law.std * np.exp(0.5 * said[best])))
    told |= {"trees": _COUNTS[best], "gain": trial.gain, "gain_standard_error": trial.error}
    told["kept"] = trial.exceeds(_SURE, _CLEAR)
    if not told["kept"]:
        return None
    forest = table.grow(squares, np.arange(n), replace(how, n_trees=_COUNTS[best]), seed=_FOLDS).forest
    forest = replace(forest, base=forest.base + float(alphas[best]))
    return Widths(forest), trial.residuals


def _columns(law: Prediction, X: Array) -> Array:
    return np.column_stack([np.log(law.own), law.mean, X])
