"""Results are appended whole, once, and survive whatever kills the run."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpnn.errors import FileError
from store import Store


def record(number, value=0.5):
    return {"job": {"seed": number, "vary": ("a", "b")}, "result": {"value": value}, "made": {}}


def seeds(store):
    return [one["job"]["seed"] for one in store.records()]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results" / "real.jsonl")


def test_what_is_appended_is_there(store):
    assert store.records() == []
    assert store.append(record(0))
    assert store.append(record(1))
    assert seeds(store) == [0, 1]
    assert record(1)["job"] in store
    assert record(2)["job"] not in store


def test_a_job_is_counted_once_and_the_first_result_kept(store):
    store.append(record(0, value=1.0))
    assert not store.append(record(0, value=2.0))
    assert [one["result"]["value"] for one in store.records()] == [1.0]


@pytest.mark.parametrize("half", [b'{"job": {"seed": 2', b"{", b"\x00\x00\x00", b'{"job": {"seed": 2}, "res\n'])
def test_half_a_line_is_not_read_and_is_cut_off_before_the_next(store, half, capsys):
    store.append(record(0))
    with open(store.path, "ab") as file:
        file.write(half)
    assert seeds(store) == [0]
    store.append(record(1))
    assert seeds(store) == [0, 1]
    assert len(store.path.read_bytes().splitlines()) == 2
    assert "was cut off" in capsys.readouterr().err


def test_a_last_line_that_lacks_only_its_end_is_kept(store):
    store.append(record(0))
    store.append(record(1))
    store.path.write_bytes(store.path.read_bytes().rstrip(b"\n"))
    assert seeds(store) == [0, 1]
    assert not store.append(record(1))
    store.append(record(2))
    assert seeds(store) == [0, 1, 2]


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(store):
    store.append(record(0))
    with open(store.path, "ab") as file:
        file.write(b"<<<<<<< HEAD\n")
        file.write(json.dumps(record(1)).encode() + b"\n")
    with pytest.raises(FileError, match="line 2 is not a result"):
        store.append(record(2))


def test_a_full_disk_leaves_what_was_there(store, monkeypatch):
    store.append(record(0))
    before = store.path.read_bytes()
    write = os.write

    def full(file, data):
        write(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FileError, match="The disk is full"):
        store.append(record(1))
    assert store.path.read_bytes() == before


def test_two_writers_append_to_one_file(store):
    """Each append opens the file anew, so the lock keeps threads apart as it does processes."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: Store(store.path).append(record(number)), [*range(30), *range(10, 30)]))
    assert sorted(seeds(store)) == list(range(30))


def test_a_killed_writer_loses_nothing_but_its_last_line(store, tmp_path):
    program = tmp_path / "writer.py"
    program.write_text(
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from store import Store\n"
        "for number in range(10**6):\n"
        "    record = {'job': {'seed': number}, 'result': 'x' * 100_000, 'made': {}}\n"
        "    Store(Path(sys.argv[2])).append(record)\n"
        "    print(number, flush=True)\n"
    )
    command = [sys.executable, program, Path(sys.modules["store"].__file__).parent, store.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        said = [int(writer.stdout.readline()) for _ in range(3)]
        time.sleep(0.02)
        writer.send_signal(signal.SIGKILL)
        said += [int(number) for number in writer.stdout.read().split()]
    assert set(said) <= set(seeds(store))  # whatever it said was written is there
    store.append({"job": {"seed": "after"}, "result": {}, "made": {}})
    assert seeds(store)[-1] == "after"
    assert len(seeds(store)) == len(set(seeds(store)))
