"""Two ways to ask: the application itself in a loop of its own, and the command as a process."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pandas as pd

from gpnn import GPnnRegressor, Hyperparameters, TableModel
from gpnn.serve.app import Settings, make_app


def flats(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "area": rng.uniform(20, 150, n).round(1),
            "floor": rng.integers(0, 9, n),
            "lift": rng.random(n) > 0.4,
            "city": rng.choice(["Aix", "Bern", "Cork"], n, p=[0.5, 0.3, 0.2]),
            "sold": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 1400, n), "D"),
        }
    )
    table["price"] = 3 * table["area"] * (1 + 0.2 * (table["city"] == "Bern")) + rng.normal(0, 10, n)
    return table


def fitted(table, missing: str = "error", noise: float = 0.02) -> TableModel:
    """With given parameters, so that it takes no time."""
    regressor = GPnnRegressor(params=Hyperparameters(1.0, 0.9, noise), n_neighbors=20, random_state=0, n_jobs=1)
    return TableModel.fit(table, "price", regressor=regressor, missing=missing)


def rows_of(table) -> list[dict]:
    """As JSON has them."""
    return json.loads(table.drop(columns="price").to_json(orient="records", date_format="iso"))


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """The application, its lifespan begun, in a thread with a loop; no sockets."""

    def __init__(self, settings: Settings):
        self.app = make_app(settings)
        self.service = self.app.service
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._orders: asyncio.Queue = asyncio.Queue()
        self._said: asyncio.Queue = asyncio.Queue()
        self._life = asyncio.run_coroutine_threadsafe(
            self.app({"type": "lifespan", "asgi": {}}, self._orders.get, self._said.put), self._loop
        )
        self._turn("lifespan.startup")

    def _turn(self, order: str) -> None:
        asyncio.run_coroutine_threadsafe(self._orders.put({"type": order}), self._loop).result(30)
        said = asyncio.run_coroutine_threadsafe(self._said.get(), self._loop).result(60)
        assert said["type"] == f"{order}.complete", said

    def close(self) -> None:
        self._turn("lifespan.shutdown")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def begin(self, method: str, path: str, body=b"", headers: dict[str, str] | None = None, parts=None):
        """The answer, to come. `parts`: the body in pieces."""
        return asyncio.run_coroutine_threadsafe(self._ask(method, path, body, headers, parts), self._loop)

    def begin_post(self, path: str, question):
        return self.begin("POST", path, json.dumps(question).encode(), {"content-type": "application/json"})

    def ask(self, method: str, path: str, body=b"", headers=None, parts=None) -> Answer:
        return self.begin(method, path, body, headers, parts).result(60)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, content, kind: str = "application/json", **headers: str) -> Answer:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask("POST", path, body, {"content-type": kind} | headers)

    async def _ask(self, method, path, body, headers, parts) -> Answer:
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "", "scheme": "http", "server": ("test", 80),
            "client": ("test", 1), "asgi": {"version": "3.0"},
            "headers": [(k.lower().replace("_", "-").encode(), v.encode()) for k, v in (headers or {}).items()],
        }  # fmt: skip
        pieces = list(parts) if parts is not None else [body]
        sent: list[dict] = []

        async def receive():
            if pieces:
                piece = pieces.pop(0)
                if callable(piece):
                    piece = await piece()
                return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))


class Running:
    """`gpnn serve` as a process."""

    def __init__(self, *arguments: str, folder: Path):
        self.errors = folder / "errors.txt"
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gpnn.cli", "serve", *arguments, "--port", "0"],
                stderr=errors, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        self.port = self._port()

    def _port(self) -> int:
        for _ in range(1200):
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.errors.read_text())
            if found:
                return int(found[1])
            assert self.process.poll() is None, self.errors.read_text()
            threading.Event().wait(0.1)
        raise AssertionError("it did not start")

    def ask(self, method: str, path: str, content=None) -> Answer:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            body = None if content is None else json.dumps(content)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
