"""Output files: refused before the long work if they cannot be written, and written whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from whyidle.errors import WhyidleError


def check_outputs(outputs: Iterable[str], inputs: Iterable[str | Path]) -> None:
    """Raise WhyidleError if an output cannot be written, is an input, or is named twice."""
    read = {_identity(Path(path)) for path in inputs}
    seen: set[str] = set()
    for output in outputs:
        path = Path(output)
        if _identity(path) in read:
            raise WhyidleError(f"{output}: is one of the inputs; name another output file")
        if _identity(path) in seen and not _is_special(path):
            raise WhyidleError(f"{output}: named for two outputs; give each its own file")
        seen.add(_identity(path))
        _check_writable(path)


def write_whole(path: str | Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a file beside ``path`` and move it there: never half a file.

    Devices and pipes are written directly. Raises WhyidleError where writing fails.
    """
    path = Path(path)
    direct = _is_special(path)
    target = path.resolve()  # a link stays, and what it points to is replaced
    part = path if direct else target.with_name(f".whyidle-{os.getpid()}-{path.name}")
    try:
        if direct:
            write(part)
            return
        try:
            write(part)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        if error.filename not in (None, str(part), part):
            raise  # about another file: not the output's fault
        raise WhyidleError(
            f"{path}: cannot be written ({error.strerror or error}); name another output file"
        ) from error


def write_text(path: str | Path, text: str) -> None:
    """Write an ASCII text whole; raises WhyidleError where that fails."""

    def write(part: Path) -> None:
        part.write_text(text, encoding="ascii")

    write_whole(path, write)


def _identity(path: Path) -> str:
    return os.path.realpath(path)


def _is_special(path: Path) -> bool:
    """A pipe or device, not a file or directory."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _check_writable(path: Path) -> None:
    advice = "name another output file"
    try:
        if path.is_dir():
            raise WhyidleError(f"{path}: is a directory; {advice}")
        if path.exists():
            if not os.access(path, os.W_OK):
                raise WhyidleError(f"{path}: cannot be written (Permission denied); {advice}")
            if _is_special(path):
                return
        # Asking for permission is not enough: a read-only or full disk shows only on writing.
        with tempfile.NamedTemporaryFile(dir=path.resolve().parent, prefix=".whyidle-"):
            pass
    except OSError as error:
        raise WhyidleError(
            f"{path}: cannot be written ({error.strerror or error}); {advice}"
        ) from error
