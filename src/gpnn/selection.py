"""Choice by evidence: kernel and metric, compared on rows whose outcome is known, before the whole table is indexed.

Candidates are compared on a sample of the rows. Each starts from phase 1's estimate, is refined, and predicts the
judges; its unrefined self stands for election too, so that a refinement which went astray is never shipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpnn import metrics
from gpnn._parallel import for_each_block
from gpnn._types import Array, Hyperparameters
from gpnn.calibration import fit_calibration
from gpnn.estimation import estimate
from gpnn.holdout import Holdout
from gpnn.kernels import get_kernel
from gpnn.refinement import Probes, Searcher, predict, refine
from gpnn.whitening import Whitener

_SAMPLE, _SAMPLE_NUMBERS = 40_000, 2_800_000  # rows on which all are compared; fewer, to 10,000, if columns are many
LARGER_SAMPLES = ((3_200_000, 3), (32_000_000, 1))
"""Numbers (rows times columns) of the samples on which the leading three, and then the winner, are refined further."""
_JUDGES, _MORE_JUDGES = 1500, 6000  # on the first sample, and on larger ones
_FIRST, _SECOND, _THIRD = (40, 60), (100,) * 3, (100,) * 2  # Adam steps by round: all; leaders; on larger samples
_THOROUGH = (50,) * 16  # of the leaders, where no larger sample follows
_FIRST_KERNEL = "exponential"
_FINALISTS = 3
_CLEARLY_WORSE = 0.1  # of a whitening with one kernel, in `_score`: it is not tried with the others
_BLOCKS, _BLOCK_SIZE = 5, 200


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to predict, and how it did on the judges, with the variances calibrated there."""

    whitening: str
    kernel: str
    refined: bool
    params: Hyperparameters
    rmse: float
    nll: float
    crps: float

    def row(self) -> dict:
        """For the report: what was tried, and its scores."""
        return {name: value for name, value in vars(self).items() if name != "params"}


