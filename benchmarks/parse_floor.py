"""The parse floor: the least that reading a trace can cost on the route that whyidle takes.

Decompress (isal, in a thread of its own), cut at event borders, decode with msgspec into typed
structs, and lay the fields that any diagnosis needs into numpy columns. Nothing else: no repair of
broken text, no nesting, no sorting, no ledger. What whyidle takes above this is its own work.

    python benchmarks/parse_floor.py trace.json.gz
"""

from __future__ import annotations

import gc
import queue
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from isal import igzip

_CHUNK = 4 << 20
_BORDER = b"\n  {"  # how Kineto begins every event


class Args(msgspec.Struct, gc=False):
    """The arguments that tie host calls to device work."""

    correlation: int | None = None
    device: int | None = None
    stream: int | None = None


class Event(msgspec.Struct, gc=False):
    """One event of the trace; the fields that become columns."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: int | str = 0
    tid: int | str = 0
    ts: int | float = 0
    dur: int | float = 0
    args: Args | None = None


def _decompress(path: Path, pieces: queue.Queue[bytes]) -> None:
    opened = igzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
    with opened as file:
        while piece := file.read(_CHUNK):
            pieces.put(piece)
    pieces.put(b"")


def read(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read a trace in Kineto's own layout into columns of shape (events with a duration,)."""
    pieces: queue.Queue[bytes] = queue.Queue(3)
    threading.Thread(target=_decompress, args=(path, pieces), daemon=True).start()
    decode = msgspec.json.Decoder(list[Event]).decode
    interned: dict[Any, int] = {}
    number = interned.setdefault
    batches: list[tuple[npt.NDArray[Any], ...]] = []
    buffer = pieces.get()
    buffer = buffer[buffer.index(b'"traceEvents"') :]
    buffer = buffer[buffer.index(b"[") + 1 :]
    ended = False
    while not ended:
        piece = pieces.get()
        if piece:
            buffer += piece
            cut = buffer.rindex(_BORDER)
            text, buffer = buffer[:cut].rstrip().rstrip(b","), buffer[cut:]
        else:
            text, ended = buffer[: buffer.rindex(b"\n  ]")], True
        events = [e for e in decode(b"[" + text + b"]") if e.ph == "X"]
        nothing = Args()
        arguments = [e.args or nothing for e in events]
        batches.append(
            (
                np.array([e.ts for e in events]),
                np.array([e.dur for e in events]),
                np.array([number(e.name, len(interned)) for e in events], np.int32),
                np.array([number(e.cat, len(interned)) for e in events], np.int32),
                np.array([number((e.pid, e.tid), len(interned)) for e in events], np.int32),
                np.array([-1 if a.correlation is None else a.correlation for a in arguments]),
                np.array([-1 if a.device is None else a.device for a in arguments], np.int32),
                np.array([-1 if a.stream is None else a.stream for a in arguments], np.int64),
            )
        )
    names = ("ts", "dur", "name", "cat", "thread", "correlation", "device", "stream")
    return {name: np.concatenate([batch[i] for batch in batches]) for i, name in enumerate(names)}


if __name__ == "__main__":
    gc.disable()  # what is decoded holds no cycles
    columns = read(Path(sys.argv[1]))
    print(f"{len(columns['ts'])} events with a duration")
