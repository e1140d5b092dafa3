"""A headless Chromium over its debugging pipe: enough of it to check a page, standard library only.

https://chromedevtools.github.io/devtools-protocol/ : messages are JSON, ended by a zero byte, on
the browser's file descriptors 3 (to it) and 4 (from it).
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--remote-debugging-pipe about:blank"
)
_PATIENCE_S = 60.0


def find_chromium() -> str | None:
    """The browser's path, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


class Page:
    """One tab. ``problems`` collects exceptions, console errors and warnings, and requests to
    anything but local files."""

    def __init__(self, executable: str, width: int = 1280, dark: bool = False) -> None:
        self.problems: list[str] = []
        self._next = 0
        self._rest = b""
        self._profile = tempfile.mkdtemp(prefix="whyidle-chromium-")
        self._pid = self._start(executable)
        self._session = ""
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._to)
        os.close(self._from)
        os.kill(self._pid, signal.SIGTERM)
        os.waitpid(self._pid, 0)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _start(self, executable: str) -> int:
        # High numbers first, so that no end of a pipe lies where another is to be put.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for pair in (os.pipe(), os.pipe())
                for fd in pair]  # fmt: skip
        their_in, self._to, self._from, their_out = ends
        nothing = os.open(os.devnull, os.O_RDWR)
        actions = [
            (os.POSIX_SPAWN_DUP2, nothing, 1),
            (os.POSIX_SPAWN_DUP2, nothing, 2),
            (os.POSIX_SPAWN_DUP2, their_in, 3),
            (os.POSIX_SPAWN_DUP2, their_out, 4),
        ]
        arguments = [executable, f"--user-data-dir={self._profile}", *_FLAGS.split()]
        pid = os.posix_spawn(executable, arguments, os.environ, file_actions=actions)
        for fd in (their_in, their_out, nothing):
            os.close(fd)
        return pid

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come before it are noted."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._next:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], _PATIENCE_S)
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        line, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, told = event.get("method"), event.get("params", {})
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.problems.append(json.dumps(told)[:1000])
        if method == "Network.requestWillBeSent":
            url = told["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.problems.append(f"asked the network for {url}")

    def open(self, path: Path) -> None:
        """Open a local file and wait until its scripts say that they are done."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.until("document.body && document.body.dataset.ready === '1'")

    def until(self, expression: str) -> None:
        """Wait until ``expression`` is true in the page."""
        end = time.monotonic() + _PATIENCE_S
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < end, f"never true: {expression}; {self.problems}"
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def key(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event at viewport coordinates."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
