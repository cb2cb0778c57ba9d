"""Which scale a target is learned on, and which values it never passes: both by evidence.

Most targets are learned as they are. Where y is so skewed that a power of it would be far closer to Gaussian, scales
are tried: small models of the same rows, whose laws of other rows are compared in the units of y.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from gpnn.common.errors import InvalidInputError
from gpnn.common.scales import TargetScale
from gpnn.common.types import Array
from gpnn.engines import Engine
from gpnn.engines.parallel import in_parallel
from gpnn.stages.trials import LONGER, Trial

FEWEST = 400
"""Rows; below, trials of scales would compare noise."""
_WHITENINGS = "ranks", "diagonal"  # of which the better one serves
LEARN, JUDGE = 16_000, 4000
"""Rows of a trial, at most."""
_LEARN_SHARE = 0.75

_SKEWED = 0.1  # nats a row, that a power of y is closer to Gaussian than y is, for scales to be tried at all
_LOOKED_AT = 10_000  # rows, for that
_CLEAR, _DEVIATIONS = 0.03, 2.0  # of NLL + log RMSE, to be gained; of NLL, times what chance explains
_PRICE = 0.05  # the part of squared errors that may be lost for a nat,
_MUCH = 0.25  # or as much as chance explains, where a scale gains so many nats
_GRAIN = 0.05  # where some rows are zero: the quantile of the others that stands for the smallest step of y
_ANSCOMBE = 3 / 8  # steps added before a root: counts have the same variance then, whatever their mean
_PILE, _FEWEST_IN_PILE, _APART = 0.01, 10, 3.0  # rows that share an extreme: a share, a number, times the usual
_FEW_VALUES = 20
_ENDS, _NEAR_END = (1.0, 100.0), 0.95  # shares and percentages


def limits_of(y: Array) -> tuple[float, float]:
    """Values that y will not pass, as far as its rows tell; infinite where they do not.

    A target that is never negative has the limit 0; one that stays within 0 and 1, or 0 and 100, and comes near the
    upper end, has that too. So has a value at which rows pile up, where it is the least or the largest of all.
    """
    lowest, highest = float(y.min()), float(y.max())
    low = lowest if _piled(y, lowest) else 0.0 if lowest >= 0 else -np.inf
    high = highest if _piled(y, highest) else 0.0 if highest <= 0 else np.inf
    if np.isinf(high) and lowest >= 0:
        high = next((end for end in _ENDS if _NEAR_END * end <= highest <= end), np.inf)
    return low, high


def _piled(y: Array, extreme: float) -> bool:
    rows, distinct = int(np.sum(y == extreme)), len(np.unique(y))
    if rows < max(_FEWEST_IN_PILE, _PILE * len(y)):
        return False
    return distinct <= _FEW_VALUES or rows >= _APART * len(y) / distinct


def make_scale(kind: str, y: Array, limits: tuple[float, float]) -> TargetScale:
    """A scale of that kind for targets like y (n,)."""
    low, high = limits
    spread = float(np.std(y))
    if kind == "identity":
        return TargetScale(low=low, high=high, spread=spread)
    settings: dict[str, Any] = {"kind": kind, "low": low, "high": high, "spread": spread}
    if kind == "yeo-johnson":
        centre, unit = _middle(y)
        settings |= {"centre": centre, "unit": unit, "power": _power((_sampled(y) - centre) / unit)[0]}
    else:
        lowest = float(y.min())
        if lowest < 0:
            raise InvalidInputError(
                f"target_scale = {kind!r} is for targets that are never negative; {int((y < 0).sum())} of {len(y)} "
                f"are, down to {lowest:g}. Choose 'yeo-johnson', which takes any, or 'auto'."
            )
        step = 0.0 if lowest > 0 else _step(y)
        added = step if kind == "log" else _ANSCOMBE * step
        settings |= {"centre": -added, "least": (lowest + added) / 2 if lowest + added > 0 else 0.0}
    plain = TargetScale(**settings)
    t = plain(y)
    margin = float(np.std(t))
    return TargetScale(**settings, reach=(float(t.min()) - margin, float(t.max()) + margin))


def scales_to_try(y: Array, limits: tuple[float, float]) -> list[TargetScale]:
    """None, unless y is skewed."""
    centre, unit = _middle(y)
    if len(y) < FEWEST or unit == 0 or len(np.unique(_sampled(y))) < 3:
        return []
    power, gain = _power((_sampled(y) - centre) / unit)
    if gain < _SKEWED:
        return []
    kinds = ["sqrt", "log"] if y.min() >= 0 and power < 1 else ["yeo-johnson"]
    return [make_scale(kind, y, limits) for kind in kinds]


def choose_scale(X: Array, y: Array, limits: tuple[float, float], engine: Engine) -> tuple[TargetScale, list[dict]]:
    """The scale that small models gain clearly by, or y as it is; and what they scored: a pair for each comparison."""
    plain = make_scale("identity", y, limits)
    others = scales_to_try(y, limits)
    if not others:
        return plain, []
    rows = np.random.default_rng(len(y)).permutation(len(y))[: LEARN + JUDGE]
    n_learn = min(LEARN, int(_LEARN_SHARE * len(rows)))

    def begun(scale: TargetScale, whitening: str, _: np.random.Generator) -> Trial:
        return Trial.begun(X, y, scale, rows[:n_learn], rows[n_learn:], engine, whitening, LONGER)

    at_once = partial(in_parallel, rng=np.random.default_rng(0), n_jobs=engine.n_learners)

    @cache
    def losses(trial: Trial, learned: Trial) -> tuple[Array, Array]:
        return trial.losses(learned.params.lengthscale)

    plains = at_once([partial(begun, plain, whitening) for whitening in _WHITENINGS])
    best = min(plains, key=lambda trial: _score(*losses(trial, trial)))
    report: list[dict] = []
    for trial in at_once([partial(begun, scale, best.whitening) for scale in others]):
        # Both are judged in both metrics: what differs is the scale, not how well few steps happened to learn.
        old, new = (np.mean([losses(one, of) for of in (best, trial)], axis=0) for one in (best, trial))
        report.extend(_row(one.scale, *said) for one, said in ((best, old), (trial, new)))
        if _better(new, old, best.scale.plain):
            best = trial
    return best.scale, report


def _better(new: Array, old: Array, plain: bool) -> bool:
    """Whether laws gain clearly, laws and means together too, and means are as good, unless both together gain much;
    where laws gain much, or y as it is lost already, as far as can be told."""
    (worse, unsure), (gain, by_chance) = _compared(new[0], old[0]), _compared(old[1], new[1])
    allowed = max(_PRICE * gain * float(np.mean(old[0])), _DEVIATIONS * unsure if gain > _MUCH or not plain else 0.0)
    whole = gain + 0.5 * float(np.log(np.mean(old[0]) / np.mean(new[0])))
    return gain > _DEVIATIONS * by_chance and whole > _CLEAR and (worse <= allowed or whole > _MUCH)


def _score(squared: Array, surprise: Array) -> float:
    return float(np.mean(surprise) + 0.5 * np.log(np.mean(squared)))


def _row(scale: TargetScale, squared: Array, surprise: Array) -> dict:
    return {"scale": scale.kind, "rmse": float(np.sqrt(np.mean(squared))), "nll": float(np.mean(surprise))}


def _compared(one: Array, other: Array) -> tuple[float, float]:
    """How far the mean of one is above the other's, and the standard error of that."""
    difference = one - other
    return float(np.mean(difference)), float(np.std(difference, ddof=1) / np.sqrt(len(difference)))


def _power(u: Array) -> tuple[float, float]:
    """Yeo and Johnson's λ, by likelihood, and what it gains over λ = 1 in nats a row."""

    def loss(power: float) -> float:
        scale = TargetScale("yeo-johnson", power=power)
        return float(np.log(np.std(scale(u))) - np.mean(scale.log_slope(u)))

    found = minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-3})
    return float(found.x), loss(1.0) - float(found.fun)


def _middle(y: Array) -> tuple[float, float]:
    """A median, and half the distance of the quartiles; of y that is mostly one value, its standard deviation."""
    low, centre, high = np.quantile(_sampled(y), [0.25, 0.5, 0.75])
    return float(centre), float((high - low) / 2 or np.std(y))


def _sampled(y: Array) -> Array:
    return y if len(y) <= _LOOKED_AT else y[np.random.default_rng(0).choice(len(y), _LOOKED_AT, replace=False)]


def _step(y: Array) -> float:
    """1 for counts; of other numbers, some of which are zero, what is small among the others."""
    above = y[y > 0]
    return 1.0 if (above == np.round(above)).all() else float(np.quantile(above, _GRAIN))
