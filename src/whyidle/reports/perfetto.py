"""A copy of the trace with tracks of labelled idle gaps and of steps, for ui.perfetto.dev.

The output is Chrome-trace JSON. The original events are copied as they were written, batch by
batch, so that memory stays bounded; what was cut off or broken in the input is left out, so that
the output is always whole. Times are in the input's own unit and base.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from whyidle.ledger.accounts import ACCOUNTS, FIRST_IDLE
from whyidle.ledger.model import Ledger
from whyidle.readers.trace_json import TraceText, raw_batches
from whyidle.reports.model import Picture
from whyidle.reports.words import duration
from whyidle.timeline.columns import Timeline

_FIRST_PID = 1_000_000_000  # above every process id that an operating system gives
# Kineto sorts host processes by their pid (at most 4,194,304 on Linux) and GPUs from 5,000,000
# (0x1000000 since 2023): our tracks come between, right above the GPUs.
_SORT_INDEX = 4_999_000
_NS_EPOCH = 10**17  # as in the reader: a "ts" above this is in ns, in us it is the year 5138
_HOST_NAMES = 3  # names of what the host did that one gap shows
# What Perfetto and other readers of traces use. The rest may hold the recording machine's
# environment, with tokens in it, and a file made for looking at gets passed on.
_KEPT_METADATA = (
    "schemaVersion",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "deviceProperties",
    "distributedInfo",
    "traceName",
    "record_shapes",
    "with_stack",
    "profile_memory",
)
_LINES_AT_ONCE = 10_000


def write_perfetto(
    picture: Picture,
    path: str | Path,
    source: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the trace of ``picture`` with our tracks to ``path``, gzipped if it ends in ".gz".

    ``source`` is the trace file to copy, by default the one that the picture was read from.
    ``progress`` is called with (bytes read, bytes in all) of it. Raises WhyidleError where the
    source can no longer be read, OSError where ``path`` cannot be written.
    """
    source = Path(source if source is not None else picture.timeline.source.path)
    text = TraceText()
    batches = raw_batches(source, text, progress)
    first = next(batches, [])  # nothing is written before the source has proven readable
    unit = _unit(first, picture.timeline.resolution_ns)
    with _output(Path(path)) as out:
        # Marked as ours, so that a folder searched for traces does not count this rank twice.
        out.write(b'{"whyidle":"perfetto",\n"traceEvents":[\n')
        written = 0
        for lines in _all_lines(first, batches, picture, unit):
            if lines:
                out.write((b",\n" if written else b"") + b",\n".join(lines))
                written += len(lines)
        out.write(b"\n]")
        for key, value in text.metadata.items():
            if key in _KEPT_METADATA:
                out.write(f",\n{json.dumps(key)}:{json.dumps(value, allow_nan=False)}".encode())
        out.write(b"}\n")


def _all_lines(
    first: list[bytes], batches: Iterator[list[bytes]], picture: Picture, unit: int
) -> Iterator[list[bytes]]:
    yield first
    yield from batches
    lines: list[bytes] = []
    for event in track_events(picture, unit):
        lines.append(event.encode())
        if len(lines) >= _LINES_AT_ONCE:
            yield lines
            lines = []
    yield lines


@contextmanager
def _output(path: Path) -> Iterator[BinaryIO]:
    with path.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        with _gzip_writer(file) as packed:
            yield packed


def _gzip_writer(file: BinaryIO) -> BinaryIO:
    """A gzip stream that holds neither time nor file name: equal input gives equal bytes."""
    try:
        from isal.igzip import IGzipFile
    except ImportError:  # no wheel for this machine
        return cast(BinaryIO, gzip.GzipFile("", "wb", 6, file, mtime=0))
    return cast(BinaryIO, IGzipFile("", "wb", 2, file, mtime=0))  # type: ignore[no-untyped-call]


def _unit(events: list[bytes], resolution_ns: int) -> int:
    """Decimals of the times to write: -3 where the input counts ns, 0 whole us, 3 us."""
    for event in events[:1000]:
        found = json.loads(event)
        ts = found.get("ts") if isinstance(found, dict) and found.get("ph") == "X" else None
        try:
            if ts is not None and float(ts) > _NS_EPOCH:
                return -3
        except (TypeError, ValueError):
            continue
    return 0 if resolution_ns % 1000 == 0 else 3


