"""What queries to come may ask for beyond what random judges say, as far as the table tells: factors of the variances.

Rows that stand close to each other in a table often have more in common than their columns show: an hour, a machine, a
person. A random row has such companions; the rows that come after the table have none. So judges are predicted once
without the rows that stand close to them, and once without as many others. Where most still have their like elsewhere
in the table, but err more, the relation drifts. Whether queries come later or from between is not known: they get half
of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpnn.common import metrics
from gpnn.common.types import Array, Prediction
from gpnn.engines import Engine
from gpnn.stages.calibration import factor_for_a_new_part
from gpnn.stages.far import OUTSIDE, Far
from gpnn.stages.near import Answer, Near
from gpnn.stages.recalibration import UNCHANGED
from gpnn.stages.rims import first_shown, predicted

_JUDGES, _FEWEST = 3000, 1000
_MOST = 32  # neighbours: few are enough to tell
_SOUGHT = 8  # times as many, of which some stand too close in the table
_CLOSE = 0.1  # of the table
_MOST_OF_THEM = 0.75  # judges that must have their like elsewhere
_LEAST, _LARGEST = 1.1, 1.3  # ratio that is worth it, and factor
_TENTHS, _SURE = 10, 3.0  # of the judges, whose scatter says what is chance; standard errors


def factors_to_come(
    near: Near,
    far: Far | None,
    engine: Engine,
    y: Array,
    law: Prediction,
    n_parts: int | None,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Of variances inside the support and outside. y, law: of judges; n_parts: that they are of, if queries will be of
    others."""
    if n_parts is not None and len(y):
        return (factor_for_a_new_part(metrics.z_squared(y, law), n_parts),) * 2
    if far is None or far.mixture.edge == -np.inf:
        return UNCHANGED
    return drift(near, far, engine, rng), 1.0


def drift(near: Near, far: Far, engine: Engine, rng: np.random.Generator) -> float:
    """What the variance is multiplied by within the support; 1 where the order of the rows tells nothing."""
    n, index = len(engine.y), engine.index
    few = replace(near, n_neighbors=min(near.n_neighbors, _MOST))
    m, sought = few.n_neighbors, _SOUGHT * few.n_neighbors
    if n < max(_FEWEST, 4 * sought):
        return 1.0
    judges = rng.choice(n, min(n, _JUDGES), replace=False)
    found = engine.neighbors(index.points(judges), sought).indices
    apart = np.abs(index.order[found].astype(np.int64) - index.order[judges].astype(np.int64)[:, None])
    as_many = rng.random(apart.shape) > _CLOSE * (2 - _CLOSE)  # were the rows in random order
    both, asked = (apart > _CLOSE * n, (apart > 0) & as_many), len(judges)
    whole = np.all([np.count_nonzero(shown, axis=1) >= m for shown in both], axis=0)
    found, judges = found[whole], judges[whole]
    without, usual = (first_shown(found, shown[whole], m)[1] for shown in both)
    (law, nested), (usual_law, _) = (predicted(few, engine, judges, of, rng) for of in (without, usual))
    after, before = ((engine.y[judges] - of.mean) ** 2 / of.variance for of in (law, usual_law))
    support = far.support(Answer(law, nested[:, -1], np.zeros(len(judges)), nested))
    inside = np.isfinite(after + before) & (support >= OUTSIDE)
    if inside.sum() < max(_FEWEST, _MOST_OF_THEM * asked):
        return 1.0
    ratios = [_ratio(after, before, some) for some in np.array_split(np.flatnonzero(inside), _TENTHS)]
    ratio, error = _ratio(after, before, np.flatnonzero(inside)), float(np.std(ratios, ddof=1)) / np.sqrt(_TENTHS)
    drifts = ratio > np.log(_LEAST) and ratio > _SURE * error
    return float(min(np.exp(0.5 * ratio), _LARGEST)) if drifts else 1.0


def _ratio(after: Array, before: Array, judges: NDArray) -> float:
    """The logarithm of how much larger z² is that nine in ten judges do not exceed."""
    larger, usual = (max(float(np.quantile(of[judges], 0.9)), 1e-300) for of in (after, before))
    return float(np.log(larger / usual))
