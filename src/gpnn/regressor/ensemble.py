"""The leading candidates, answering together where judges gain by it: `ensemble=`."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import get_kernel_or_sum
from gpnn.common.types import Array
from gpnn.engines import Engine, Noise
from gpnn.stages import ensemble as stage
from gpnn.stages.ensemble import Contender, Ensemble, Together, companion
from gpnn.stages.few import FEW
from gpnn.stages.holdout import Holdout
from gpnn.stages.judges import SIZES, Judges, Verdict
from gpnn.stages.near import Near
from gpnn.stages.shapes import fit_shape
from gpnn.stages.weighing import FEWEST, fit_weighing, judged

_PROBES = 1000  # on which an index tunes itself


class Ensembles:
    ensemble: int
    _ensemble: Ensemble | None = None
    """None: the winner answers alone."""

    def _learn_ensemble(
        self: Any,
        contenders: list[Contender],
        X: Array,
        y: Array,
        holdout: Holdout,
        verdict: Verdict,
        engine: Engine,
        rng: np.random.Generator,
        report: dict,
        noise: Noise | None,
    ) -> Verdict:
        """_ensemble, if judges gain by it, and the shape of its errors. The winner is the first of the contenders, and
        verdict what judges said of it. Returns what they say of all that answer."""
        told = report["ensemble"] = {"kept": False, "members": [one.told for one in contenders]}
        if (why := self._why_alone(contenders, len(X), verdict)) is not None:
            told["why"] = why
            return verdict
        rng = copy.deepcopy(rng)  # a winner that stays alone is then what it would have been
        rows = holdout.judge[: len(verdict.rows)]
        verdicts, companions, local = [verdict], [], self.calibration == "local"
        for one in contenders[1:]:
            held = self._indexed(one, X, y, holdout.hidden, engine, rng, noise)
            settings = one.whitener, get_kernel_or_sum(one.kernel), one.params, self.unbiased_mean
            judges = Judges(held, X, y, len(holdout.hidden) > 0, *settings, self._bar("ensemble"), noise)
            asked = int(SIZES[-1] if self.n_neighbors == "auto" else self.n_neighbors), self.n_neighbors == "auto"
            found = judges.verdict(rows, min(asked[0], len(held.y)), asked[1], len(rows), local, rng, {"jitter": 0.0})
            verdicts.append(found)
            companions.append(companion(one, found, self.unbiased_mean, held))
        outcome, laws = self.whitener_.transform_y(y[verdict.rows]), [one.law for one in verdicts]
        trial = judged(outcome, laws, local, rng)
        weighing = fit_weighing(outcome, laws, local)
        told |= {"weights": weighing.weights.tolist(), "gain": trial.gain, "gain_standard_error": trial.error}
        kept = np.flatnonzero(weighing.weights[1:])
        if len(kept) and trial.exceeds(stage.SURE):
            weighing = replace(weighing, weights=weighing.weights[[0, *(1 + kept)]])
            self._ensemble, told["kept"] = Ensemble([companions[k] for k in kept], weighing), True
            self.shape_, report["shapes"] = fit_shape(trial.residuals, rng)
            verdict = replace(verdict, law=weighing([laws[0], *(laws[1 + k] for k in kept)]))
        return verdict

    def _why_alone(self: Any, contenders: list[Contender], n: int, verdict: Verdict) -> str | None:
        if len(contenders) < 2:
            return "there was no second candidate"
        if n < FEW or len(verdict.rows) < FEWEST:
            return f"fewer than {FEW:,} rows, or than {FEWEST} to judge on"
        if self._far is not None and self._far.mixture.edge == -np.inf:
            return "all queries are of new groups or times, and answered by the models for gaps"
        return None

    def _indexed(self: Any, one, X: Array, y: Array, hidden, engine: Engine, rng, noise: Noise | None) -> Engine:
        """An engine that holds all rows but those hidden, in the metric of a contender or companion."""
        rows = engine.whiten(one.whitener, X, hidden)
        seen = np.delete(np.arange(len(y)), hidden)
        probes = rng.choice(len(rows), min(len(rows), _PROBES), replace=False)
        noise = None if noise is None else noise[seen]
        targets, seed = one.whitener.transform_y(y[seen]), int(rng.integers(2**31))
        return engine.build(rows, targets, self.index, self.n_neighbors_, probes, seed, None, noise)

    def _return_rows_to_ensemble(self: Any, X: Array, y: Array, engine: Engine, rng, noise: Noise | None) -> None:
        if self._ensemble is not None:
            rng, nobody = copy.deepcopy(rng), np.zeros(0, np.int64)
            companions = [
                one.with_rows_of(self._indexed(one, X, y, nobody, engine, rng, noise))
                for one in self._ensemble.companions
            ]
            self._ensemble = replace(self._ensemble, companions=companions)

    def _answering(self: Any) -> Near:
        """All that answer."""
        near = self._near()
        return near if self._ensemble is None else Together(**vars(near), ensemble=self._ensemble, far=self._far)

    def _refuse_ensemble(self: Any, what: str) -> None:
        if self._ensemble is not None:
            raise InvalidInputError(
                f"{what} of one model, and {1 + len(self._ensemble.companions)} answer together here "
                f"(ensemble={self.ensemble}, fit_report_['ensemble']). Fit with ensemble=1."
            )

    def _refuse_to_ensemble(self: Any, what: str) -> None:
        """Before a fit that cannot make one."""
        if self.ensemble > 1:
            raise InvalidInputError(
                f"ensemble = {self.ensemble}: {what}, the winner of the choice answers alone. Fit with ensemble=1."
            )
