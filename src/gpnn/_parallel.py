"""The one parallel loop of the package: blocks of rows through a few threads.

Compiled code releases the interpreter lock, so threads suffice; each block's result depends on that block alone, so
the numbers are the same whatever the number of threads. BLAS is held at one thread meanwhile.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import joblib
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from gpnn.errors import InvalidInputError


def n_threads(n_jobs: int | None) -> int:
    """`None` or −1: every core this process may use; −2: all but one; and so on."""
    if n_jobs == 0:
        raise InvalidInputError("n_jobs = 0 has no meaning. Use None for every core, or 1 for no parallel work.")
    cores = joblib.cpu_count()
    if n_jobs is None:
        return cores
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


def blocks(n: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover range(n)."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def for_each_block(
    work: Callable[[slice], object], n: int, size: int, n_jobs: int | None, progress: str | None = None
) -> None:
    """Call `work(block)` for every block of range(n).

    `progress` names a bar on stderr, shown in terminals and notebooks; None shows none. If a block fails, or on
    Ctrl-C, no further block is begun and the error is raised here.
    """
    todo, lock, stopping = blocks(n, size), Lock(), False
    # disable=None: tqdm stays silent where stderr is not a terminal
    bar = tqdm(
        total=n, desc=progress, disable=True if progress is None else None, unit=" rows", unit_scale=True, leave=False
    )

    def worker():
        while not stopping:
            with lock:
                block = next(todo, None)
            if block is None:
                return
            work(block)
            with lock:
                bar.update(block.stop - block.start)

    threads = min(n_threads(n_jobs), -(-n // size))
    with bar, threadpool_limits(limits=1, user_api="blas"):
        if threads <= 1:
            worker()
            return
        with ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(worker) for _ in range(threads)]
            try:
                for future in running:
                    future.result()
            finally:
                stopping = True
