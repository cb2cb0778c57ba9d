"""The command as a process: starts, answers, stops in order; several processes, one of which is killed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path

import pytest
from asking import Running, rows_of

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes as Linux shows them")


def children(pid: int) -> list[int]:
    """Processes that serve: not multiprocessing's own helper."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (thread / "children").read_text().split())
    return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_idle_clients_and_a_graceful_stop(models, tmp_path, new_flats):
    running = Running(str(models / "flats.gpnn"), "--jobs", "1", folder=tmp_path)
    try:
        idle = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(200)]
        for connection in idle[::2]:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Le")
        question = {"rows": rows_of(new_flats[:1])}
        assert running.ask("POST", "/predict", question).status == 200
        for connection in idle:
            connection.close()
        # A body is half sent when SIGTERM comes: it is read to its end and answered; nobody new is let in.
        body = json.dumps(question).encode()
        late = socket.create_connection(("127.0.0.1", running.port))
        head = ["POST /predict HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        late.sendall("\r\n".join([*head, "", ""]).encode() + body[:20])
        time.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", running.port), timeout=5)
        late.sendall(body[20:])
        assert late.recv(1 << 16).startswith(b"HTTP/1.1 200")
        late.close()
        assert running.process.wait(20) in (0, -signal.SIGTERM)
    finally:
        running.stop()
    assert "Traceback" not in running.errors.read_text()


def test_a_killed_worker_is_replaced(models, tmp_path, new_flats):
    running = Running(str(models / "flats.gpnn"), "--workers", "2", "--log", str(tmp_path / "log"), folder=tmp_path)
    question = {"rows": rows_of(new_flats[:2])}
    try:
        expected = running.ask("POST", "/predict", question).body
        deadline = time.monotonic() + 120
        while len(children(running.process.pid)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        before = children(running.process.pid)
        answers, lost = [], []
        stop = threading.Event()

        def load():
            while not stop.is_set():
                try:
                    answers.append(running.ask("POST", "/predict", question))
                except (OSError, HTTPException):  # in flight on the killed process
                    lost.append(1)

        clients = [threading.Thread(target=load) for _ in range(4)]
        for client in clients:
            client.start()
        time.sleep(1)
        os.kill(before[0], signal.SIGKILL)
        while len(now := children(running.process.pid)) < 2 or before[0] in now:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1)
        stop.set()
        for client in clients:
            client.join()
        assert {(answer.status, answer.body) for answer in answers} == {(200, expected)}
        assert len(lost) <= 4
        time.sleep(1.5)  # each process tells the others once a second
        counted = running.ask("GET", "/metrics").body.decode()
        found = re.search(r'^gpnn_requests_total\{path="/predict",status="200"\} (\d+)$', counted, re.MULTILINE)
        assert int(found[1]) > 0.5 * len(answers)  # of both, but for what the killed one had not yet told
    finally:
        running.stop()


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "gpnn.cli", "serve", *arguments], capture_output=True, text=True, timeout=120
    )


def test_what_cannot_be_served_is_said_in_one_line(models, tmp_path):
    (tmp_path / "short").write_text("abc\n")
    model = str(models / "flats.gpnn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, word in (
            ((str(tmp_path / "none.gpnn"),), "none.gpnn"),
            ((model, "--token-file", str(tmp_path / "short")), "token"),
            ((model, "--log", str(tmp_path / "no" / "log")), "log"),
            ((model, "--port", port), "listen"),
        ):
            done = command(*arguments)
            assert (done.returncode, done.stderr.count("\n"), word in done.stderr) == (2, 1, True), done.stderr


def test_a_missing_package_is_named(monkeypatch):
    from gpnn.cli import main

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "model.gpnn"]) == 2


def test_two_files_of_one_name(models, tmp_path):
    from gpnn.common.errors import InvalidInputError
    from gpnn.serve.models import Registry

    with pytest.raises(InvalidInputError, match="Rename"):
        Registry.of([models / "flats.gpnn", tmp_path / "flats.gpnn"])
