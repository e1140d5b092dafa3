"""The parse floor: the least that reading a trace can cost on the route that whyidle takes.

Decompress (isal), cut at event borders, decode with msgspec into typed structs, and lay the fields
that any diagnosis needs into numpy columns. Nothing else: no repair of broken text, no nesting, no
sorting, no ledger. What whyidle takes above this is its own work.

    python benchmarks/parse_floor.py trace.json.gz
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

_PIECE = 1 << 20  # what fits into the processor's cache together with its events
_BORDER = b"\n  {"  # how Kineto begins every event


class Args(msgspec.Struct, frozen=True, gc=False):
    """The arguments that tie host calls to device work."""

    correlation: int = -1
    device: int = -1
    stream: int = -1


class Event(msgspec.Struct, gc=False):
    """One event of the trace; the fields that become columns."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: int | str = 0
    tid: int | str = 0
    ts: int | float = 0
    dur: int | float = 0
    args: Args = Args()


# Loops over events run inside the interpreter: what Python allows at its fastest.
_TS, _DUR, _NAME, _CAT = map(attrgetter, ("ts", "dur", "name", "cat"))
_THREAD, _ARGS = attrgetter("pid", "tid"), attrgetter("args")
_CORRELATION, _DEVICE, _STREAM = map(attrgetter, ("correlation", "device", "stream"))


class _Numbers(dict[Any, int]):
    """Numbers for names, in order of appearance."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


def _decompressed(path: Path) -> Iterator[bytes]:
    """The file's content in pieces of about ``_PIECE`` bytes. A thread for it would cost more in
    changing hands than it saves: decompression is a tenth of the work."""
    with path.open("rb") as file:
        if path.suffix != ".gz":
            while data := file.read(_PIECE):
                yield data
            return
        engine = isal_zlib.decompressobj(wbits=31)
        while data := file.read(_PIECE):
            while data:
                yield engine.decompress(data, _PIECE)
                data = engine.unconsumed_tail


def read(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a trace in Kineto's own layout into columns of shape (events with a duration,)."""
    pieces = _decompressed(path)
    decode = msgspec.json.Decoder(list[Event]).decode
    number = _Numbers().__getitem__
    batches: list[tuple[npt.NDArray[Any], ...]] = []
    buffer = next(pieces)
    buffer = buffer[buffer.index(b'"traceEvents"') :]
    buffer = buffer[buffer.index(b"[") + 1 :]
    ended = False
    while not ended:
        piece = next(pieces, None)
        if piece is not None:
            buffer += piece
            cut = buffer.rindex(_BORDER)
            text, buffer = buffer[:cut].rstrip().rstrip(b","), buffer[cut:]
        else:
            text, ended = buffer[: buffer.rindex(b"\n  ]")], True
        events = [e for e in decode(b"".join((b"[", text, b"]"))) if e.ph == "X"]
        args = list(map(_ARGS, events))
        batches.append(
            (
                np.array(list(map(_TS, events))),
                np.array(list(map(_DUR, events))),
                np.array(list(map(number, map(_NAME, events))), np.int32),
                np.array(list(map(number, map(_CAT, events))), np.int32),
                np.array(list(map(number, map(_THREAD, events))), np.int32),
                np.array(list(map(_CORRELATION, args)), np.int64),
                np.array(list(map(_DEVICE, args)), np.int32),
                np.array(list(map(_STREAM, args)), np.int64),
            )
        )
    names = ("ts", "dur", "name", "cat", "thread", "correlation", "device", "stream")
    return {name: np.concatenate([batch[i] for batch in batches]) for i, name in enumerate(names)}


if __name__ == "__main__":
    gc.disable()  # what is decoded holds no cycles
    columns = read(Path(sys.argv[1]))
    print(f"{len(columns['ts'])} events with a duration")
