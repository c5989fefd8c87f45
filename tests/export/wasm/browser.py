"""A real browser without a window: Chromium, spoken to by WebDriver (w3.org/TR/webdriver2)."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_ARGUMENTS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --window-size=900,1200
""".split()
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element in answers
_PATIENCE = 60.0  # seconds


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's files."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class Browser:
    """A session."""

    def __init__(self, address: str, profile: Path) -> None:
        self._at = address
        options = {"args": [*_ARGUMENTS, f"--user-data-dir={profile}"]}
        answer = self._ask("POST", "/session", {
            "capabilities": {"alwaysMatch": {"goog:chromeOptions": options}},
        })
        self._at = f"{address}/session/{answer['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._at + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from None

    def open(self, address: str) -> None:
        """Goes to a page."""
        self._ask("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function's body returns in the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": arguments})

    def wait(self, script: str) -> Any:
        """What a script returns, once that is something."""
        until = time.monotonic() + _PATIENCE
        while not (found := self.run(script)):
            assert time.monotonic() < until, script
            time.sleep(0.05)
        return found

    def _element(self, selector: str) -> str:
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def click(self, selector: str) -> None:
        """A click of the mouse."""
        self._ask("POST", f"/element/{self._element(selector)}/click", {})

    def draw(self, selector: str, *points: tuple[int, int]) -> None:
        """Drags the mouse over an element; points are counted from its middle."""
        origin = {_ELEMENT: self._element(selector)}
        moves: list[dict[str, Any]] = [
            {"type": "pointerMove", "duration": 20, "x": x, "y": y, "origin": origin}
            for x, y in points
        ]
        moves.insert(1, {"type": "pointerDown", "button": 0})
        moves.append({"type": "pointerUp", "button": 0})
        self._ask("POST", "/actions", {
            "actions": [{"type": "pointer", "id": "mouse", "actions": moves}],
        })

    def close(self) -> None:
        """Ends the browser."""
        self._ask("DELETE", "")


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A new browser; skips the test where there is none."""
    driver = shutil.which("chromedriver")
    if driver is None or not any(map(shutil.which, ("chromium", "google-chrome", "chrome"))):
        pytest.skip("not installed: chromium and chromedriver")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + _PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert time.monotonic() < until and process.poll() is None, "chromedriver is gone"
            time.sleep(0.05)
        session = Browser(f"http://127.0.0.1:{port}", profile)
        try:
            yield session
        finally:
            session.close()
    finally:
        process.terminate()
        process.wait()
