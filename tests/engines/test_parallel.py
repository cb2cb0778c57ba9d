import contextlib
import io
import os
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gpnn.engines.parallel import blocks, for_each_block, in_parallel, meanwhile, n_threads, progress_bar
from gpnn.errors import InvalidInputError


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_every_block_once(n_jobs):
    counts = np.zeros(103, int)

    def work(part):
        counts[part] += 1

    for_each_block(work, 103, 10, n_jobs)
    assert (counts == 1).all()
    for_each_block(work, 103, 103, n_jobs)
    assert (counts == 2).all()
    for_each_block(lambda part: pytest.fail("there is nothing to do"), 0, 10, n_jobs)
    assert [(b.start, b.stop) for b in blocks(25, 10)] == [(0, 10), (10, 20), (20, 25)]


def test_a_loop_within_a_block_keeps_to_its_thread():
    threads = []

    def outer(part):
        here = threading.get_ident()
        for_each_block(lambda inner: threads.append(threading.get_ident() == here), 4, 1, n_jobs=4)

    for_each_block(outer, 3, 1, n_jobs=2)
    assert threads == [True] * 12
    for_each_block(outer, 1, 1, n_jobs=2)  # alone, it may have them all
    assert not any(threads[12:])


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_a_failure_ends_the_loop(n_jobs):
    begun = []

    def work(part):
        begun.append(part.start)
        if part.start == 1:
            raise RuntimeError("block 1")
        threading.Event().wait(0.005)

    with pytest.raises(RuntimeError, match="block 1"):
        for_each_block(work, 1000, 1, n_jobs)
    assert len(begun) < 20


@threadpool_limits.wrap(limits=2, user_api="blas")
def test_blas_threads_come_back_however_loops_overlap():
    before = blas_threads()
    assert set(before) == {2}
    second_began, first_ended = threading.Event(), threading.Event()

    def first(part):
        assert second_began.wait(10)

    def second(part):
        second_began.set()
        assert first_ended.wait(10)

    thread = threading.Thread(target=for_each_block, args=(second, 1, 1, 1))
    outer = threading.Thread(target=for_each_block, args=(first, 1, 1, 1))
    outer.start()
    thread.start()
    outer.join()
    first_ended.set()
    thread.join()
    assert blas_threads() == before


def test_n_jobs():
    assert n_threads(None) == n_threads(-1) >= 1
    assert n_threads(3) == 3
    with pytest.raises(InvalidInputError, match="n_jobs"):
        n_threads(0)


LOOPS = """
from gpnn.engines.parallel import for_each_block, progress_bar
for_each_block(lambda part: None, 10, 1, 1, {name})
with progress_bar(20, {name}) as bar:
    for _ in range(2):
        for_each_block(lambda part: None, 10, 1, 1, bar)
    assert bar.disable or bar.n == 20
"""


def run_in_terminal(code: str) -> str:
    """What a program writes to a terminal of 80 columns."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    written = b""
    with subprocess.Popen([sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=slave):
        os.close(slave)
        with contextlib.suppress(OSError):  # how the terminal says that nobody writes to it any more
            while chunk := os.read(master, 4096):
                written += chunk
    os.close(master)
    return written.decode()


def test_bars_in_a_terminal_and_nowhere_else():
    unnamed, named = (LOOPS.format(name=name) for name in (None, "'search'"))
    before, shown = run_in_terminal(f"{unnamed}print('then', flush=True){named}").split("then")
    assert before == ""
    assert "search" in shown
    assert "Traceback" not in shown
    piped = subprocess.run([sys.executable, "-c", named], capture_output=True, check=True)
    assert piped.stdout + piped.stderr == b""


def test_bars_in_a_notebook(monkeypatch):
    kernel = types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar(3, "search") as bar:
        bar.update()
    assert "search" in sys.stderr.getvalue()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert progress_bar(3, "search").disable


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_what_is_done_beside_tasks_changes_none_of_their_numbers(n_jobs):
    tasks, done = [lambda rng: rng.random()] * 4, []
    alone = in_parallel(tasks, np.random.default_rng(0), n_jobs)
    rng = np.random.default_rng(0)
    beside = [lambda: done.append(rng.random()), lambda: done.append(2.0)]
    assert in_parallel(tasks, rng, n_jobs, beside=beside) == alone
    assert max(done) == 2.0
    assert len(done) == 2
    assert len(set(alone)) == 4


def test_what_is_begun_meanwhile_waits_for_nobody():
    begun, go_on = threading.Event(), threading.Event()

    def work():
        begun.set()
        go_on.wait(10)
        return 3.0

    found = meanwhile(work, n_jobs=2)
    assert begun.wait(10)  # nobody has asked yet
    go_on.set()
    assert (found(), found()) == (3.0, 3.0)


def test_with_one_thread_it_is_done_once_when_asked():
    done = []
    found = meanwhile(lambda: done.append(1) or 3.0, n_jobs=1)
    assert not done
    assert (found(), found(), done) == (3.0, 3.0, [1])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_fails_meanwhile_fails_when_asked(n_jobs):
    found = meanwhile(lambda: 1 / 0, n_jobs)
    with pytest.raises(ZeroDivisionError):
        found()
