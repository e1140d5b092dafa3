"""Bytes of a plain or gzipped file, decompressed beside the parser; damage is told, not fatal."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from whyidle.errors import WhyidleError

try:
    from isal.isal_zlib import decompressobj
except ImportError:  # no wheel for this machine: the standard library reads the same, slower
    from zlib import decompressobj  # type: ignore[assignment]

CHUNK = 2 << 20  # decompressed bytes handed on at a time
_READ = 1 << 18  # compressed bytes read at a time
_AHEAD = 8  # chunks decompressed ahead of the parser: bounds memory
Progress = Callable[[int, int], None]


@dataclass
class Damage:
    """Set by ``chunks`` when the file ends early or its compression is broken."""

    what: str = ""


def chunks(path: Path, damage: Damage, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the decompressed content in pieces of about ``CHUNK`` bytes.

    Raises WhyidleError when the file cannot be opened or read. A gzip stream that ends early or
    is corrupt ends the iteration after the bytes that could be recovered, and ``damage`` says so.
    """
    pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
    stop = threading.Event()

    def hand_on(piece: bytes | BaseException | None) -> None:
        while not stop.is_set():
            try:
                pieces.put(piece, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for piece in _decompressed(path, damage, progress):
                hand_on(piece)
                if stop.is_set():
                    return
            hand_on(None)
        except BaseException as error:
            hand_on(error)

    worker = threading.Thread(target=work, name="whyidle-decompress", daemon=True)
    worker.start()
    try:
        while (piece := pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        stop.set()


def _decompressed(path: Path, damage: Damage, progress: Progress | None) -> Iterator[bytes]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(2)  # kept, for a pipe cannot be read again
            if first == b"\x1f\x8b":
                yield from _gunzip(first, file, size, damage, progress)
                return
            done = 0
            while piece := first + file.read(CHUNK):
                first = b""
                done += len(piece)
                if progress:
                    progress(done, size)
                yield piece
    except OSError as error:
        reason = error.strerror or str(error)
        raise WhyidleError(f"{path}: cannot be read ({reason}); check the path") from error


def _gunzip(
    first: bytes, file: IO[bytes], size: int, damage: Damage, progress: Progress | None
) -> Iterator[bytes]:
    """Decompress ``first`` and what is left in ``file``."""
    engine = decompressobj(wbits=31)
    done = len(first)
    kept: list[bytes] = []
    held = 0
    data = first
    while True:
        if not data:
            data = file.read(_READ)
            done += len(data)
            if not data:
                break
            if progress:
                progress(done, size)
        if engine.eof:  # another gzip member follows, or padding
            if not data.strip(b"\0"):
                break
            engine = decompressobj(wbits=31)
        try:
            piece = engine.decompress(data, CHUNK)
        except MemoryError:
            raise  # no damage of the file
        except Exception as error:  # isal and zlib raise their own error classes
            damage.what = f"its compression is broken ({error})"
            break
        data = engine.unused_data if engine.eof else engine.unconsumed_tail
        kept.append(piece)
        held += len(piece)
        if held >= CHUNK:
            yield b"".join(kept)
            kept, held = [], 0
    if not damage.what and not engine.eof:
        damage.what = "its compressed data end early"
    if kept:
        yield b"".join(kept)
