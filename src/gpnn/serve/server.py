"""The processes: one that serves, or several on one socket, each with the same mapping of the model files."""

from __future__ import annotations

import logging
import shutil
import socket
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from gpnn.common.errors import FileError, InvalidInputError
from gpnn.engines.parallel import n_threads
from gpnn.serve.app import Settings, make_app
from gpnn.serve.models import Registry
from gpnn.serve.observations import Log

_HEADER_SECONDS = 30.0
_RESTART_SECONDS = 2.0  # between two attempts to replace a process


class Protocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, but a client that has not sent its headers after a while is shown out."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._patience = self.loop.call_later(_HEADER_SECONDS, self._give_up)

    def on_headers_complete(self) -> None:
        self._patience.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class Workers(Multiprocess):
    """Several processes on one socket; one that ends is replaced.

    uvicorn asks each process for a sign of life and waits for it: a process killed while it is asked would be missed
    until the wait ends, and one that still loads a large model would be taken for dead. Here the system is asked. A
    process that does not come up is tried again: while the file is broken, the others go on with the model they have.
    """

    _last = 0.0

    def keep_subprocess_alive(self) -> None:
        for number, process in enumerate(self.processes):
            if self.should_exit.is_set() or process.process.is_alive():
                continue
            if monotonic() - self._last < _RESTART_SECONDS:
                return
            self._last = monotonic()
            process.join()
            print(f"gpnn: process {process.pid} has ended and is replaced", file=sys.stderr, flush=True)
            self.processes[number] = Process(self.config, self.sockets)
            self.processes[number].start()


def serve(settings: Settings, host: str, port: int, workers: int = 1) -> None:
    """Until SIGTERM or Ctrl-C; requests under way are answered first."""
    logging.basicConfig(stream=sys.stderr, format="gpnn: %(message)s", level=logging.WARNING)
    if settings.log is not None:
        log = Log(settings.log)
        log.check()
        log.close()
    if settings.n_jobs is None and workers > 1:
        settings = replace(settings, n_jobs=max(1, n_threads(None) // workers))
    # What cannot be loaded is said here, once.
    registry = Registry.of(list(settings.paths), settings.n_jobs, settings.engine)
    listening = _listening(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    print(f"gpnn: serving {', '.join(registry.models)} at {address} (Ctrl-C stops)", file=sys.stderr, flush=True)
    notes = Path(tempfile.mkdtemp(prefix="gpnn-serve-")) if workers > 1 else None
    settings = replace(settings, notes=notes)
    try:
        if workers == 1:
            uvicorn.Server(_config(partial(make_app, settings, registry), settings, 1)).run([listening])
        else:
            del registry  # each process maps the files itself; the system keeps one copy of their pages
            config = _config(partial(make_app, settings), settings, workers)
            Workers(config, [listening]).run()
    finally:
        listening.close()
        if notes is not None:
            shutil.rmtree(notes, ignore_errors=True)


def _config(app: Any, settings: Settings, workers: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=True,
        workers=workers,
        http=Protocol,
        ws="none",
        loop="auto",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.timeout) + 1,
    )


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((place[0], place[1]), family=family, backlog=2048)
    except OSError as error:
        raise FileError(
            f"The server cannot listen at {host}, port {port}: {error.strerror or error}. Check that no other program "
            "uses the port and that the address is one of this machine; or choose another --port."
        ) from error


def tokens_of(path: Path | None) -> tuple[str, ...]:
    """One token a line; empty lines and those that begin with # are none."""
    if path is None:
        return ()
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(
            f"The file of tokens {path} cannot be read: {error}. Check its name and permissions."
        ) from error
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens or any(len(token) < 16 or not token.isascii() for token in tokens):
        raise InvalidInputError(
            f"{path} must hold one token a line, each of at least 16 letters or digits. "
            "Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return tokens