def _time(ns: int, unit: int) -> str:
    """``ns`` as the literal of a JSON number in the input's unit, without rounding."""
    if unit == -3:
        return str(ns)
    sign, ns = "-" if ns < 0 else "", abs(ns)
    if unit == 0 and ns % 1000 == 0:
        return f"{sign}{ns // 1000}"
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def track_events(picture: Picture, unit: int = 3) -> Iterator[str]:
    """Our events, each as JSON text: for every device a process with a track of steps and one of
    idle gaps. The gaps' ``dur`` sum to the ledger's idle time exactly."""
    timeline = picture.timeline
    taken = {thread.pid for thread in timeline.threads}
    base = _FIRST_PID
    while any(pid.startswith(str(base)[:-3]) for pid in taken):
        base += 1000
    for i, ledger in enumerate(picture.ledgers):
        pid = base + 10 * i
        yield from _metadata(timeline, ledger, pid, i)
        yield from _steps(ledger, pid, unit)
        yield from _gaps(timeline, ledger, pid, unit)


def _metadata(timeline: Timeline, ledger: Ledger, pid: int, order: int) -> Iterator[str]:
    properties = timeline.properties(ledger.device)
    name = f"whyidle: GPU {ledger.device}" + (f" ({properties.name})" if properties else "")
    steps = "steps" if ledger.steps.source != "span" else "window (no steps found)"
    rows: list[tuple[str, int, dict[str, Any]]] = [
        ("process_name", pid, {"name": name}),
        ("process_labels", pid, {"labels": "idle gaps by account"}),
        ("process_sort_index", pid, {"sort_index": _SORT_INDEX + order}),
        ("thread_name", pid + 1, {"name": steps}),
        ("thread_sort_index", pid + 1, {"sort_index": 1}),
        ("thread_name", pid + 2, {"name": "idle gaps"}),
        ("thread_sort_index", pid + 2, {"sort_index": 2}),
    ]
    for kind, tid, args in rows:
        yield json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args})


def _slice(
    name: str, pid: int, tid: int, start: int, end: int, unit: int, args: dict[str, Any]
) -> str:
    return (
        f'{{"ph":"X","cat":"whyidle","name":{json.dumps(name)},"pid":{pid},"tid":{tid},'
        f'"ts":{_time(start, unit)},"dur":{_time(end - start, unit)},"args":{json.dumps(args)}}}'
    )


def _steps(ledger: Ledger, pid: int, unit: int) -> Iterator[str]:
    edges = ledger.step_edges()
    table = ledger.by_step()
    for i in range(len(ledger.steps)):
        start, end = int(edges[i]), int(edges[i + 1])
        if end <= start:
            continue
        idle = {
            ACCOUNTS[a].name: int(table[i, a])
            for a in range(FIRST_IDLE, len(ACCOUNTS))
            if table[i, a]
        }
        args = {"ns": end - start, "busy ns": int(table[i, :FIRST_IDLE].sum()), "idle ns": idle}
        name = f"step {i}" if ledger.steps.source != "span" else "window"
        yield _slice(name, pid, pid + 1, start, end, unit, args)


def _gaps(timeline: Timeline, ledger: Ledger, pid: int, unit: int) -> Iterator[str]:
    """One slice for each stretch of a gap that is in one account."""
    seg = ledger.segments
    idle = np.flatnonzero(seg.idle)
    if not len(idle):
        return
    before, after = idle[:-1], idle[1:]
    same = (
        (seg.account[before] == seg.account[after])
        & (seg.gap[before] == seg.gap[after])
        & (seg.end[before] == seg.start[after])
    )
    first = np.append(0, np.flatnonzero(~same) + 1)
    last = np.append(first[1:], len(idle))
    for low, high in zip(first.tolist(), last.tolist(), strict=True):
        members = idle[low:high]
        start, end = int(seg.start[members[0]]), int(seg.end[members[-1]])
        args = _gap_args(timeline, ledger, members.tolist(), end - start)
        name = ACCOUNTS[int(seg.account[members[0]])].name
        yield _slice(name, pid, pid + 2, start, end, unit, args)


def _gap_args(timeline: Timeline, ledger: Ledger, members: list[int], ns: int) -> dict[str, Any]:
    seg, host, names = ledger.segments, timeline.host, timeline.names
    did: dict[str, int] = {}
    for i in members:
        event = int(seg.host[i])
        name = names[int(host.name[event])] if event >= 0 else "nothing recorded"
        did[name] = did.get(name, 0) + int(seg.end[i] - seg.start[i])
    longest = sorted(did.items(), key=lambda item: -item[1])
    shown = [f"{name} ({duration(n)})" for name, n in longest[:_HOST_NAMES]]
    if len(longest) > _HOST_NAMES:
        shown.append(f"{len(longest) - _HOST_NAMES} more")
    args: dict[str, Any] = {"ns": ns, "host did": ", ".join(shown)}
    activity, launch = int(seg.activity[members[0]]), int(seg.launch[members[0]])
    if activity >= 0:
        args["ended by"] = names[int(timeline.device.name[activity])]
    if launch >= 0:
        args["launched by"] = names[int(host.name[launch])]
    if bool(seg.after_sync[members].any()):
        args["after a synchronize"] = True
    return args
