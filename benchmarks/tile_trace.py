"""Make a long trace out of a real one: its events again and again, later each time.

Every copy keeps the text of the original, but its times are moved behind the copy before, and its
correlation ids, flow ids, external ids and ProfilerStep numbers are moved on, so that launches
still find their kernels and the result is a valid trace of a longer run.

    python benchmarks/tile_trace.py trace.json.gz OUT.json.gz 200
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import isal.igzip

MB = 1_000_000
_BORDER = "\n  {"
_PAUSE_US = 100  # between two copies
# Numbers to move: 1 is what stands before, 2 the whole part of the number.
_MOVED = re.compile(
    r'("ts": |"External id": |"correlation": |"Ev Idx": |"id": |"name": "ProfilerStep#)(\d+)'
)


@dataclass(frozen=True)
class Piece:
    """A trace's text in three: before its events, the events to repeat, and what follows."""

    head: str
    events: list[str]
    tail: str
    period_us: int
    ids: int
    steps: int


def take_apart(path: Path) -> Piece:
    """Read a trace in Kineto's own layout. Raises ValueError where it has another."""
    opened = isal.igzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
    with opened as file:
        text = file.read().decode()
    head, begin, rest = text.partition('"traceEvents": [')
    body, end, tail = rest.rpartition("\n  ]")
    if not begin or not end:
        raise ValueError(f"{path}: not in Kineto's layout")
    first, *events = body.split(_BORDER)
    # Names of processes, and the profiler's own span, stand once, behind the copies.
    repeated = [e.rstrip().rstrip(",") for e in events if _is_repeated(e)]
    once = [e.rstrip().rstrip(",") for e in events if not _is_repeated(e)]
    parsed = [json.loads("{" + e) for e in repeated]
    timed = [(float(e["ts"]), float(e.get("dur", 0))) for e in parsed]
    period = max(ts + dur for ts, dur in timed) - min(ts for ts, _ in timed)
    ids = max(
        max(int(e.get("id", 0)), *(int(e.get("args", {}).get(k, 0)) for k in _ID_KEYS))
        for e in parsed
    )
    steps = [int(e["name"][13:]) for e in parsed if str(e["name"]).startswith("ProfilerStep#")]
    return Piece(
        head=head + begin + first,
        events=repeated,
        tail="".join("," + _BORDER + e for e in once) + end + tail,
        period_us=int(period) + _PAUSE_US,
        ids=ids + 1,
        steps=max(steps) - min(steps) + 1 if steps else 0,
    )


_ID_KEYS = ("External id", "correlation", "Ev Idx")


def _is_repeated(event: str) -> bool:
    start = event[:80]
    return '"ph": "M"' not in start and '"cat": "Trace"' not in start and '"s": "g"' not in start


def write(source: Path, out: Path, megabytes: int) -> int:
    """Write a trace of about ``megabytes`` of JSON, gzipped; returns the JSON's bytes."""
    piece = take_apart(source)
    template = _MOVED.split(_BORDER.join(e + "," for e in piece.events)[:-1])
    keys, numbers = template[1::3], [int(n) for n in template[2::3]]
    shift_of = {'"ts": ': piece.period_us, '"name": "ProfilerStep#': piece.steps}
    shifts = [shift_of.get(key, piece.ids) for key in keys]
    parts = [before + key for before, key in zip(template[0:-1:3], keys, strict=True)]
    out.parent.mkdir(parents=True, exist_ok=True)
    written = copy = 0
    squeeze = zlib.compressobj(6, wbits=31)
    with out.open("wb") as file:

        def put(text: str) -> int:
            data = text.encode()
            file.write(squeeze.compress(data))
            return len(data)

        written += put(piece.head)
        while written < megabytes * MB or not copy:
            moved = [
                f"{part}{number + copy * shift}"
                for part, number, shift in zip(parts, numbers, shifts, strict=True)
            ]
            written += put(("," if copy else "") + _BORDER + "".join(moved) + template[-1])
            copy += 1
        written += put(piece.tail)
        file.write(squeeze.flush())
    return written


if __name__ == "__main__":
    size = write(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    print(f"{sys.argv[2]}: {size / MB:.0f} MB of JSON")