@dataclass(frozen=True)
class Sample:
    """A part of the table on which candidates are compared: rows to predict from, probes to learn from and to judge."""

    rows: Array
    y: Array
    learn: Probes
    judge: Probes

    @classmethod
    def draw(cls, X: Array, y: Array, holdout: Holdout, rng: np.random.Generator, numbers: int = 0) -> Sample:
        """Of X, y (n rows) in the user's units: the smallest sample, or as many rows as make so many numbers."""
        d = X.shape[1]
        size = max(min(_SAMPLE, max(_SAMPLE // 4, _SAMPLE_NUMBERS // d)), numbers // d)
        learn = holdout.learn[:size]
        if len(holdout.hidden):
            seen = np.setdiff1d(np.arange(len(X)), holdout.hidden, assume_unique=True)
            kept, own = rng.choice(seen, min(size, len(seen)), replace=False), np.full(len(learn), -1)
        else:  # rows predict each other
            kept, own = learn, np.arange(len(learn))
        judge = holdout.judge[: _MORE_JUDGES if numbers else _JUDGES]
        return cls(
            X[kept], y[kept], Probes(X[learn], y[learn], own), Probes(X[judge], y[judge], np.full(len(judge), -1))
        )

    def whitened(self, whitener: Whitener, rng: np.random.Generator, n_jobs: int | None) -> Space:
        def probes(of: Probes) -> Probes:
            return Probes(whitener.transform(of.X), whitener.transform_y(of.y), of.own)

        searcher = Searcher(whitener.transform(self.rows), int(rng.integers(2**31)), n_jobs)
        return Space(searcher, whitener.transform_y(self.y), probes(self.learn), probes(self.judge))


@dataclass(frozen=True)
class Space:
    """A sample in whitened units."""

    searcher: Searcher
    y: Array
    learn: Probes
    judge: Probes

    def branch(self, n_jobs: int | None) -> Space:
        """For one candidate, whose metric will go its own way."""
        return replace(self, searcher=self.searcher.branch(n_jobs))

    def phase_1(self, kernel: str, rng: np.random.Generator) -> Hyperparameters:
        n = len(self.y)
        size = min(_BLOCK_SIZE, n)
        blocks = rng.choice(n, (max(1, min(_BLOCKS, n // size)), size), replace=False)
        return estimate(self.searcher.rows[blocks], self.y[blocks], get_kernel(kernel), n_jobs=1).params

    def refined(
        self, begun: Candidate, rounds: tuple[int, ...], rng: np.random.Generator, progress: str | None = None
    ) -> Candidate:
        kernel = get_kernel(begun.kernel)
        params = refine(self.searcher, self.y, self.learn, kernel, begun.params, rounds, rng, progress)
        return self.judged(begun.whitening, begun.kernel, True, params)

    def judged(self, whitening: str, kernel: str, refined: bool, params: Hyperparameters) -> Candidate:
        y = self.judge.y
        law, innovations = predict(self.searcher, self.y, self.judge, get_kernel(kernel), params)
        law = fit_calibration(y, law, innovations)(law, innovations)
        scores = (metric(y, law) for metric in (metrics.rmse, metrics.nll, metrics.crps))
        return Candidate(whitening, kernel, refined, params, *scores)


def choose(
    sample: Sample,
    whiteners: Mapping[str, Whitener],
    kernels: Sequence[str],
    refined: bool,
    thorough: bool,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    progress: str | None = None,
) -> list[Candidate]:
    """All that were tried, the best first: every whitening with one kernel, then all kernels where that looked well.

    `refined`: one lengthscale per column, fitted where predictions happen. `thorough`: this is the last word on them.
    """
    rounds = _THOROUGH if thorough else _SECOND
    spaces = {name: sample.whitened(whitener, rng, n_jobs) for name, whitener in whiteners.items()}
    for space in spaces.values():
        space.searcher.prepare(space.learn)
    branches: dict[tuple[str, str], Space] = {}

    def compare(pairs: list[tuple[str, str]]) -> list[Candidate]:
        branches.update({pair: spaces[pair[0]].branch(n_jobs=1) for pair in pairs})
        seeds = rng.integers(2**31, size=len(pairs))
        tried: list[list[Candidate]] = [[] for _ in pairs]

        def first(part: slice) -> None:
            for at in range(part.start, part.stop):
                whitening, kernel = pairs[at]
                branch, own_rng = branches[pairs[at]], np.random.default_rng(seeds[at])
                tried[at].append(branch.judged(whitening, kernel, False, branch.phase_1(kernel, own_rng)))
                if refined:
                    tried[at].append(branch.refined(tried[at][0], _FIRST, own_rng))

        for_each_block(first, len(pairs), 1, n_jobs, progress)
        return sorted((candidate for of_pair in tried for candidate in of_pair), key=_score)

    one, *others = sorted(kernels, key=lambda kernel: kernel != _FIRST_KERNEL)
    candidates = compare([(whitening, one) for whitening in spaces])
    enough = _score(candidates[0]) + _CLEARLY_WORSE
    good = {candidate.whitening: None for candidate in candidates if _score(candidate) < enough}
    candidates = sorted(
        candidates + compare([(whitening, kernel) for whitening in good for kernel in others]), key=_score
    )
    finalists = _leaders(candidates)
    seeds = rng.integers(2**31, size=len(finalists))
    longer: list[Candidate] = []

    def second(part: slice) -> None:
        for at in range(part.start, part.stop):
            begun = finalists[at]
            branch = branches[begun.whitening, begun.kernel]
            longer.append(branch.refined(begun, rounds, np.random.default_rng(seeds[at])))

    for_each_block(second, len(finalists), 1, n_jobs, progress)
    return sorted(candidates + longer, key=_score)


def settle(
    candidates: Sequence[Candidate],
    sample: Sample,
    whiteners: Mapping[str, Whitener],
    n_finalists: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    progress: str | None = None,
) -> list[Candidate]:
    """The leading candidates once more, refined and judged on a larger sample, the best first.

    More rows lie closer together, and what is best then need not be what was best among few.
    """
    finalists = _leaders(candidates) if n_finalists > 1 else list(candidates[:1])
    alone = len(finalists) == 1
    threads, steps, progress = (n_jobs, progress, None) if alone else (1, None, progress)
    spaces = {
        name: sample.whitened(whiteners[name], rng, n_jobs)
        for name in sorted({candidate.whitening for candidate in finalists})
    }
    seeds = rng.integers(2**31, size=len(finalists))
    again: list[list[Candidate]] = [[] for _ in finalists]

    def work(part: slice) -> None:
        for at in range(part.start, part.stop):
            begun = finalists[at]
            branch = spaces[begun.whitening].branch(threads)
            again[at].append(branch.judged(begun.whitening, begun.kernel, True, begun.params))
            again[at].append(branch.refined(begun, _THIRD, np.random.default_rng(seeds[at]), steps))

    for_each_block(work, len(finalists), 1, n_jobs, progress)
    return sorted((candidate for pair in again for candidate in pair), key=_score)


def _leaders(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best refined candidate of each of the leading pairs, and the best with another whitening than theirs."""
    refined = [candidate for candidate in sorted(candidates, key=_score) if candidate.refined]
    by_pair = {(candidate.whitening, candidate.kernel): candidate for candidate in reversed(refined)}
    ranked = sorted(by_pair.values(), key=_score)
    leaders = ranked[:_FINALISTS]
    used = {candidate.whitening for candidate in leaders}
    return leaders + [candidate for candidate in ranked if candidate.whitening not in used][:1]


def _score(candidate: Candidate) -> float:
    """Mean and law count alike: a tenth of a nat of NLL is worth a tenth of RMSE."""
    return candidate.nll + float(np.log(max(candidate.rmse, 1e-12)))
