"""DaskGPnnRegressor: fit and predict as `GPnnRegressor` does, on partitions, by a cluster's workers."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from dask.base import tokenize
from dask.delayed import delayed
from distributed import Client, default_client, wait
from sklearn.exceptions import NotFittedError

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Prediction
from gpnn.dask import partitions, tasks
from gpnn.files.whole import HEAD, whole_folder
from gpnn.regressor import GPnnRegressor
from gpnn.regressor.streaming import LEAST_MEMORY, Sizes
from gpnn.stages.sampling import highest_lot

_OWN = ("client", "folder", "n_shards", "halo")
_SHARE = 0.8  # of a worker's memory, that its tasks may take


class DaskGPnnRegressor:
    """Gaussian-process regression on more rows than one machine holds.

    Parameters
    ----------
    client : of the cluster; None for the one that is current
    folder : where the model will be, seen by every worker under this name; None for a temporary one, where all workers
        are on this machine
    n_shards : None for as many as workers' memory asks for, and at least one for each thread
    halo : the share of queries that one shard is to answer alone, such as 0.9, with rows of others on its border; 0 for
        no row twice. Answers are the same
    settings : those of `GPnnRegressor`

    Attributes
    ----------
    fit_report_ : that of `GPnnRegressor`, and what moved: bytes spilled, shards, queries answered by one shard
    """

    def __init__(
        self,
        client: Client | None = None,
        *,
        folder=None,
        n_shards: int | None = None,
        halo: float = 0.0,
        **settings,
    ):
        GPnnRegressor(**settings)  # refuses what it does not know
        self.client, self.folder, self.n_shards, self.halo, self.settings = client, folder, n_shards, halo, settings

    def get_params(self, deep: bool = True) -> dict:
        return {name: getattr(self, name) for name in _OWN} | GPnnRegressor(**self.settings).get_params(deep)

    def set_params(self, **changes) -> DaskGPnnRegressor:
        own: dict[str, Any] = {name: changes.pop(name) for name in _OWN if name in changes}
        GPnnRegressor(**self.settings).set_params(**changes)
        vars(self).update(own)
        self.settings |= changes
        return self

    def fit(self, X, y) -> DaskGPnnRegressor:
        """Learn from X (n, d) and y (n,): dask arrays, or a data frame and a series; also a path of Parquet files, or a
        frame, and the name of the column to learn. Partitions may be of any size, but each must fit a worker."""
        self.__dict__.pop("fit_report_", None)
        client = self._client()
        X = partitions.opened(X)
        X_parts, y_parts = partitions.aligned(X, y)
        names = partitions.names_of(X, y)
        regressor = GPnnRegressor(**self.settings)
        regressor._begin_stream(self.halo)
        place = self._place()
        with whole_folder(place, HEAD) as folder:
            _check_seen(client, folder)
            parts = list(zip(X_parts, y_parts, range(len(X_parts)), strict=True))
            report = _Fit(client, folder, self.n_shards, self.halo).run(regressor, parts, names)
        self._where, self.fit_report_ = place, report
        return self

    def predict(self, X, return_std: bool = False):
        """Means of y* as a lazy collection partitioned like X, and with return_std=True also standard deviations."""
        law = self.predict_distribution(X)
        return (law.mean, law.variance**0.5) if return_std else law.mean

    def predict_distribution(self, X) -> Prediction:
        """The predictive law of y* at each row of X: lazy means, variances and support, partitioned like X."""
        mean, variance, support = self._answered(X, "law")
        return Prediction(mean, variance, support=support if self._local()._far is not None else None)

    def predict_interval(self, X, coverage: float = 0.9):
        """Lower and upper ends of the central interval that holds y* with probability `coverage`."""
        if not 0 < coverage < 1:
            raise InvalidInputError(f"coverage = {coverage} must lie strictly between 0 and 1, such as 0.9.")
        return tuple(self._answered(X, "quantiles", np.array([0.5 - coverage / 2, 0.5 + coverage / 2])))

    def predict_quantiles(self, X, q):
        """Quantiles of y* of the orders q (k,): one column each."""
        levels = np.atleast_1d(np.asarray(q, dtype=float))
        self._local()._quantiles(Prediction(np.zeros(0), np.zeros(0)), levels)  # refuses what are no probabilities
        return partitions.matrix(self._answered(X, "quantiles", levels), levels.tolist())

    def kneighbors(self, X):
        """The training rows that a prediction at each row of X uses, numbered through all partitions, and distances."""
        m = self._local().n_neighbors_
        columns = self._answered(X, "kneighbors", m)
        numbers, distances = (partitions.matrix(some, range(m)) for some in (columns[:m], columns[m:]))
        return numbers.astype(np.int64), distances

    def evaluate(self, X, y, units: str = "whitened") -> dict[str, float]:
        """The scores of `GPnnRegressor.evaluate`, over all partitions."""
        self._local()._check_units(units)
        X_parts, y_parts = partitions.aligned(X, y)
        asked = [
            (X, y, self._path(), self._engine, units, k) for k, (X, y) in enumerate(zip(X_parts, y_parts, strict=True))
        ]
        key, client = f"gpnn-evaluate-{uuid.uuid4().hex}", self._client()
        todo = [delayed(tasks.scores)(*some, dask_key_name=(key, some[-1])) for some in asked]
        found = client.gather(client.compute(todo))
        n = sum(rows for rows, _ in found)
        if n == 0:
            raise InvalidInputError("There is no row to evaluate on: all partitions are empty.")
        squares = [(rows, scores | {"rmse": scores["rmse"] ** 2}) for rows, scores in found if rows]
        mean = {name: sum(rows * scores[name] for rows, scores in squares) / n for name in squares[0][1]}
        return mean | {"rmse": float(np.sqrt(mean["rmse"]))}

    def save(self, folder) -> None:
        """The model as a folder, which any machine can load: here, or with `GPnnRegressor.load`."""
        self._local().save(folder)

    @classmethod
    def load(cls, folder, client: Client | None = None) -> DaskGPnnRegressor:
        """From a folder that every worker sees under this name."""
        local = GPnnRegressor.load(folder)
        settings = local.get_params(deep=False)
        model = cls(client, folder=Path(folder), **settings)
        model._where, model.fit_report_ = Path(folder).absolute(), local.fit_report_
        return model

    def to_local(self) -> GPnnRegressor:
        """The model in this process, its shards mapped."""
        return GPnnRegressor.load(self._path()).set_params(engine=self._engine)

    # --- how ----------------------------------------------------------------------------------------------------------

    def _answered(self, X, kind: str, asked=None) -> list[Any]:
        path = self._path()
        answer: Callable = partial(tasks.answers, folder=path, engine=self._engine, kind=kind, asked=asked)
        name = f"gpnn-predict-{tokenize(X, path, tasks.stamp(path), repr(self._engine), kind, asked)}"
        return partitions.answered(X, answer, tasks.width(kind, asked), name)

    def _path(self) -> str:
        if "fit_report_" not in self.__dict__:
            raise NotFittedError("This DaskGPnnRegressor is not fitted yet. Call fit(X, y), or load(folder).")
        return str(self._where)

    @property
    def _engine(self) -> Any:
        """Of the workers."""
        return self.settings.get("engine", "cpu")

    def _local(self) -> GPnnRegressor:
        return tasks.loaded(self._path())

    def _client(self) -> Client:
        if self.client is not None:
            return self.client
        try:
            return default_client()
        except ValueError as error:
            raise InvalidInputError(
                "There is no cluster. Start one, client = distributed.Client(), or give one: DaskGPnnRegressor(client)."
            ) from error

    def _place(self) -> Path:
        """Where the model will be."""
        if self.folder is not None:
            return Path(self.folder).absolute()
        parent = Path(tempfile.mkdtemp(prefix="gpnn-"))
        atexit.register(shutil.rmtree, parent, True)  # not before: lazy answers may outlive the model
        return parent / HEAD


class _Fit:
    """The stages, one after the other; what workers hand to each other stays with them, or is in the folder."""

    def __init__(self, client: Client, folder: Path, n_shards: int | None, halo: float):
        self.client, self.folder, self.n_shards, self.halo = client, str(folder), n_shards, halo
        self.memory, self.threads, self.name = _memory(client), _threads(client), uuid.uuid4().hex
        self.seconds: dict[str, float] = {}
        (folder / tasks.RUNS).mkdir()

    def run(self, regressor: GPnnRegressor, parts: list[tuple], names: list[str] | None) -> dict:
        counts = self._each("check", tasks.count, parts)
        d = max((width for rows, width, _ in counts if rows), default=1)
        sizes = Sizes(self.memory, d)
        _check_counts(counts, d, sizes)
        first_rows = np.cumsum([0, *(rows for rows, *_ in counts)]).tolist()
        n, parts = first_rows[-1], [(*part, first) for part, first in zip(parts, first_rows, strict=False)]
        n_shards = self.n_shards or max(sizes.n_shards(n, self.halo), min(sum(self.threads.values()), n // 1000 or 1))
        head = self._learned(regressor, parts, sizes, n, n_shards, names)
        route = self.client.submit(tasks.router, head, key=f"gpnn-route-{self.name}")
        runs = self._each("share-out", tasks.share_out, [(*part, route, self.folder) for part in parts])
        slices = [[run.of(k) for run in runs] for k in range(n_shards)]
        made = self._each("index", tasks.index, [(self.folder, some, k, d, route) for k, some in enumerate(slices)])
        spilled = sum(run.path.stat().st_size for run in runs)
        shutil.rmtree(Path(self.folder) / tasks.RUNS)
        report = self._one("calibrate", tasks.finish, head, made, self.folder, self.memory // 2, self.threads).result()
        moved = {"partitions": len(counts), "bytes_spilled": spilled, "workers": len(_workers(self.client))}
        return report | moved | {"seconds_on_cluster": self.seconds}

    def _learned(self, regressor: GPnnRegressor, parts, sizes: Sizes, n: int, n_shards: int, names):
        """A future of the model that has learned, from a sample of the rows."""
        seed, highest = regressor._stream_seed(), highest_lot(sizes.sample, n)
        todo = [
            delayed(tasks.sample)(*part, seed, highest, dask_key_name=(f"gpnn-sample-{self.name}", k))
            for k, part in enumerate(parts)
        ]
        drawn = self.client.compute(todo)
        told = sizes.sample, n, n_shards, self.halo, names, self.threads
        return self._one("learn", tasks.learn, regressor, drawn, *told)

    def _each(self, stage: str, task: Callable, arguments) -> list:
        """What a task gives of each. The dashboard shows it under its stage."""
        start, key = perf_counter(), f"gpnn-{stage}-{self.name}"
        found = self.client.gather(
            self.client.compute([delayed(task)(*some, dask_key_name=(key, k)) for k, some in enumerate(arguments)])
        )
        self.seconds[stage] = perf_counter() - start
        return found

    def _one(self, stage: str, task: Callable, *arguments):
        """Waited for: else workers would hold on to partitions for what comes after it."""
        start = perf_counter()
        future = self.client.submit(task, *arguments, key=f"gpnn-{stage}-{self.name}")
        wait([future])
        self.seconds[stage] = perf_counter() - start
        return future


def _check_seen(client: Client, folder: Path) -> None:
    seen = client.run(_sees, str(folder), on_error="ignore")  # of workers that go meanwhile, nothing is asked
    blind = [worker for worker, sees in seen.items() if not sees]
    if blind:
        raise InvalidInputError(
            f"Worker {blind[0]} does not see the folder {folder.parent}. Give one on a file system that all workers "
            "share: DaskGPnnRegressor(folder=…)."
        )


def _sees(folder: str) -> bool:
    return Path(folder).is_dir()


def _workers(client: Client) -> dict[str, dict]:
    return client.scheduler_info(n_workers=-1)["workers"]


def _threads(client: Client) -> dict[str, int]:
    """Of each machine's workers together."""
    found: dict[str, int] = {}
    for address, worker in _workers(client).items():
        found[tasks.host(address)] = found.get(tasks.host(address), 0) + worker["nthreads"]
    return found


