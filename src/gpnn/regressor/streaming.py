"""Fitting to more rows than memory holds: learned from a sample, answered from all of them, in shards on disk.

Rows come in a stream that can be gone through twice. The first pass draws the sample, from which everything is learned
as `fit` does; the second shares all rows out to shards in the learned metric. Judges, rows that learning has not seen,
then calibrate what the shards answer. Where the sample is the whole table, the model is what `fit` makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from gpnn.common.errors import InvalidInputError
from gpnn.common.extras import import_pandas
from gpnn.common.kernels import get_kernel_or_sum
from gpnn.common.provenance import FitReport, peak_memory
from gpnn.common.types import Array
from gpnn.engines import make_engine
from gpnn.engines.parallel import progress_bar
from gpnn.regressor.trees import BESIDE
from gpnn.stages.hiding import check_queries_to_come
from gpnn.stages.judges import MOST_JUDGES, SIZES, Judges, Verdict
from gpnn.stages.mean import add_mean
from gpnn.stages.sampling import Drawn, Reservoir
from gpnn.stages.selection import LARGER_SAMPLES
from gpnn.stages.validation import check_settings

if TYPE_CHECKING:  # compiled code, which is not imported before it is needed
    from gpnn.engines.cpu.neighbors.cuts import Cuts, Regions, Shared

Batches = Callable[[], Iterable[tuple]]
"""Rows X (b, d) and y (b,), always the same and in the same order, as often as they are asked for; with groups or times
(b,) as a third, if the fit was told so."""

LEAST_MEMORY = 2**29
_BASE = 350 * 2**20  # of the process itself, with compiled code and what reads tables
_SAMPLE_BYTES = 100  # of each number of the sample, while it is learned from
_RUN_ROWS, _SHARD_ROWS = 2**20, 2**23
_ASKED = 1000  # rows, to see how many shards a query asks
_QUERIES_OF_A_SHARD = 128  # of the sample, that say how deep its halo must be
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True)
class Sizes:
    """How many rows of d columns are held at a time, within so much memory."""

    memory: int
    d: int

    @property
    def free(self) -> int:
        return self.memory - _BASE

    @property
    def sample(self) -> int:
        """Rows to learn from, and judges: as many as `fit` would look at, if there is room."""
        return MOST_JUDGES + min(LARGER_SAMPLES[-1][0], self.free // _SAMPLE_BYTES) // self.d

    @property
    def run(self) -> int:
        """Rows that are shared out at a time."""
        return max(1024, min(_RUN_ROWS, self.most_at_once // 4))

    @property
    def most_at_once(self) -> int:
        """Rows that can be shared out at a time."""
        return self.free // self.bytes_shared_out(self.d)

    @staticmethod
    def bytes_shared_out(d: int) -> int:
        """Of a row that is shared out: in float64, in float32, and sorted."""
        return 20 * d + 60

    def n_shards(self, n: int, halo: float) -> int:
        """Half as many more where halos may make them larger."""
        return max(1, int(np.ceil(n * (1 + halo / 2) / self.shard)))

    @property
    def shard(self) -> int:
        """Rows of a shard, of which one is made at a time; the shares of rows are not quite equal."""
        from gpnn.files.shards import BYTES_BESIDE

        return max(1024, min(_SHARD_ROWS, self.free // 2 // (4 * self.d + BYTES_BESIDE)))


class Streaming:
    def fit_stream(
        self: Any,
        batches: Batches,
        out: str | Path,
        *,
        memory: int | str = "4GiB",
        n_shards: int | None = None,
        halo: float = 0.0,
        to_come: str | None = None,
        n_rows: int | None = None,
        names: Sequence[str] | None = None,
        prepare: Callable[[Drawn], Drawn] | None = None,
        schema: Callable[[], dict] | None = None,
    ):
        """Learn from rows that come in batches, and write the model to the folder `out`, complete or not at all.

        batches: a function that gives an iterator over (X, y), the same each time; it is called twice. memory: what
        this process may hold, such as "4GiB" or a number of bytes. n_shards: None for as many as that takes.
        halo: the share of queries that one shard is to answer alone, such as 0.9; each then also holds rows of others
        on its border, as deep as that takes. Answers stay the same. 0: each row is in one shard, and a query near a
        border asks two. to_come: "groups" or "times", if batches give those too, as (X, y, groups): what `fit` takes
        under that name. Predictions map what they touch. Several targets, known noise and weights are for `fit`.

        n_rows: if it is known, so that progress can be told. names: of the columns. prepare: what is to be done to the
        sample before it is learned from, if batches() will then do the same. schema: what the file says of tables.
        """
        from gpnn.files import shards
        from gpnn.files.whole import whole_folder

        memory = check_memory(memory)
        self._begin_stream(halo)
        out = Path(out)
        with whole_folder(out, shards.HEAD) as folder:
            report = FitReport(jitter=0.0, engine=self._make_engine().describe())
            with report.stage("sample"):
                drawn, n, d = _sampled(batches, memory, self._stream_seed(), n_rows, self._bar("sample"))
                _check_labels(drawn, to_come)
                drawn = drawn if prepare is None else prepare(drawn)
            learned = self._learn_from(drawn, n, report, names, to_come)
            sizes = Sizes(memory, d)
            cuts, regions = self._cuts(learned, n_shards or sizes.n_shards(n, halo), n, halo)
            runs: list[shards.Run] = []
            with report.stage("share out"):
                for first, X, y in _runs(batches, sizes.run, n, self._bar("share out")):
                    shared = self._shared_out(X, y, first, learned, cuts, regions)
                    runs.append(shards.spill(folder / f"run-{len(runs):05d}", shared, cuts.n_shards))
            made: list[shards.Made] = []
            used = self._n_used(d)
            with report.stage("index"), progress_bar(cuts.n_shards, self._bar("index")) as bar:
                for k in range(cuts.n_shards):
                    settings = self.index, self.n_neighbors_, learned.seed, self.n_jobs, regions
                    made += shards.make_shard(folder, [run.of(k) for run in runs], k, used, *settings)
                    bar.update()
            for run in runs:
                run.path.unlink()
            self._hold_shards(*shards.open_shards(folder, made, sizes.free // 2), learned, report)
            shards.write_head(folder, self, None if schema is None else schema(), made, sizes.free // 2)
        self.index_.folder = out
        return self

    def _refuse_shards(self: Any) -> None:
        from gpnn.engines.cpu.neighbors.shards import Shards

        if isinstance(self.__dict__.get("index_"), Shards):
            raise InvalidInputError(
                "The rows of this model lie in shards on disk, where this cannot be done: rows stay as they are, and "
                "answers come from engine='cpu' or 'gpu'. Fit again on the rows that are to count, or in memory."
            )

    # --- the stages, which a cluster goes through too -----------------------------------------------------------------

    def _begin_stream(self: Any, halo: float = 0.0) -> None:
        for name in ("fit_report_", "recalibration_", "targets_", "feature_names_in_", "_ensemble", *BESIDE):
            self.__dict__.pop(name, None)
        check_settings(self)
        self._refuse_to_ensemble("from shards")
        if not (isinstance(halo, int | float) and 0 <= halo < 1):
            raise InvalidInputError(
                f"halo = {halo!r} is the share of queries that one shard is to answer: from 0 (none for sure, and no "
                "row twice) to below 1, such as 0.9."
            )
        if not getattr(self._make_engine(), "searches_shards", False):
            raise InvalidInputError(f"engine = {self.engine!r} cannot search shards. Fit with engine='cpu' or 'gpu'.")
        if self.holdout != "random":
            raise InvalidInputError(
                f"holdout = {self.holdout!r} needs the whole table at once. Fit with holdout='random', or in memory."
            )

    def _stream_seed(self: Any) -> int:
        return int(np.random.default_rng(check_random_state(self.random_state).randint(2**31)).integers(2**31))

    def _learn_from(
        self: Any,
        drawn: Drawn,
        n: int,
        report: FitReport,
        names: Sequence[str] | None = None,
        to_come: str | None = None,
    ) -> Learned:
        """kernel_, whitener_, params_ and all else that `fit` learns, from a sample of n rows."""
        judges, sample = drawn.parted(0 if len(drawn) == n else min(MOST_JUDGES, len(drawn) // 4))
        whole = len(sample) == n
        settings = {} if whole else {"far": False, "trees": False} | self._safe_limits(drawn)
        X = sample.X if names is None else import_pandas().DataFrame(sample.X, columns=list(names), copy=False)
        told = {to_come: sample.labels} if to_come is not None and whole else {}
        fitted = clone(self).set_params(**settings).fit(X, sample.y, **told)
        mine = self.get_params(deep=False)
        self.__dict__.update({name: value for name, value in vars(fitted).items() if name not in mine})
        del self.__dict__["fit_report_"]  # not fitted until this fit is complete
        seconds = fitted.fit_report_["seconds"] | report["seconds"]
        report |= fitted.fit_report_ | {"n": n, "n_sample": len(sample), "seconds": seconds}
        left_out = self._set_aside if whole else np.zeros(0, np.int64)
        if not whole and not self.return_rows:
            left_out = judges.numbers
        return Learned(
            judges, sample, left_out, np.array(report.get("sentinels", []), float), whole, self._stream_seed(), to_come
        )

    def _safe_limits(self: Any, drawn: Drawn) -> dict[str, Any]:
        """Settings of the target, where rows that are not in the sample pass limits that it seems to have."""
        low, high = self._limits(drawn.y)
        if low <= drawn.reach[0] and drawn.reach[1] <= high:
            return {}
        if self.target_limits != "auto":
            raise InvalidInputError(
                f"target_limits = {self.target_limits} do not hold: y goes from {drawn.reach[0]:g} to "
                f"{drawn.reach[1]:g}. Check y, or give wider ones (None for no limit)."
            )
        return {"target_limits": None, "target_scale": "identity"}

    def _cuts(self: Any, learned: Learned, n_shards: int, n: int, halo: float) -> tuple[Cuts, Regions | None]:
        """How rows are shared out; where there are to be halos, also the regions with their depths."""
        from gpnn.engines.cpu.neighbors.cuts import Cuts

        some = np.linspace(0, len(learned.sample) - 1, min(len(learned.sample), 1000 * n_shards)).astype(np.int64)
        rows = self._rows_to_keep(learned.sample.X[some])
        cuts = Cuts.learn(rows, n_shards)
        if not halo or n_shards == 1:
            return cuts, None
        rows = rows[np.random.default_rng(learned.seed).permutation(len(rows))]
        return cuts, cuts.with_halos(rows, self._farthest(rows[: _QUERIES_OF_A_SHARD * n_shards], n), halo)

    def _farthest(self: Any, rows: NDArray[np.float32], n: int) -> Array:
        """How far the m-th neighbour of each row will be among n rows, from the index of a sample of them."""
        m, held = min(self.n_neighbors_, len(self._y)), make_engine("cpu", self.n_jobs).hold(self.index_, self._y)
        distances = held.neighbors(rows, m).distances.astype(float)
        nearer, farther = np.maximum(np.median(distances[:, [m // 4, m - 1]], axis=0), 1e-30)
        shrinks = np.log(farther / nearer) / np.log(m / (m // 4 + 1)) if m > 1 else 0.0  # as neighbours grow fewer
        return distances[:, -1] * (len(self._y) / n) ** shrinks

    def _rows_to_keep(self: Any, X: Array) -> NDArray[np.float32]:
        """Whitened, by this machine's cores whatever the engine: the same bits everywhere."""
        return make_engine("cpu", self.n_jobs).whiten(self.whitener_, self._used(X))

    def _shared_out(
        self: Any, X: Array, y: Array, first: int, learned: Learned, cuts: Cuts, regions: Regions | None
    ) -> Shared:
        """Rows first, first + 1, … of the table."""
        from gpnn.engines.cpu.neighbors.cuts import Shared

        numbers = np.arange(first, first + len(y))
        kept = ~np.isin(numbers, learned.left_out)
        if not learned.whole and len(learned.sentinels):
            kept &= ~np.isin(y, learned.sentinels)
        if not kept.all():
            X, y, numbers = X[kept], y[kept], numbers[kept]
        rows = self._rows_to_keep(X)
        rest = add_mean(self.mean_, self._used(X), self.target_scale_(y), -1.0, self.n_jobs)
        shard = cuts(rows, numbers)
        halo = np.zeros((2, 0), np.int64) if regions is None else cuts.halo(rows, shard, regions)
        return Shared(rows, self.whitener_.transform_y(rest), numbers, shard, halo)

    def _hold_shards(self: Any, index, y, learned: Learned, report: FitReport) -> None:
        """Answer from the shards; calibrated by judges, unless `fit` did that with the same rows."""
        vars(self).update(index_=index, _y=y, _noise=None)
        left_out = report["n"] - index.n
        report |= {
            "index": "Shards",
            "shards": len(index.parts),
            "rows_by_shard": index.own,
            "rows_in_halos": len(index.order) - index.n,
        }
        report["index_of_shards"] = type(index.parts[0]).__name__
        if learned.whole:
            self._number_in_table(learned.sample.numbers)
            some = np.linspace(0, report["n"] - 1, min(report["n"], _ASKED)).astype(np.int64)
            held = make_engine("cpu", self.n_jobs).hold(index, y)
            held.neighbors(self._rows_to_keep(learned.sample.X[some]), self.n_neighbors_)  # for the report
        else:
            self._judge_shards(learned, report)
        if not learned.whole and len(learned.sentinels):
            report["left_out"] = left_out
        self._set_aside, self._n_seen = np.zeros(0, np.int64), report["n"]
        questions = {"queries": index.queries, "questions": index.questions, "by_one_shard": index.by_one_shard}
        self.fit_report_ = dict(report, n_neighbors=self.n_neighbors_, peak_memory=peak_memory(), asked=questions)

    def _number_in_table(self: Any, numbers: NDArray[np.int64]) -> None:
        self.calibration_rows_ = numbers[self.calibration_rows_]
        if self._far is not None:
            self._far = replace(self._far, rows=numbers[self._far.rows])

    def _judge_shards(self: Any, learned: Learned, report: FitReport) -> None:
        """m, α, α(x), the shape of errors, and what answers beyond the support, now that all rows are there."""
        rng, judges = np.random.default_rng(learned.seed), learned.judges
        engine = self._make_engine().hold(self.index_, self._y)
        both = Drawn.joined([judges, learned.sample])
        table = both.X
        both = replace(both, X=self._used(both.X), y=self.target_scale_(both.y))
        rest = add_mean(self.mean_, both.X, both.y, -1.0, self.n_jobs)
        with report.stage("calibrate"):
            recall = engine.recall(engine.whiten(self.whitener_, both.X[: min(128, len(judges))]), self.n_neighbors_)
            asked = int(SIZES[-1] if self.n_neighbors == "auto" else self.n_neighbors)
            verdict = self._verdict(engine, both, rest, min(asked, self.index_.n - 1), len(judges), rng, report)
            report["recall"] = recall
        with report.stage("far"):
            told = {} if learned.to_come is None else {learned.to_come: both.labels}
            queries = check_queries_to_come(self, len(both), **({"groups": None, "times": None} | told))
            self._far = self._learn_far(both.X, rest, verdict, queries, engine, rng, report, None)
        with report.stage("trees"):
            own_rng, found = rng.spawn(1)[0], None
            if self._ask_trees(queries, None):
                few = self._grow_few(table, self.whitener_.transform_y(rest), np.arange(len(judges), len(table)))
                found = self._learn_trees(table, rest, verdict, few, own_rng, report)()
            self._take_trees(found, table, rest, verdict, own_rng, report)
        self._number_in_table(both.numbers)

    def _verdict(self: Any, engine, both: Drawn, rest: Array, n_neighbors: int, n_judges: int, rng, report) -> Verdict:
        params = self.params_.scaled(1 / self.alpha_)  # as they were before the sample calibrated them
        settings = self.whitener_, get_kernel_or_sum(self.kernel_), params, self.unbiased_mean, self._bar("calibrate")
        judges = Judges(engine, both.X, rest, not self.return_rows, *settings, None, both.numbers)
        size = None if self.calibration_size == "auto" else int(self.calibration_size)
        choose, local, rows = self.n_neighbors == "auto", self.calibration == "local", rng.permutation(n_judges)
        verdict = judges.verdict(rows, n_neighbors, choose, size, local, rng, report)
        self._take_verdict(verdict, params)
        return verdict


