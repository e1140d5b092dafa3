"""A progress bar on stderr while long files are read."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, TextIO

_PATIENCE_S = 0.5  # what is done sooner needs no bar


class ProgressBar:
    """Called with (file name, bytes read, bytes in all); draws only on a terminal.

    rich is imported only once there is something to draw.
    """

    def __init__(self, stream: TextIO, enabled: bool = True) -> None:
        self._stream = stream
        self._enabled = enabled and stream.isatty()
        self._begin = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._name = ""

    def __enter__(self) -> ProgressBar:
        return self

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` bytes of the file called ``name`` have been read."""
        if not self._enabled or time.monotonic() - self._begin < _PATIENCE_S:
            return
        if self._bar is None:
            self._start()
        if name != self._name:
            self._name = name
            self._bar.reset(self._task, total=total, description=_short(name))
        self._bar.update(self._task, completed=done, total=total)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(file=self._stream, markup=False, emoji=False, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("")
        self._bar.start()


def _short(name: str) -> str:
    from whyidle.reports.words import plain

    return plain(name, 40)
