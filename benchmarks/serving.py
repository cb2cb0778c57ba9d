"""gpnn serve under load and under faults, on this machine alone: requests a second, times, and wrong answers, if any.
Before it, one row in process, beside LightGBM's.

pip install 'gpnn[serve,peers]' && python benchmarks/serving.py [rows [part …]]     # 10⁶ rows of 8 columns, m = 100

Clients are a process of their own, the server is another; both share the cores, so that figures are lower than where
clients have machines of their own. Every answer is compared with the model's own, digit for digit.
"""

import asyncio
import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, sleep, thread_time
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.engines.cpu import solver
from gpnn.engines.cpu.neighbors import cells, kdtree
from peers import PEERS
from report import best, read_results, write_results

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "serve"))
import hostile

D, M, CLIENTS, SECONDS = 8, 100, 32, 8.0
ONE_ROW, ARROW_ROWS, FUZZED, IDLE, REPLACED = 1000, 50_000, 10_000, 500, 100
ARROW = "application/vnd.apache.arrow.stream"


def data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


def make(n: int, seed: int = 0) -> GPnnRegressor:
    """With given parameters: what is measured is the service, not the fit."""
    model = GPnnRegressor(params=Hyperparameters(1.0, 0.9, 0.01), kernel="matern32", n_neighbors=M, random_state=seed)
    return model.fit(*data(n, seed))