@dataclass(frozen=True)
class Learned:
    """What the stages after learning go on with."""

    judges: Drawn
    sample: Drawn
    left_out: NDArray[np.int64]
    """Numbers of rows that no prediction may use, sorted."""
    sentinels: Array
    """Targets that stand for something else."""
    whole: bool
    """Whether the sample is the whole table."""
    seed: int
    to_come: str | None = None
    """What the labels of judges and sample are: groups, or times."""


def _sampled(batches: Batches, memory: int, seed: int, n: int | None, progress) -> tuple[Drawn, int, int]:
    reservoir = None
    with progress_bar(n, progress) as bar:
        for X, y, *labels in batches():
            if reservoir is None:
                reservoir = Reservoir(Sizes(memory, X.shape[1]).sample, seed, n)
            reservoir.add(X, y, *labels)
            bar.update(len(y))
    if reservoir is None or reservoir.n < 2:
        raise InvalidInputError("There are fewer than two rows to learn from. Check that batches() gives some.")
    drawn = reservoir.drawn()
    return drawn, reservoir.n, drawn.X.shape[1]


def _check_labels(drawn: Drawn, to_come: str | None) -> None:
    if to_come not in (None, "groups", "times") or (to_come is None) != (drawn.labels is None):
        given = "nothing" if drawn.labels is None else "a third array"
        raise InvalidInputError(
            f"to_come = {to_come!r}, and batches() gives {given} beside X and y. Say to_come='groups' or 'times', and "
            "give (X, y, groups) or (X, y, times); or neither."
        )


