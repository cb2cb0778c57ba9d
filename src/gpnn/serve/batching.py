"""Small questions of many clients, answered together; large ones block by block, beside them.

A call costs more than a row, so rows that arrive within about a millisecond go into one call. The engine answers each
row from that row alone: in company a client gets, bit for bit, what it would have got alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array, Prediction
from gpnn.engines.parallel import blocks
from gpnn.serve.models import ServedModel
from gpnn.serve.refusals import busy

LARGE = 512
"""Rows; questions of more go their own way."""

_BLOCK_ROWS = 16_384
_MOST_LARGE = 8  # under way or waiting


@dataclass
class _Job:
    model: ServedModel
    X: Array
    answer: asyncio.Future


class Batcher:
    """One thread for what is small and one for what is large, so that neither waits for the other."""

    def __init__(self, linger: float = 0.001, max_rows: int = 1024, max_waiting: int = 1024):
        self._linger, self._max_rows, self._max_waiting = linger, max_rows, max_waiting
        self._waiting: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._small = ThreadPoolExecutor(1, "small")
        self._large = ThreadPoolExecutor(1, "large")
        self._n_large = 0
        self._company = False  # whether the last call had questions of several clients
        self._task: asyncio.Task | None = None
        self.on_batch: Callable[[int, int], None] = lambda questions, rows: None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._small.shutdown(wait=False)
        self._large.shutdown(wait=False)

    async def law(self, model: ServedModel, X: Array) -> Prediction:
        """Of a few rows, together with those of others."""
        if len(self._waiting) >= self._max_waiting:
            raise busy(f"{len(self._waiting):,} requests are waiting already.")
        job = _Job(model, X, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._arrived.set()
        return await job.answer

    async def laws(
        self, model: ServedModel, X: Array, whole: NDArray[np.bool_]
    ) -> AsyncIterator[tuple[slice, Prediction]]:
        """Of many rows, in blocks: the rows of the question, and the law of those of them that are whole."""
        if self._n_large >= _MOST_LARGE:
            raise busy(f"{self._n_large} large requests are under way already.", 5)
        self._n_large += 1
        try:
            ends = np.concatenate([[0], np.cumsum(whole)])
            for part in blocks(len(whole), _BLOCK_ROWS):
                rows = X[ends[part.start] : ends[part.stop]]
                self.on_batch(1, len(rows))
                yield part, await self.apart(model.law, rows)
        finally:
            self._n_large -= 1

    async def apart(self, work: Callable, *arguments: Any) -> Any:
        """Anything else that takes long, in the thread of what is large."""
        return await asyncio.get_running_loop().run_in_executor(self._large, work, *arguments)

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            if (self._company or len(self._waiting) > 1) and self._linger:
                await asyncio.sleep(self._linger)
            for model, jobs in self._taken().items():
                await self._answer(model, jobs)

    def _taken(self) -> dict[ServedModel, list[_Job]]:
        """What goes into the next calls, by model; whoever has given up is left out."""
        groups: dict[ServedModel, list[_Job]] = {}
        n_rows = n_jobs = 0
        while self._waiting and (n_rows == 0 or n_rows + len(self._waiting[0].X) <= self._max_rows):
            job = self._waiting.popleft()
            if not job.answer.done():
                groups.setdefault(job.model, []).append(job)
                n_rows, n_jobs = n_rows + len(job.X), n_jobs + 1
        if not self._waiting:
            self._arrived.clear()
        self._company = n_jobs > 1
        return groups

    async def _answer(self, model: ServedModel, jobs: list[_Job]) -> None:
        X = jobs[0].X if len(jobs) == 1 else np.concatenate([job.X for job in jobs])
        self.on_batch(len(jobs), len(X))
        try:
            law = await asyncio.get_running_loop().run_in_executor(self._small, model.law, X)
        except Exception as error:
            if len(jobs) == 1:
                _give(jobs[0], error)
                return
            for job in jobs:  # one of them is to blame: each alone, so that the others are answered
                await self._answer(model, [job])
            return
        first = 0
        for job in jobs:
            part = slice(first, first + len(job.X))
            _give(job, law[part])
            first = part.stop


def _give(job: _Job, result: Prediction | Exception) -> None:
    if job.answer.done():  # the client has gone
        return
    if isinstance(result, Exception):
        job.answer.set_exception(result)
    else:
        job.answer.set_result(result)