class Server:
    """`gpnn serve` as a process."""

    def __init__(self, *arguments: str, folder: Path):
        self.errors = folder / "server.txt"
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gpnn.cli", "serve", *arguments, "--port", "0"], stderr=errors
            )
        while not (found := re.search(r":(\d+) \(", self.errors.read_text())):
            if self.process.poll() is not None:
                raise SystemExit(self.errors.read_text())
            sleep(0.05)
        self.port = int(found[1])
        self.ask("GET", "/ready")

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json", timeout=120):
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=timeout)) as connection:
            connection.request(method, path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def megabytes(self) -> float:
        """Of its own: without what is mapped from files."""
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@contextmanager
def serving(*arguments: str, folder: Path):
    server = Server(*arguments, folder=folder)
    try:
        yield server
    finally:
        server.stop()


# --- the clients, in a process of their own ---------------------------------------------------------------------------


class Asker(asyncio.Protocol):
    """One client: sends a request, waits for its answer, notes both, sends the next. As little Python as will do."""

    def __init__(self, requests: list[bytes], first: int, until: float, done: asyncio.Future, notes: list):
        self._requests, self._next, self._until, self._done, self._notes = requests, first, until, done, notes
        self._buffer = b""

    def connection_made(self, transport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._start = perf_counter()
        self._transport.write(self._requests[self._next])

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head[head.lower().index(b"content-length:") + 15 :].split(b"\r\n")[0])
        if len(body) < length:
            return
        now = perf_counter()
        self._notes.append((self._next, int(head[9:12]), now - self._start, body[:length]))
        self._buffer = b""
        self._next = (self._next + CLIENTS) % len(self._requests)
        if now > self._until:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
        else:
            self._send()

    def connection_lost(self, error) -> None:
        if not self._done.done():
            self._notes.append((self._next, 0, perf_counter() - self._start, b""))
            self._done.set_result(None)


def clients(port: int, file: str, seconds: float) -> None:
    """`python serving.py clients PORT FILE SECONDS`: rows and the right answers are in FILE; prints what it saw."""
    import uvloop

    content = json.loads(Path(file).read_text())
    requests = []
    for row in content["rows"]:
        body = json.dumps({"rows": [row]}).encode()
        head = ["POST /predict HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        requests.append("\r\n".join([*head, "", ""]).encode() + body)
    notes: list[tuple] = []

    async def ask_all() -> float:
        loop = asyncio.get_running_loop()
        start = perf_counter()
        dones = [loop.create_future() for _ in range(CLIENTS)]
        for number, done in enumerate(dones):
            asker = partial(Asker, requests, number, start + seconds, done, notes)
            await loop.create_connection(asker, "127.0.0.1", port)
        await asyncio.gather(*dones)
        return perf_counter() - start

    took = uvloop.run(ask_all())
    wrong = errors = 0
    for number, status, _, body in notes:
        if status != 200:
            errors += 1
        elif [json.loads(body)[name][0] for name in ("mean", "sd")] not in content["answers"][number]:
            wrong += 1
    times = np.sort([note[2] for note in notes])
    print(
        json.dumps(
            {
                "requests": len(notes), "per_second": len(notes) / took, "errors": errors, "wrong": wrong,
                "p50_ms": 1e3 * times[len(times) // 2], "p99_ms": 1e3 * times[int(0.99 * len(times))],
                "worst_ms": 1e3 * times[-1],
            }
        )
    )  # fmt: skip


def load(server: Server, file: Path, seconds: float = SECONDS) -> subprocess.Popen:
    arguments = [sys.executable, __file__, "clients", str(server.port), str(file), str(seconds)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def result(running: subprocess.Popen) -> dict:
    return json.loads(running.communicate(timeout=300)[0])


def questions(folder: Path, models: list[GPnnRegressor], n: int = 2000) -> tuple[Path, list[dict]]:
    """Rows, and for each what the models say of it: any of these is right."""
    X = np.random.default_rng(9).standard_normal((n, D))
    laws = [model.predict(X, return_std=True) for model in models]
    rows = [{f"x{k}": value for k, value in enumerate(row)} for row in X.tolist()]
    answers = [[[float(mean[i]), float(sd[i])] for mean, sd in laws] for i in range(n)]
    file = folder / "questions.json"
    file.write_text(json.dumps({"rows": rows, "answers": answers}))
    return file, rows


# --- what is measured -------------------------------------------------------------------------------------------------


def measure_in_process(n: int, model: GPnnRegressor) -> dict:
    """One row through predict, through what predictor() gives, and through LightGBM (with one thread, which for one row
    is its quickest way), fifty rows each in turn; then two threads. Times of one row are those of the calling thread,
    which does all the work: what other programs take of the cores is not in them."""
    trees = PEERS["lightgbm"](0)._trees(*data(n))
    rows = np.random.default_rng(7).standard_normal((ONE_ROW, 1, D))
    predictor = model.predictor()
    ways = {
        "predict": partial(model.predict, return_std=True),
        "predictor": predictor,
        "lightgbm": partial(trees.predict, num_threads=1),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for some in rows.reshape(-1, 50, 1, D):
        for name, way in ways.items():
            for row in some:
                start = thread_time()
                way(row)
                times[name].append(1e3 * (thread_time() - start))
    found: dict = {f"{name}_ms": float(np.median(each)) for name, each in times.items()}
    found |= {f"{name}_p10_ms": float(np.quantile(each, 0.1)) for name, each in times.items()}
    for name in ("predict", "predictor"):
        found[f"{name}_of_lightgbm"] = found[f"{name}_ms"] / found["lightgbm_ms"]
        found[f"{name}_python_ms"] = 1e3 * float(np.median([outside_compiled(ways[name], row) for row in rows]))
    # What two threads bring, beside what they bring where there is nothing but compiled code: searches of 50 rows.
    loops = {name: (ways[name], rows) for name in ways} | {
        "compiled": (lambda X: model.index_.query(X, M), rows.reshape(-1, 50, D)[:20])
    }
    found["two_threads"] = {name: [] for name in loops}
    for _ in range(5):
        for name, loop in loops.items():
            found["two_threads"][name].append(rate(*loop, 2) / rate(*loop, 1))
    return found


def outside_compiled(predict, row: np.ndarray) -> float:
    """Seconds of one call less those in the three compiled functions that do its work."""
    inside = [0.0]

    def timed(function):
        def call(*arguments):
            start = thread_time()
            function(*arguments)
            inside[0] += thread_time() - start

        return call

    with ExitStack() as patches:
        for module, name in ((kdtree, "_search"), (cells, "_take"), (solver, "_solve_block")):
            patches.enter_context(patch.object(module, name, timed(getattr(module, name))))
        start = thread_time()
        predict(row)
        return thread_time() - start - inside[0]


def rate(predict, rows: np.ndarray, threads: int) -> float:
    """Rows a second, of threads that each ask for one row after the other."""
    running = [Thread(target=lambda: [predict(row) for row in rows]) for _ in range(threads)]
    start = perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return threads * len(rows) / (perf_counter() - start)


def measure_rows(path: Path, model: GPnnRegressor, folder: Path) -> dict:
    file, rows = questions(folder, [model])
    with serving(str(path), folder=folder) as server:
        result(load(server, file, 2.0))  # warm
        found = result(load(server, file))
        text = server.ask("GET", "/metrics")[1].decode()
        calls = float(re.search(r"^gpnn_batch_requests_count (\S+)", text, re.MULTILINE)[1])
        asked = float(re.search(r"^gpnn_batch_requests_sum (\S+)", text, re.MULTILINE)[1])
        found["requests_a_call"] = asked / calls
        # One client alone.
        body = json.dumps({"rows": [rows[0]]}).encode()
        with closing(HTTPConnection("127.0.0.1", server.port)) as connection:

            def one() -> None:
                connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
                connection.getresponse().read()

            times = [best(one, 1) for _ in range(300)]
        found["alone_p50_ms"] = 1e3 * float(np.median(times))
    X = np.array([list(rows[0].values())])
    found["in_process_p50_ms"] = 1e3 * float(np.median([best(partial(model.predict, X), 1) for _ in range(300)]))
    return found


def measure_arrow(path: Path, model: GPnnRegressor, folder: Path) -> dict:
    X = np.random.default_rng(8).standard_normal((ARROW_ROWS, D))
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in X.T], names=[f"x{k}" for k in range(D)])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue()
    mean = model.predict(X)
    ratios, rates = [], []
    with serving(str(path), "--timeout", "120", folder=folder) as server:
        for _ in range(5):  # in turn, as the machine is not always as fast
            inside = best(lambda: model.predict(X, return_std=True), 1)
            answer: list = []
            outside = best(lambda into=answer: into.append(server.ask("POST", "/predict", body, ARROW)), 1)
            status, content = answer[0]
            if status != 200 or not np.array_equal(pa.ipc.open_stream(content).read_all()["mean"].to_numpy(), mean):
                raise SystemExit(f"a wrong answer over Arrow: {status} {content[:200]!r}")
            ratios.append(inside / outside)
            rates.append(ARROW_ROWS / outside)
    return {
        "rows": ARROW_ROWS, "rows_per_second": float(np.median(rates)), "of_in_process": float(np.median(ratios)),
        "each": ratios,
    }  # fmt: skip


def measure_killed(path: Path, model: GPnnRegressor, folder: Path) -> dict:
    """One of two processes is killed under load; clients ask again over a new connection when theirs is cut."""
    file, _ = questions(folder, [model], 200)
    content = json.loads(file.read_text())
    with serving(str(path), "--workers", "2", folder=folder) as server:
        while len(server.workers()) < 2:
            sleep(0.1)
        sleep(3)
        stop, counts = Event(), {"answers": 0, "wrong": 0, "errors": 0, "cut": 0}

        def ask(first: int) -> None:
            number = first
            while not stop.is_set():
                body = json.dumps({"rows": [content["rows"][number]]}).encode()
                try:
                    status, answer = server.ask("POST", "/predict", body, timeout=30)
                except (OSError, HTTPException):
                    counts["cut"] += 1
                    continue
                counts["answers"] += 1
                counts["errors"] += status != 200
                right = (
                    status == 200 and [json.loads(answer)[k][0] for k in ("mean", "sd")] in content["answers"][number]
                )
                counts["wrong"] += status == 200 and not right
                number = (number + 8) % 200

        threads = [Thread(target=ask, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        sleep(1)
        victim = server.workers()[0]
        start = perf_counter()
        os.kill(victim, signal.SIGKILL)
        while len(now := server.workers()) < 2 or victim in now:
            sleep(0.05)
        counts["replaced_after_seconds"] = perf_counter() - start
        sleep(4)
        stop.set()
        for thread in threads:
            thread.join()
    return counts | {"in_flight_at_most": len(threads)}


def measure_replaced(models: list[GPnnRegressor], folder: Path) -> dict:
    """The file replaced 100 times, by one of two models, under load."""
    sources = [folder / f"source_{k}" for k in range(len(models))]
    for source, model in zip(sources, models, strict=True):
        model.save(source)
    path = folder / "turning.gpnn"
    shutil.copy(sources[0], path)
    file, _ = questions(folder, models, 500)
    with serving(str(path), folder=folder) as server:
        running = load(server, file, 1.15 * REPLACED)
        sleep(2)
        before = server.megabytes()
        for number in range(REPLACED):
            shutil.copy(sources[(number + 1) % 2], folder / "next")
            (folder / "next").replace(path)
            sleep(1.1)
        after = server.megabytes()
        found = result(running)
        text = server.ask("GET", "/metrics")[1].decode()
        found["reloads"] = float(re.search(r"^gpnn_model_reloads_total\S* (\S+)", text, re.MULTILINE)[1])
    return found | {"megabytes_before": before, "megabytes_after": after}


def measure_idle(path: Path, model: GPnnRegressor, folder: Path) -> dict:
    file, _ = questions(folder, [model], 200)
    with serving(str(path), folder=folder) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(IDLE)]
        for connection in idle[::2]:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
        found = result(load(server, file, 4.0))
        for connection in idle:
            connection.close()
    return found | {"idle": IDLE}


def measure_fuzz(path: Path, model: GPnnRegressor, folder: Path) -> dict:
    _, rows = questions(folder, [model], 200)
    statuses: dict[str, int] = {}
    with serving(str(path), folder=folder) as server:
        good = json.dumps({"rows": rows[:3]}).encode()
        expected = server.ask("POST", "/predict", good)
        wrong, grown = 0, []
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        for number, (kind, body) in enumerate(hostile.bodies(rows, FUZZED, seed=2)):
            connection.request("POST", "/predict", body, {"Content-Type": kind})
            answer = connection.getresponse()
            answer.read()
            statuses[str(answer.status)] = statuses.get(str(answer.status), 0) + 1
            if number % 1000 == 999:
                wrong += server.ask("POST", "/predict", good) != expected
                grown.append(server.megabytes())
        connection.close()
    failures = sum(count for status, count in statuses.items() if status.startswith("5"))
    return {"bodies": FUZZED, "statuses": statuses, "failures": failures, "wrong": wrong, "megabytes": grown}


def measure_full_disk(path: Path, model: GPnnRegressor, folder: Path) -> dict:
    """The log may not grow beyond 256 KiB (RLIMIT_FSIZE stands in for a full disk) while rows are predicted."""
    file, rows = questions(folder, [model], 500)

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))

    popen, subprocess.Popen = subprocess.Popen, partial(subprocess.Popen, preexec_fn=small_files)  # type: ignore[misc]
    try:
        server = Server(str(path), "--log", str(folder / "log.sqlite"), folder=folder)
    finally:
        subprocess.Popen = popen  # type: ignore[misc]
    try:
        running = load(server, file, 5.0)
        statuses: dict[str, int] = {}
        body = json.dumps({"rows": rows[:100], "y": [0.0] * 100}).encode()
        for _ in range(40):
            status, _ = server.ask("POST", "/observe", body)
            statuses[str(status)] = statuses.get(str(status), 0) + 1
        found = result(running)
    finally:
        server.stop()
    return found | {"observe_statuses": statuses}


def main() -> None:
    if sys.argv[1:2] == ["clients"]:
        clients(int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
        return
    n = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**6
    chosen = sys.argv[2:]
    model = make(n)
    results: dict = {"rows": n, "columns": D, "neighbors": M, "clients": CLIENTS}
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        path = folder / "large.gpnn"
        model.save(path)
        small = [make(5000, seed) for seed in (0, 1)]
        small[0].save(folder / "small.gpnn")
        parts = {
            "in_process": partial(measure_in_process, n, model),
            "one_row": partial(measure_rows, path, model, folder),
            "arrow": partial(measure_arrow, path, model, folder),
            "idle": partial(measure_idle, path, model, folder),
            "killed": partial(measure_killed, folder / "small.gpnn", small[0], folder),
            "fuzz": partial(measure_fuzz, folder / "small.gpnn", small[0], folder),
            "full_disk": partial(measure_full_disk, folder / "small.gpnn", small[0], folder),
            "replaced": partial(measure_replaced, small, folder),
        }
        for name, part in parts.items():
            if not chosen or name in chosen:
                load_average = os.getloadavg()[0]  # of others too, where the machine is shared
                results[name] = part() | {"load_average_before": load_average}
                print(f"{name:10s} {BARS[name]}\n{'':10s} {json.dumps(results[name])}", flush=True)
    write_results("serving", read_results("serving") | results)


BARS = {
    "in_process": "bar: predict ≤ 1 × LightGBM, below 0.5 ms, 0.15 ms of it Python; predictor half of that",
    "one_row": "bar: 1,000 requests/s, p99 ≤ 60 ms, no error; moonshot: 2,500/s, 30 ms",
    "arrow": "bar: ≥ 0.9 of in-process throughput",
    "idle": "bar: 500 idle connections, no error, others served",
    "killed": "bar: nothing wrong, nothing lost but what was in flight on the killed process",
    "fuzz": "bar: no 5xx, nothing wrong, memory flat",
    "full_disk": "bar: /observe refused with 503, no prediction lost",
    "replaced": "bar: 100 replacements, no error, nothing wrong, memory flat",
}

if __name__ == "__main__":
    main()
