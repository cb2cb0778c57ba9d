"""The one parallel loop of the package: blocks of rows through a few threads.

Compiled code releases the interpreter lock, so threads suffice; each block's result depends on that block alone, so
the numbers are the same whatever the number of threads. BLAS is held at one thread meanwhile.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Lock

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


def progress_bar(total: int | None, name: str | None) -> tqdm:
    """A bar on stderr, in terminals and notebooks; without a name there is none, without a total only a count."""
    # disable=None: tqdm stays silent where stderr is not a terminal
    return tqdm(total=total, desc=name, disable=True if name is None else None, unit="", unit_scale=True, leave=False)


def for_each_block(
    work: Callable[[slice], object], n: int, size: int, n_jobs: int | None, progress: str | None = None
) -> None:
    """Call `work(block)` for every block of range(n).

    `progress` names a bar. If a block fails, or on Ctrl-C, no further block is begun and the error is raised here.
    """
    todo, lock, failed = blocks(n, size), Lock(), Event()
    bar = progress_bar(n, progress)

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

    threads = min(n_threads(n_jobs), -(-n // size))
    with bar, _one_blas_thread():
        if threads <= 1:
            worker()
            return
        with ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(worker) for _ in range(threads)]
            try:
                for future in running:
                    future.result()
            except BaseException:  # Ctrl-C arrives here, not in the workers
                failed.set()
                raise


_blas_lock = Lock()
_blas_users: list[threadpool_limits] = []  # one entry per loop under way; the first holds the limit


@contextmanager
def _one_blas_thread():
    """BLAS at one thread until the last of the loops under way (in any thread) is done, then as it was."""
    with _blas_lock:
        _blas_users.append(_blas_users[0] if _blas_users else threadpool_limits(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _blas_lock:
            limit = _blas_users.pop()
            if not _blas_users:
                limit.restore_original_limits()
