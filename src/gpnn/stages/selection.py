"""Choice by evidence: kernel and metric, compared on rows whose outcome is known, before the whole table is indexed.

Candidates are compared on a sample of the rows. They start from phase 1's estimate, are refined, and predict the
judges; what they started from stands for election too, so that a refinement which went astray is never shipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpnn.common import metrics
from gpnn.common.kernels import get_kernel, get_kernel_or_sum
from gpnn.common.types import Array, Broad, Hyperparameters
from gpnn.engines import Engine, Learner, Noise, Probes
from gpnn.engines.parallel import in_parallel
from gpnn.stages.calibration import fit_calibration
from gpnn.stages.candidates import (
    CLOSE,
    Candidate,
    best_of_whitenings,
    hope,
    in_vain,
    leaders_of,
    losses_of_rows,
    priced_score,
    rivals_of,
    settled,
)
from gpnn.stages.estimation import estimate
from gpnn.stages.holdout import Holdout
from gpnn.stages.refinement import predict, promise_of_map, rank_of_map, refine, refine_map, start_in
from gpnn.stages.whitening import Whitener

_SAMPLE, _SAMPLE_NUMBERS = 40_000, 2_800_000  # rows on which all are compared; fewer, to 10,000, if columns are many
LARGER_SAMPLES = ((3_200_000, 4), (32_000_000, 2))
"""Numbers (rows times columns) of the samples on which the leading four, and then two, are refined further."""
_JUDGES, _MORE_JUDGES = 1500, 6000  # on the first sample, and on larger ones
_FIRST, _MORE = (40, 60), (100,)  # Adam steps by round of the first kernel, and again where that looked well
_NEXT, _LAST = (50, 50), (100,) * 2  # of other kernels, in its metric; on larger samples
_PROMISE = 0.02  # of a map, in `promise_of_map`: with less, it is not learned
SUMS = ("matern32+matern32", "matern32+exponential", "exponential+exponential")
"""That are tried; those of two rougher or smoother kernels were never clearly better."""
_BROAD = Broad(0.3, 4.0)  # where the second part begins: of lengthscales, in those of the first
_FEWEST_SUMMED, _MOST_SUMMED = 2000, 100  # rows, columns
_FIRST_KERNEL = "exponential"
_BLOCKS, _BLOCK_SIZE = 5, 200


@dataclass(frozen=True)
class Heat:
    """How many leading pairs go on, if they are no farther behind than that in `priced_score`; for how many steps."""

    places: int
    behind: float
    rounds: tuple[int, ...]
    with_map: bool = False
    """With a linear map from now on."""
    as_sums: int = 0
    """As sums of two kernels from now on, all of them for so many steps before."""
    least: float = 0.0
    """What must be expected of them, in `priced_score`, in case they are ahead after all."""


_MAPS = Heat(2, 0.1, (50,) * 6, with_map=True)
_SUMS = Heat(2, 0.05, (100,) * 3, as_sums=100)
_HEATS = (Heat(4, 0.2, (100,) * 3), _MAPS, _SUMS)
_THOROUGH_HEATS = (Heat(4, 0.2, (50,) * 4), _MAPS, _SUMS, Heat(2, 0.05, (50,) * 12, least=0.001))
"""If no larger sample follows."""


_Task = Callable[[np.random.Generator], list[Candidate]]


@dataclass(frozen=True)
class Sample:
    """A part of the table on which candidates are compared: rows to predict from, probes to learn from and to judge."""

    rows: Array
    y: Array
    learn: Probes
    judge: Probes
    noise: Noise | None = None

    @classmethod
    def draw(
        cls,
        X: Array,
        y: Array,
        holdout: Holdout,
        rng: np.random.Generator,
        numbers: int = 0,
        noise: Noise | None = None,
    ) -> Sample:
        """Of X, y (n rows) in the user's units: the smallest sample, or as many rows as make so many numbers. noise:
        theirs, in whitened units."""
        d = X.shape[1]
        size = max(min(_SAMPLE, max(_SAMPLE // 4, _SAMPLE_NUMBERS // d)), numbers // d)
        learn = holdout.learn[:size]
        if len(holdout.hidden):
            seen = np.setdiff1d(np.arange(len(X)), holdout.hidden, assume_unique=True)
            kept, own = rng.choice(seen, min(size, len(seen)), replace=False), np.full(len(learn), -1)
        else:  # rows predict each other
            kept, own = learn, np.arange(len(learn))
        rows, y_rows = X[kept], y[kept]
        learn_X, learn_y = (rows, y_rows) if kept is learn else (X[learn], y[learn])
        judge = holdout.judge[: _MORE_JUDGES if numbers else _JUDGES]
        of_rows, of_learn, of_judge = (None if noise is None else noise[of] for of in (kept, learn, judge))
        judges = Probes(X[judge], y[judge], np.full(len(judge), -1), of_judge)
        return cls(rows, y_rows, Probes(learn_X, learn_y, own, of_learn), judges, of_rows)

    def whitened(self, whitener: Whitener, rng: np.random.Generator, engine: Engine) -> Space:
        y, seed = whitener.transform_y(self.y), int(rng.integers(2**31))
        learner = engine.learner(engine.whiten(whitener, self.rows), y, seed, self.noise)
        return Space(learner, y, Whitened(self.learn, whitener), Whitened(self.judge, whitener)[:], self.noise)


@dataclass(frozen=True)
class Whitened:
    """Probes in whitened units, as they are chosen: of a large sample, few ever are."""

    probes: Probes
    whitener: Whitener

    def __len__(self) -> int:
        return len(self.probes)

    def __getitem__(self, chosen) -> Probes:
        some = self.probes[chosen]
        return Probes(self.whitener.transform(some.X), self.whitener.transform_y(some.y), some.own, some.noise)


@dataclass(frozen=True)
class Space:
    """A sample in whitened units."""

    learner: Learner
    y: Array
    learn: Whitened
    judge: Probes
    noise: Noise | None = None

    def branch(self, n_jobs: int | None) -> Space:
        """For one candidate, whose metric will go its own way."""
        return replace(self, learner=self.learner.branch(n_jobs))

    def after(self, x_map: Array | None) -> Space:
        """With rows that went through a map."""
        if x_map is None:
            return self
        learn = replace(self.learn, whitener=self.learn.whitener.after(x_map))
        return replace(self, learner=self.learner.after(x_map), learn=learn, judge=self.judge.after(x_map))

    def phase_1(self, kernel: str, rng: np.random.Generator) -> Hyperparameters:
        n = len(self.y)
        size = min(_BLOCK_SIZE, n)
        blocks = rng.choice(n, (max(1, min(_BLOCKS, n // size)), size), replace=False)
        noise = None if self.noise is None else self.noise.columns[blocks]
        return estimate(self.learner.take(blocks), self.y[blocks], get_kernel(kernel), n_jobs=1, noise=noise).params

    def refined(
        self, begun: Candidate, rounds: tuple[int, ...], rng: np.random.Generator, progress: str | None = None
    ) -> Candidate:
        """In its own space: what it has learned so far goes on."""
        kernel = get_kernel_or_sum(begun.kernel)
        if begun.x_map is not None and kernel.broad is None:
            return self.mapped(begun, rounds, rng, progress)
        space = self.after(begun.x_map)
        params = refine(space.learner, space.learn, kernel, begun.params, rounds, rng, progress)
        return self.judged(replace(begun, refined=True, params=params, begun=begun))

    def mapped(
        self, begun: Candidate, rounds: tuple[int, ...], rng: np.random.Generator, progress: str | None = None
    ) -> Candidate:
        """With a linear map that was learned, after the one that it has."""
        space, kernel = self.after(begun.x_map), get_kernel(begun.kernel)
        x_map, params = refine_map(space.learner, space.learn, kernel, begun.params, rounds, rng, progress)
        x_map = x_map if begun.x_map is None else begun.x_map @ x_map
        return self.judged(replace(begun, refined=True, params=params, x_map=x_map))

    def promises(self, begun: Candidate, rng: np.random.Generator) -> bool:
        """Whether a map is worth learning."""
        return promise_of_map(self.learner, self.learn, get_kernel(begun.kernel), begun.params, rng) > _PROMISE

    def judged(self, candidate: Candidate) -> Candidate:
        """As it does on the judges."""
        space = self.after(candidate.x_map)
        y = space.judge.y
        law, innovations = predict(space.learner, space.judge, get_kernel_or_sum(candidate.kernel), candidate.params)
        law = fit_calibration(y, law, innovations)(law, innovations)
        rmse, nll, crps = (metric(y, law) for metric in (metrics.rmse, metrics.nll, metrics.crps))
        return replace(candidate, rmse=rmse, nll=nll, crps=crps, losses=losses_of_rows(y, law))


@dataclass(frozen=True)
class Effort:
    """refined: one lengthscale per column, fitted where predictions happen; maps: and linear maps of the columns.
    thorough: this is the last word on them. sums: of two kernels, that are tried; only_sums: nothing else will do."""

    refined: bool = True
    maps: bool = True
    thorough: bool = False
    sums: Sequence[str] = ()
    only_sums: bool = False


def choose(
    sample: Sample,
    whiteners: Mapping[str, Whitener],
    kernels: Sequence[str],
    how: Effort,
    rng: np.random.Generator,
    engine: Engine,
    progress: str | None = None,
) -> list[Candidate]:
    """All that were tried, the best first: every whitening with one kernel; all kernels where that looked well, in the
    metric learned with it; then the leading ones in heats, for longer.
    """
    spaces = {name: sample.whitened(whitener, rng, engine) for name, whitener in whiteners.items()}
    for space in spaces.values():
        space.learner.prepare(space.learn[:500])
    branches: dict[tuple[str, str], Space] = {}
    candidates: list[Candidate] = []
    heats = _THOROUGH_HEATS if how.thorough else _HEATS
    last = heats[-1] if how.thorough else None
    early: list[Candidate] = []  # who went through the last heat before others

    def branch(whitening: str, kernel: str) -> Space:
        """From that of the first kernel, whose index suits a metric that was learned."""
        trunk = branches.get((whitening, one), spaces[whitening])
        return branches.setdefault((whitening, kernel), trunk.branch(engine.n_learners))

    def begin(whitening: str, kernel: str) -> _Task:
        space = branch(whitening, kernel)

        def task(own_rng: np.random.Generator) -> list[Candidate]:
            start = space.judged(Candidate(whitening, kernel, False, space.phase_1(kernel, own_rng)))
            return [start, space.refined(start, _FIRST, own_rng)] if how.refined else [start]

        return task

    def go_on(begun: Candidate, rounds: tuple[int, ...], with_map: bool = False) -> _Task:
        space = branch(begun.whitening, begun.kernel)
        if not with_map:
            return lambda own_rng: [space.refined(begun, rounds, own_rng)]
        return lambda own_rng: [space.mapped(begun, rounds, own_rng)] if space.promises(begun, own_rng) else []

    def in_kernel(known: Candidate, kernel: str) -> _Task:
        space = branch(known.whitening, kernel)

        def task(own_rng: np.random.Generator) -> list[Candidate]:
            params = start_in(space.learner, space.learn, get_kernel(kernel), known.params, own_rng)
            return [space.refined(replace(known, kernel=kernel, params=params), _NEXT, own_rng)]

        return task

    def as_sum(leader: Candidate, kernel: str, n_steps: int) -> _Task:
        """From the best with the first of its kernels, if that is otherwise as the leader is."""
        alike = (leader.whitening, leader.x_map is None)
        single = [one for one in candidates if one.refined and (one.whitening, one.x_map is None) == alike]
        known = next((one for one in single if one.kernel == kernel.split("+")[0]), leader)
        d, params = sample.rows.shape[1], known.params
        broad = replace(_BROAD, lengthscale=_BROAD.lengthscale * np.broadcast_to(params.lengthscale, d))
        return go_on(replace(known, kernel=kernel, params=replace(params, broad=broad)), (n_steps,))

    def run(heat: Heat) -> None:
        if heat.as_sums:
            leader, enough = leaders_of(candidates, 1)[0], priced_score(candidates[0]) + heat.behind
            if last is not None and not how.only_sums and len(leaders := contest(last)) == 1:
                early.extend(leaders)  # it would be alone in the last heat as well, and leave a core idle
            beside = [go_on(one, last.rounds) for one in early if last is not None]
            do(beside + [as_sum(leader, kernel, heat.as_sums) for kernel in how.sums])
            sums = [one for one in candidates if one.is_sum]
            enough = min(enough, priced_score(sums[0]) + heat.behind) if not how.only_sums else np.inf
            do([go_on(one, heat.rounds) for one in sums[: heat.places] if priced_score(one) < enough])
        else:
            do([go_on(leader, heat.rounds, heat.with_map) for leader in contest(heat)])

    def contest(heat: Heat) -> list[Candidate]:
        leaders = leaders_of(candidates, heat.places, heat.behind)
        hopeful = leaders[:1] + [one for one in leaders[1:] if hope(one, leaders[0]) >= heat.least]
        hopeful = [one for one in hopeful if one.is_sum or not early]
        return [one for one in hopeful if heat is not last or not in_vain(one, candidates)]

    def do(tasks: list[_Task]) -> None:
        candidates.extend(_all_of(tasks, rng, engine.n_learners, progress))
        candidates.sort(key=priced_score)

    one, *others = sorted(kernels, key=lambda kernel: kernel != _FIRST_KERNEL)
    do([begin(whitening, one) for whitening in spaces])
    good = best_of_whitenings(candidates)
    if how.refined:
        do([go_on(known, _MORE) for known in good.values()])
        good = best_of_whitenings(candidates)
        do([in_kernel(known, kernel) for known in good.values() for kernel in others])
        maps = how.maps and rank_of_map(*sample.rows.shape) > 0
        sums = bool(how.sums) and (how.only_sums or can_sum(*sample.rows.shape))
        for heat in heats:
            if (maps or not heat.with_map) and (sums or not heat.as_sums):
                run(heat)
        if how.only_sums:
            candidates = [candidate for candidate in candidates if candidate.is_sum]
    else:
        do([begin(whitening, kernel) for whitening in good for kernel in others])
    return candidates


def can_sum(n: int, d: int) -> bool:
    """Whether there are rows enough to learn the metrics of two kernels from, and not too many columns."""
    return n >= _FEWEST_SUMMED and d <= _MOST_SUMMED


def settle(
    candidates: Sequence[Candidate],
    sample: Sample,
    whiteners: Mapping[str, Whitener],
    n_finalists: int,
    rng: np.random.Generator,
    engine: Engine,
    progress: str | None = None,
) -> list[Candidate]:
    """The leading candidates once more, refined and judged on a larger sample, the best first.

    More rows lie closer together, and what is best then need not be what was best among few.
    """
    finalists = leaders_of(candidates, n_finalists)
    finalists += rivals_of(candidates, finalists, np.inf if n_finalists > 2 else CLOSE)
    alone = len(finalists) == 1
    threads, steps, progress = (engine.n_learners, progress, None) if alone else (1, None, progress)
    spaces = {
        name: sample.whitened(whiteners[name], rng, engine)
        for name in sorted({candidate.whitening for candidate in finalists})
    }

    def task_of(begun: Candidate) -> _Task:
        space = spaces[begun.whitening].branch(threads)
        return lambda own_rng: [
            space.judged(begun),
            space.refined(begun, _LAST, own_rng, steps),
        ]

    return settled(_all_of([task_of(begun) for begun in finalists], rng, engine.n_learners, progress))


def _all_of(tasks: list[_Task], rng: np.random.Generator, n_jobs: int | None, progress: str | None) -> list[Candidate]:
    return [candidate for found in in_parallel(tasks, rng, n_jobs, progress) for candidate in found]
