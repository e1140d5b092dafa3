"""Which files a user means by files, directories and globs."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from whyidle.errors import WhyidleError

_TRACE_NAME = re.compile(r"\.json(\.gz)?$", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)")


def trace_files(paths: Sequence[str | Path]) -> tuple[list[Path], set[Path]]:
    """The trace files at ``paths``, and which of them were given by name.

    A directory is searched for .json and .json.gz files, below it too. Raises WhyidleError for a
    path that does not exist, a directory without such files, or a glob that matches nothing.
    """
    files: dict[Path, None] = {}
    named: set[Path] = set()
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside = [p for p in path.rglob("*") if p.is_file() and _TRACE_NAME.search(p.name)]
            if not inside:
                raise WhyidleError(f"{path}: no .json or .json.gz file in this directory")
            files.update(dict.fromkeys(sorted(inside, key=_by_number)))
        elif path.exists():
            files[path] = None
            named.add(path)
        elif glob.has_magic(str(given)):
            matches = [Path(p) for p in glob.glob(str(given), recursive=True)]
            if not matches:
                raise WhyidleError(f"{given}: no file matches; quote the pattern or check the path")
            files.update(dict.fromkeys(sorted((p for p in matches if p.is_file()), key=_by_number)))
        else:
            raise WhyidleError(f"{path}: no such file; check the path")
    if not files:
        raise WhyidleError(f"{paths[0]}: no trace file there; give a .json or .json.gz")
    return list(files), named


def _by_number(path: Path) -> list[tuple[int, int, str]]:
    """rank2 before rank10."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in _NUMBER.split(str(path))
        if part
    ]
