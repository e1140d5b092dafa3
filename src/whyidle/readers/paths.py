"""Which files a user means by files, directories and globs."""

from __future__ import annotations

import glob
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from whyidle.errors import WhyidleError

_TRACE_NAME = re.compile(r"\.json(\.gz)?$", re.IGNORECASE)
_OURS = re.compile(rb'\s*\{\s*"(schema"\s*:\s*"whyidle\.report/|whyidle")')
_NUMBER = re.compile(r"(\d+)")


def trace_files(paths: Sequence[str | Path]) -> tuple[list[Path], set[Path]]:
    """The trace files at ``paths``, and which of them were given by name.

    A directory is searched for .json and .json.gz files, below it too, other than those that
    whyidle wrote. A file that is given twice (by two spellings, or a link) is one. Raises
    WhyidleError for a path that does not exist or cannot be looked at, a directory without such
    files, or a glob that matches nothing.
    """
    files: dict[str, Path] = {}
    named: set[Path] = set()
    for given in paths:
        try:
            found, by_name = _files_at(given)
        except OSError as error:
            reason = error.strerror or str(error)
            raise WhyidleError(f"{given}: cannot be read ({reason}); check the path") from error
        for path in found:
            first = files.setdefault(os.path.realpath(path), path)
            if by_name:
                named.add(first)
    if not files:
        raise WhyidleError(f"{paths[0]}: no trace file there; give a .json or .json.gz")
    return list(files.values()), named


def _files_at(given: str | Path) -> tuple[list[Path], bool]:
    """The trace files at one path, and whether it names the file itself."""
    if not str(given):
        raise WhyidleError("a path is empty; check the variable that it came from")
    path = Path(given)
    if path.is_dir():
        inside = [p for p in path.rglob("*") if p.is_file() and _TRACE_NAME.search(p.name)]
        inside = [p for p in inside if not _ours(p)]
        if not inside:
            raise WhyidleError(f"{path}: no .json or .json.gz trace in this directory")
        return sorted(inside, key=_by_number), False
    if path.exists():
        return [path], True
    if glob.has_magic(str(given)):
        matches = [Path(p) for p in glob.glob(str(given), recursive=True)]
        if not matches:
            raise WhyidleError(f"{given}: no file matches; quote the pattern or check the path")
        return sorted((p for p in matches if p.is_file()), key=_by_number), False
    raise WhyidleError(f"{path}: no such file; check the path")


def _ours(path: Path) -> bool:
    """Whether a file found in a directory is a report or a Perfetto file that whyidle wrote."""
    try:
        with path.open("rb") as file:
            head = file.read(1024)
        if head[:2] == b"\x1f\x8b":
            head = zlib.decompressobj(31).decompress(head, 512)
    except (OSError, zlib.error):
        return False  # reading it will tell what is wrong
    return _OURS.match(head) is not None


def _by_number(path: Path) -> list[tuple[int, int, str]]:
    """rank2 before rank10."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in _NUMBER.split(str(path))
        if part
    ]
