"""Folders of its own for every test, and a small web server that can misbehave."""

import io
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """An empty data directory and an empty cache: no test sees the machine's own, and none can reach the network."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    monkeypatch.setenv("GPNN_DATA_DIR", str(data))
    monkeypatch.setenv("GPNN_CACHE_DIR", str(cache))
    return data, cache


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Between attempts at a download."""
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)


def zipped(**members: bytes | str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.fixture(name="zipped")
def zipped_fixture():
    return zipped


@dataclass
class Site:
    """What the server does; tests change it between requests."""

    content: bytes = b""
    tells_length: bool = True
    cuts: list[int] = field(default_factory=list)
    """Of the next answers, how many bytes to send before the connection ends."""
    statuses: list[int] = field(default_factory=list)
    """Of the next answers, error codes instead of content."""
    requests: list[dict] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def site():
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            site.requests.append(dict(self.headers))
            if site.statuses:
                self.send_error(site.statuses.pop(0))
                return
            self.send_response(200)
            if site.tells_length:
                self.send_header("Content-Length", str(len(site.content)))
            self.end_headers()
            end = site.cuts.pop(0) if site.cuts else len(site.content)
            self.wfile.write(site.content[:end])

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        site.url = f"http://127.0.0.1:{server.server_port}/some+table.zip"
        yield site
        server.shutdown()
