"""Phase 2, whole: rows whose outcome is known are predicted; m, α(x) and the shape of errors follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common import metrics
from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, LocalSolution, Noise
from gpnn.stages.calibration import Calibration, fit_calibration, interval, variance_factor
from gpnn.stages.holdout import SIZE_JUDGES
from gpnn.stages.shapes import GAUSSIAN, Shape, fit_shape
from gpnn.stages.whitening import Whitener

SIZES = np.array([16, 24, 32, 48, 64, 100, 150, 200, 300, 400])
"""m is chosen among these."""
MOST_JUDGES = 50_000
_FIRST_JUDGES, _FEWER_JUDGES = 4000, 6000
_SCOUTS = 1000  # judges that are predicted from as many neighbours as there may be
_AS_GOOD = 0.005  # of RMSE, relatively, and nats: what more neighbours must gain
_TIGHT = 0.04  # half the width of α's interval, relative to α, at which more calibration rows are not worth their time


@dataclass(frozen=True)
class Verdict:
    """What the judges say: how many neighbours, and how to make laws of their uncalibrated predictions."""

    n_neighbors: int
    calibration: Calibration
    """Its scale is for innovations in units of the calibrated variances."""
    alpha_interval: tuple[float, float] = (1.0, 1.0)
    shape: Shape = GAUSSIAN
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """The judges that were used, sorted."""
    law: Prediction = field(default_factory=lambda: Prediction(np.zeros(0), np.zeros(0)))
    """Of these rows, calibrated."""
    claimed: Array = field(default_factory=lambda: np.zeros(0))
    """The variances that were predicted for them, before any calibration."""


@dataclass(frozen=True)
class Judges:
    """X, y: the whole table. hidden: whether judges are among those that no prediction uses."""

    engine: Engine
    X: Array
    y: Array
    hidden: bool
    whitener: Whitener
    kernel: Kernel
    params: Hyperparameters
    unbiased_mean: bool
    progress: str | None = None
    noise: Noise | None = None
    """Of the whole table, in whitened units."""
    numbers: NDArray[np.int64] | None = None
    """Of the rows of X in the index, where X is a sample of them."""

    def verdict(
        self,
        rows: NDArray[np.int64],
        n_neighbors: int,
        choose_size: bool,
        calibration_size: int | None,
        local: bool,
        rng: np.random.Generator,
        report: dict,
    ) -> Verdict:
        """n_neighbors: how many, or with choose_size how many at most. calibration_size: of the rows, None for as many
        as α needs. local: a floor and an α(x) may be fitted too."""
        begun: list[LocalSolution] = []
        if choose_size and len(rows):
            n_neighbors, solution = self._choose_size(rows[:SIZE_JUDGES], n_neighbors, report)
            begun = [solution]
        as_needed = calibration_size is None
        rows = rows[: _most_judges(n_neighbors) if as_needed else calibration_size]
        if len(rows) == 0:
            return Verdict(n_neighbors, Calibration())
        y, law, innovations, calibration = self._calibrate(rows, n_neighbors, as_needed, local, begun, report)
        calibration, errors = self._settle(y, law, innovations, calibration, local, rng)
        calibrated = calibration(law, innovations)
        low, high = interval(metrics.z_squared(y, calibrated))
        alpha_interval = low * calibration.alpha, high * calibration.alpha
        shape, report["shapes"] = fit_shape(errors, rng)
        if calibration.scale is not None:  # innovations will be in units of the calibrated variances
            typical = calibration.scale.typical / calibration.alpha
            calibration = replace(calibration, scale=replace(calibration.scale, typical=typical))
        report["calibration_size"] = len(law)
        report["alpha_interval"] = alpha_interval
        report["local_neighbors"] = None if calibration.scale is None else calibration.scale.n_neighbors
        rows, order = rows[: len(law)], np.argsort(rows[: len(law)])
        claimed = law.own[order]
        return Verdict(n_neighbors, calibration, alpha_interval, shape, rows[order], calibrated[order], claimed)

    def _settle(
        self, y: Array, law: Prediction, innovations: Array, calibration: Calibration, local: bool, rng
    ) -> tuple[Calibration, Array]:
        """The calibration as it will be used, and the standardised errors that its shape is made from."""
        return calibration, (y - law.mean) / calibration(law, innovations).std

    def _choose_size(self, rows, most: int, report: dict) -> tuple[int, LocalSolution]:
        """The fewest neighbours that predict the rows as well as any number does, and those predictions.

        Systems of 400 rows take ten times as long as those of 150: a few scouts say how large they must be."""
        sizes = np.append(SIZES[most > SIZES], most)
        solution = self._predict(rows[:_SCOUTS], sizes)
        curve, at = self._curve(rows[:_SCOUTS], sizes, solution)
        if len(rows) > _SCOUTS:
            sizes = sizes[: at + 1 + _may_be_too_few(curve, at)]
            more = self._predict(rows[_SCOUTS:], sizes)
            mean, variance = (
                np.concatenate([getattr(of, name)[:, : len(sizes)] for of in (solution, more)])
                for name in ("mean", "variance")
            )
            innovations = np.concatenate([solution.innovations[:, : sizes[-1]], more.innovations])
            solution = LocalSolution(mean, variance, np.append(solution.jitter, more.jitter), innovations)
            rmse, nll = (
                min(p[name] for p in curve) - min(p[name] for p in curve[: len(sizes)]) for name in ("rmse", "nll")
            )
            curve, at = self._curve(rows, sizes, solution, rmse, nll)
        report["m_curve"] = curve
        mean, variance, m = solution.mean[:, at : at + 1], solution.variance[:, at : at + 1], int(sizes[at])
        return m, LocalSolution(mean, variance, solution.jitter, solution.innovations[:, :m])

    def _curve(
        self, rows, sizes: NDArray, solution: LocalSolution, rmse: float = 0.0, nll: float = 0.0
    ) -> tuple[list[dict], int]:
        """How well each size does, and which is to be taken. rmse, nll: what larger ones would change."""
        y = self.whitener.transform_y(self.y[rows])
        curve = []
        for m, mean, variance in zip(sizes, solution.mean.T, solution.variance.T, strict=True):
            law, innovations = self._law(rows, mean, variance), solution.innovations[:, :m]
            law = fit_calibration(y, law, innovations)(law, innovations)
            curve.append({"n_neighbors": int(m), "rmse": metrics.rmse(y, law), "nll": metrics.nll(y, law)})
        best_rmse, best_nll = (min(point[name] for point in curve) for name in ("rmse", "nll"))
        best_rmse, best_nll = best_rmse + rmse, best_nll + nll
        good = [p for p in curve if p["rmse"] <= (1 + _AS_GOOD) * best_rmse and p["nll"] <= best_nll + _AS_GOOD]
        chosen = good[0] if good else min(curve, key=lambda point: point["rmse"] / best_rmse + point["nll"] - best_nll)
        return curve, curve.index(chosen)

    def _calibrate(
        self, rows, n_neighbors: int, as_needed: bool, local: bool, solutions: list[LocalSolution], report: dict
    ) -> tuple[Array, Prediction, Array, Calibration]:
        """Targets, uncalibrated laws, innovations and calibration of the rows; `as_needed`, of as few as α needs.

        `solutions`: of the first rows, where they are known already.
        """
        done = sum(len(solution.mean) for solution in solutions)
        wanted = min(len(rows), _FIRST_JUDGES) if as_needed else len(rows)
        while True:
            if done < wanted:
                solutions.append(self._predict(rows[done:wanted], np.array([n_neighbors])))
            done = wanted
            columns: Any = zip(*solutions, strict=True)
            mean, variance, jitter, innovations = (np.concatenate(column)[:done] for column in columns)
            report["jitter"] = max(report["jitter"], float(jitter.max(initial=0.0)))
            y, law = self.whitener.transform_y(self.y[rows[:done]]), self._law(rows[:done], mean[:, 0], variance[:, 0])
            calibration = fitted_calibration(y, law, innovations, local)
            z_squared = metrics.z_squared(y, calibration(law, innovations))
            low, high = interval(z_squared)
            if done == len(rows) or high - low < 2 * _TIGHT * np.mean(z_squared):
                return y, law, innovations, calibration
            wanted = min(2 * wanted, len(rows))

    def _law(self, rows, mean: Array, variance: Array) -> Prediction:
        """Of table rows, as their own noise is known."""
        if self.noise is None:
            return Prediction(mean, variance)
        more = (self.noise.share[rows] - 1) * self.params.noise_variance
        return Prediction(mean, variance + more).with_noise(self.noise.known[rows])

    def _predict(self, rows, sizes: NDArray) -> LocalSolution:
        """Uncalibrated means and variances (q, k) of table rows from their nearest others, for each of `sizes`."""
        sizes = np.minimum(sizes, len(self.engine.y) - 1)
        own = np.full(len(rows), -1) if self.hidden else rows if self.numbers is None else self.numbers[rows]
        X_star = self.engine.whiten(self.whitener, self.X[rows])
        solution = self.engine.path(X_star, sizes, self.kernel, self.params, own, progress=self.progress)
        mean = solution.mean * (self.params.unbiasing(sizes) if self.unbiased_mean else 1.0)
        return solution._replace(mean=mean, innovations=solution.innovations.astype(np.float32))


def fitted_calibration(y: Array, law: Prediction, innovations: Array, local: bool) -> Calibration:
    """local: with a floor and an α(x), where they help."""
    return fit_calibration(y, law, innovations) if local else Calibration(variance_factor(y, law))


def _may_be_too_few(curve: list[dict], at: int) -> bool:
    """Whether the next size gained half of what it must, so that more judges may see it otherwise."""
    if at + 1 == len(curve):
        return False
    less, more = curve[at : at + 2]
    return less["rmse"] > (1 + _AS_GOOD / 2) * more["rmse"] or less["nll"] > more["nll"] + _AS_GOOD / 2


def _most_judges(n_neighbors: int) -> int:
    """Predictions from few neighbours are cheap, and tell the more of heavy tails."""
    return int(np.clip(_FEWER_JUDGES * (250 / n_neighbors) ** 2, _FEWER_JUDGES, MOST_JUDGES))
