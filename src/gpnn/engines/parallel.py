"""The one parallel loop of the package: blocks of rows through a few threads.

Compiled code releases the interpreter lock, so threads suffice; each block's result depends on that block alone, so
the numbers are the same whatever the number of threads. BLAS is held at one thread meanwhile.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from threading import Event, Lock, Thread, local
from typing import TypeVar

import joblib
import numpy as np
from threadpoolctl import LibController, ThreadpoolController
from tqdm import TqdmWarning

from gpnn.common.errors import InvalidInputError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TqdmWarning)  # in a notebook without ipywidgets bars are text, and that will do
    from tqdm.auto import tqdm

T = TypeVar("T")
_HERE = local()
"""Of each thread: whether it works on the blocks of a loop."""


def n_threads(n_jobs: int | None) -> int:
    """`None` or −1: every core this process may use; −2: all but one; and so on."""
    if n_jobs == 0:
        raise InvalidInputError("n_jobs = 0 has no meaning. Use None for every core, or 1 for no parallel work.")
    if n_jobs is None:
        return _cores()
    return n_jobs if n_jobs > 0 else max(1, _cores() + 1 + n_jobs)


@cache
def _cores() -> int:
    return joblib.cpu_count()  # reads files of the system's each time


def blocks(n: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover range(n)."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def progress_bar(total: int | None, name: str | None, unit: str = "", initial: int = 0) -> tqdm:
    """A bar on stderr, in terminals and notebooks; without a name there is none, without a total only a count."""
    if name is None or not ((sys.stderr is not None and sys.stderr.isatty()) or _in_notebook()):
        return _HIDDEN
    return tqdm(total=total, desc=name, unit=unit, initial=initial, unit_scale=True, leave=False)


_HIDDEN = tqdm(total=1, disable=True)
"""Serves every loop that is not watched: making a bar takes longer than predicting a row."""


def shown(progress: str | tqdm | None, total: int) -> AbstractContextManager[tqdm]:
    """The bar that `progress` names; one that several loops share, and their caller closes, is taken as it is."""
    return nullcontext(progress) if isinstance(progress, tqdm) else progress_bar(total, progress)


def _in_notebook() -> bool:
    """Whether this is the kernel of a notebook, whose stderr is shown though it is no terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


def for_each_block(
    work: Callable[[slice], object], n: int, size: int, n_jobs: int | None, progress: str | tqdm | None = None
) -> None:
    """Call `work(block)` for every block of range(n).

    `progress`: see `shown`. If a block fails, or on Ctrl-C, no further block is begun and the error is raised here. A
    loop within a block keeps to its thread.
    """
    if 0 < n <= size:  # nothing to share out: for a single row, threads and locks would cost as much as the answer
        with shown(progress, n) as bar, one_blas_thread():
            work(slice(0, n))
            bar.update(n)
        return
    todo, lock, failed = blocks(n, size), Lock(), Event()

    def worker():
        try:
            while not failed.is_set():
                with lock:
                    block = next(todo, None)
                if block is None:
                    return
                work(block)
                with lock:
                    bar.update(block.stop - block.start)
        except BaseException:
            failed.set()
            raise

    threads = 1 if getattr(_HERE, "is_worker", False) else min(n_threads(n_jobs), -(-n // size))
    with shown(progress, n) as bar, one_blas_thread():
        if threads <= 1:
            worker()
            return
        with ThreadPoolExecutor(threads, initializer=setattr, initargs=(_HERE, "is_worker", True)) as pool:
            running = [pool.submit(worker) for _ in range(threads)]
            try:
                for future in running:
                    future.result()
            except BaseException:  # Ctrl-C arrives here, not in the workers
                failed.set()
                raise


def in_parallel(
    tasks: Sequence[Callable[[np.random.Generator], T]],
    rng: np.random.Generator,
    n_jobs: int | None,
    progress: str | tqdm | None = None,
    beside: Sequence[Callable[[], object]] = (),
) -> list[T]:
    """What each task found, each with random numbers of its own, so that threads change nothing. beside: what else is
    to be done, begun first; one of these may use `rng`."""
    seeds = rng.integers(2**31, size=len(tasks))
    found: list = [None] * len(tasks)

    def some(part: slice) -> None:
        for at in range(part.start - len(beside), part.stop - len(beside)):
            if at < 0:
                beside[at]()
            else:
                found[at] = tasks[at](np.random.default_rng(seeds[at]))

    for_each_block(some, len(beside) + len(tasks), 1, n_jobs, progress)
    return found


def meanwhile(work: Callable[[], T], n_jobs: int | None) -> Callable[[], T]:
    """What the work found, when it is asked for. It is begun now, in a thread of its own which the process does not
    wait for at its end; or, with one thread in all, done then."""
    if n_threads(n_jobs) == 1:
        return cache(work)
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    Thread(target=run, daemon=True).start()
    return found.result


class _OneBLASThread:
    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._before: list[tuple[LibController, int]] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = [(library, library.num_threads) for library in _blas_libraries(len(sys.modules))]
                for library, _ in self._before:
                    library.set_num_threads(1)
            self._users += 1

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                for library, threads in self._before:
                    library.set_num_threads(threads)


_ONE_BLAS_THREAD = _OneBLASThread()


def one_blas_thread() -> AbstractContextManager[None]:
    """BLAS at one thread until the last of the loops under way (in any thread) is done, then as it was."""
    return _ONE_BLAS_THREAD


@lru_cache(maxsize=1)
def _blas_libraries(n_modules: int) -> list[LibController]:
    """Looking for libraries takes milliseconds, and they come with modules: done anew when there are more of these."""
    return ThreadpoolController().select(user_api="blas").lib_controllers
