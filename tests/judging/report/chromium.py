"""A headless Chromium, driven over its DevTools pipe: what a page looks like and does in a real browser."""

import base64
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Chromium reads its orders from file 3 and answers on file 4: the pipes are put there, and it takes over the process.
_LAUNCH = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass
class Visit:
    """What happened while a page was open."""

    messages: list[str] = field(default_factory=list)
    """Whatever the console would show: errors, refusals of the security policy, exceptions."""
    requests: list[str] = field(default_factory=list)


class Chromium:
    def __init__(self, folder: Path):
        """`folder`: for its profile."""
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
                 f"--user-data-dir={folder}"]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(to_browser), str(from_browser), str(PROGRAM), *flags],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._last = b"", 0
        self._visit = Visit()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, page: Path | str, width: int = 1200, dark: bool = False) -> Visit:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self._visit = Visit()
        self._call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        self._receive(lambda message: message.get("method") == "Page.loadEventFired")
        return self._visit

    def evaluate(self, expression: str):
        """The value of a JavaScript expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, times: int = 1) -> None:
        """A key by its name ("Tab", "ArrowRight", "Enter", " ") or a letter."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowDown": 40, "Backspace": 8}.get(key, 0)
        for _ in range(times):
            for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
                order = {"type": kind, "key": key, "windowsVirtualKeyCode": code} | ({"text": text} if text else {})
                self._call("Input.dispatchKeyEvent", **order)

    def choose_file(self, selector: str, path: Path) -> None:
        """As if it had been chosen in the dialogue of an input of files."""
        root = self._call("DOM.getDocument")["root"]["nodeId"]
        node = self._call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self._call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def screenshot(self, path: Path) -> None:
        """The whole page, from top to bottom."""
        picture = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self) -> None:
        os.close(self._to)  # it ends when its orders end
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def _call(self, method: str, **params) -> dict:
        self._last += 1
        order = {"id": self._last, "method": method, "params": params}
        if not method.startswith("Target."):
            order["sessionId"] = self._session
        os.write(self._to, json.dumps(order).encode() + b"\0")
        answer = self._receive(lambda message: message.get("id") == self._last)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _receive(self, wanted) -> dict:
        """Read on until a message is the wanted one; events on the way are noted in the visit."""
        while True:
            while b"\0" not in self._buffer:
                part = os.read(self._from, 1 << 20)
                assert part, "Chromium ended unexpectedly"
                self._buffer += part
            text, _, self._buffer = self._buffer.partition(b"\0")
            message = json.loads(text)
            self._note(message.get("method"), message.get("params", {}))
            if wanted(message):
                return message

    def _note(self, event: str | None, params: dict) -> None:
        if event == "Network.requestWillBeSent":
            self._visit.requests.append(params["request"]["url"])
        elif event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self._visit.messages.append(json.dumps(params))