def _runs(batches: Batches, size: int, n: int, progress: str | None):
    """(first row's number, X, y), in runs of about `size` rows."""
    held: list[tuple[Array, Array]] = []
    first = count = 0
    with progress_bar(n, progress) as bar:
        for X, y, *_ in batches():
            held.append((X, y))
            count += len(y)
            if count >= size:
                yield first, *(np.concatenate(column) for column in zip(*held, strict=True))
                bar.update(count)
                first, held, count = first + count, [], 0
        if held:
            yield first, *(np.concatenate(column) for column in zip(*held, strict=True))
            first += count
    if first != n:
        raise InvalidInputError(
            f"The rows are not the same each time: {n:,} at first, then {first:,}. Were files changed meanwhile?"
        )


def check_memory(memory: int | str) -> int:
    """A number of bytes, of "4GiB" or the like."""
    number: Any = memory
    if isinstance(memory, str):
        said = re.fullmatch(r"([\d.]+) *([KMGT]?)(I?)B?", memory.strip().upper())
        try:
            number = int(float(said[1]) * (1024 if said[3] else 1000) ** _UNITS[said[2]]) if said else None
        except ValueError:
            number = None
    if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < LEAST_MEMORY:
        raise InvalidInputError(
            f"memory = {memory!r} must be at least 512MiB, written as a number of bytes or like '4GiB'."
        )
    return int(number)