def _memory(client: Client) -> int:
    """That each task may take."""
    workers = _workers(client)
    if not workers:
        raise InvalidInputError("The cluster has no workers. Wait for them with client.wait_for_workers(1).")
    limits = {
        address: one["memory_limit"] // one["nthreads"] for address, one in workers.items() if one["memory_limit"]
    }
    address = min(limits, key=lambda one: limits[one], default="")
    memory = int(_SHARE * limits[address]) if limits else 2**32
    if memory < LEAST_MEMORY:
        raise InvalidInputError(
            f"Worker {address} has {limits[address] / 2**20:,.0f} MiB of memory for each of its threads. gpnn needs at "
            f"least {LEAST_MEMORY / _SHARE / 2**20:,.0f}: start workers with a larger memory_limit, or fewer threads."
        )
    return memory


def _check_counts(counts: list[tuple[int, int, str]], d: int, sizes: Sizes) -> None:
    for number, (rows, width, wrong) in enumerate(counts):
        if wrong:
            raise InvalidInputError(wrong)
        if rows and width != d:
            raise InvalidInputError(f"Partition {number} has {width} columns, and others {d}.")
        if rows > sizes.most_at_once:
            raise InvalidInputError(
                f"Partition {number} has {rows:,} rows, and a worker's memory is enough for {sizes.most_at_once:,} at "
                "a time. Cut it into smaller ones: repartition or rechunk."
            )
    n = sum(rows for rows, *_ in counts)
    if n < 2:
        raise InvalidInputError(f"There are {n} rows to learn from in {len(counts)} partitions. Check what was read.")
