"""What a diagnosis consists of: plain numbers and words, ready for a chart, a page or JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from gpnn.common.reliability import Reliability
from gpnn.common.types import Array

_MOST_POINTS = 1500  # beyond, points would hide each other
_CELLS = 48  # along each side


@dataclass(frozen=True)
class Cloud:
    """Observed against predicted: every row as a point, or, of many rows, how many lie in each cell of a grid."""

    observed: tuple[float, ...]
    predicted: tuple[float, ...]
    counts: tuple[int, ...]
    cell: float | None
    """Side of the cells around the points; None where each point is a row."""

    @classmethod
    def of(cls, observed: Array, predicted: Array) -> Cloud:
        if len(observed) <= _MOST_POINTS:
            return cls(tuple(observed.tolist()), tuple(predicted.tolist()), (1,) * len(observed), None)
        low = min(observed.min(), predicted.min())
        side = float(max(observed.max(), predicted.max()) - low) / _CELLS or 1.0
        places = [np.minimum((values - low) / side, _CELLS - 1).astype(int) for values in (observed, predicted)]
        cells, counts = np.unique(places[0] * _CELLS + places[1], return_counts=True)
        centres = [low + (at + 0.5) * side for at in np.divmod(cells, _CELLS)]
        return cls(tuple(centres[0].tolist()), tuple(centres[1].tolist()), tuple(counts.tolist()), side)


@dataclass(frozen=True)
class Column:
    """An input column in the learned metric."""

    name: str
    importance: float
    """How many lengthscales apart two rows are that differ by one standard deviation in this column alone."""


@dataclass(frozen=True)
class FitRecord:
    """What `GPnnRegressor.fit` chose and did, and how the test rows lie among the training rows."""

    n_rows: int
    kernel: str
    whitening: str
    n_neighbors: int
    kernel_variance: float
    """σ_f², like σ_ξ² (`noise_variance`) for y scaled to variance 1."""
    noise_variance: float
    alpha: float
    alpha_interval: tuple[float, float]
    calibration_size: int
    shape: str
    """The law of standardised errors from which intervals are made."""
    noise_floor: float
    """RMSE as n → ∞ for the noise that the model sees (Theorem 1), in the units of y."""
    index: str
    recall: float
    jitter: float
    columns: tuple[Column, ...]
    """The one that matters most first."""
    m_curve: tuple[dict, ...]
    """RMSE and NLL of held-out rows for several m; empty where m was given."""
    candidates: tuple[dict, ...]
    finalists: tuple[dict, ...]
    engine: str
    """What did the work of fitting."""
    predict_engine: str
    """What makes predictions now."""
    seconds: dict[str, float]
    """Of each stage."""
    model_bytes: int
    """What the fitted model holds in memory."""
    peak_bytes: int | None
    """The most that the process held until the fit was complete; None where the system does not say."""
    repeated_rows: float
    """Share of training rows that have another one in the very same place."""
    seen_rows: float
    """Share of test rows in the very same place as a training row."""
    far_rows: float
    """Share of test rows much farther from the training rows than these are from each other."""
    left_out: int
    """Training rows whose y looked wrong."""
    suspicious: tuple[dict, ...]
    """Those of them, or else of the calibration rows, that are farthest from what their neighbours say."""
    sentinels: tuple[float, ...]
    """Values of y that stood for something else."""
    settings: dict[str, str]

    @property
    def m_losses(self) -> tuple[tuple[int, float, float], ...]:
        """The m-curve as (m, RMSE above the best in %, NLL above the best in hundredths of a nat)."""
        best_rmse, best_nll = (min((p[name] for p in self.m_curve), default=1.0) for name in ("rmse", "nll"))
        return tuple(
            (p["n_neighbors"], 100 * (p["rmse"] / max(best_rmse, 1e-300) - 1), 100 * (p["nll"] - best_nll))
            for p in self.m_curve
        )


@dataclass(frozen=True)
class SupportPart:
    """Test rows whose support lies between `low` and `high`."""

    low: float
    high: float
    n_rows: int
    coverage: float
    """Share of them inside their 90 % intervals; NaN where there are none, as the next."""
    z_squared: float
    """Mean of (y* − μ*)²/σ*²."""


@dataclass(frozen=True)
class Support:
    """How test rows fare by how near the training rows are: the share of random rows that lie as far, or farther."""

    outside: SupportPart
    inside: SupportPart
    parts: tuple[SupportPart, ...]
    """From those outside to those as near as most."""
    foreseen: bool
    """It was said in `fit` that queries will be of new groups or later times."""

    @property
    def share_outside(self) -> float:
        return self.outside.n_rows / max(self.outside.n_rows + self.inside.n_rows, 1)


@dataclass(frozen=True)
class Reason:
    """Why one test row was predicted as it was: the training rows with the largest weights in its mean."""

    row: int
    observed: float | None
    predicted: float
    sd: float
    support: float | None
    effective: float
    """How many rows it comes to, if all had weighed alike."""
    decisive: tuple[dict, ...]
    """Number, weight and y of those rows, the largest weight first."""
    columns: dict[str, float]
    """The largest shares of input columns in their distances."""


@dataclass(frozen=True)
class Map:
    """Of a model of two columns: predictions on a grid over the test rows, row by row of the second column."""

    names: tuple[str, str]
    x: tuple[float, ...]
    y: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Finding:
    """Something to know before the numbers are used."""

    severity: str
    """"warning": act on it before trusting the numbers. "note": good to know."""
    title: str
    cause: str
    cure: str


@dataclass(frozen=True)
class Verdict:
    """Whether to trust the intervals, in one sentence."""

    trusted: bool
    sentence: str


@dataclass(frozen=True)
class Diagnostics:
    """Everything that the charts and the report show."""

    model: str
    target: str
    n_rows: int
    """Rows tested on."""
    scores: dict[str, float]
    """As `evaluate`, in the units of y."""
    whitened_scores: dict[str, float]
    """As `evaluate`: y scaled to mean 0 and variance 1."""
    calibration_interval: tuple[float, float]
    """Where the mean of z² lies with probability 95 %."""
    spread: float
    """Standard deviation of the observed y: the RMSE of always predicting their mean."""
    bias: float
    """Mean of y* − μ*."""
    tail: float
    """Share of Σ z² that the largest hundredth of the rows make up: 0.08 for a Gaussian law."""
    reliability: Reliability
    cloud: Cloud
    fit: FitRecord | None
    """Only of a `GPnnRegressor`."""
    support: Support | None
    """Only of a model that knows where its support ends."""
    reasons: tuple[Reason, ...]
    """Of the test rows farthest from their predictions; only of a `GPnnRegressor`."""
    predict_seconds: float
    created: str
    machine: str
    versions: dict[str, str]
    map: Map | None = None
    """Only of a `GPnnRegressor` of two columns."""
    verdict: Verdict = Verdict(False, "")
    findings: tuple[Finding, ...] = ()

    @property
    def explained(self) -> float:
        """R²: 1 − MSE / Var(y), over the test rows."""
        return 1 - (self.scores["rmse"] / self.spread) ** 2 if self.spread > 0 else float("nan")

    def as_dict(self) -> dict:
        """Plain numbers, words, lists and dictionaries, as JSON takes them; None for what is not finite."""
        return _plain(asdict(self))


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
