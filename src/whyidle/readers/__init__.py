"""One file a format; ``open_trace`` picks by content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from whyidle.readers.kineto import read_kineto
from whyidle.timeline.columns import Timeline


def open_trace(path: str | Path, progress: Callable[[int, int], None] | None = None) -> Timeline:
    """Read one trace file into a Timeline.

    ``progress`` is called with (bytes read, bytes in all). Raises WhyidleError, in one line that
    names the file, when it is missing, empty or no trace.
    """
    return read_kineto(Path(path), progress)
