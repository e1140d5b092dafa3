"""A trace as plain rows for the oracle: read with the standard library, or taken from a Timeline.

Nothing here uses whyidle's readers. Times are exact (Decimal), rows are Python objects, and every
search is a loop.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from whyidle.timeline.columns import DeviceKind, HostKind, Timeline

HOST_KINDS = {
    "cpu_op": HostKind.OPERATOR,
    "operator": HostKind.OPERATOR,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
    "runtime": HostKind.RUNTIME,
    "overhead": HostKind.OVERHEAD,
    "python_gc": HostKind.GC,
}
DEVICE_KINDS = {
    "kernel": DeviceKind.KERNEL,
    "memcpy": DeviceKind.MEMCPY,
    "gpu_memcpy": DeviceKind.MEMCPY,
    "memset": DeviceKind.MEMSET,
    "gpu_memset": DeviceKind.MEMSET,
}
OLD_ANNOTATION = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.\w+#")


@dataclass
class Call:
    """A host row."""

    start: int
    end: int
    name: str
    kind: int
    thread: int
    correlation: int

    def __post_init__(self) -> None:
        self.stop = self.end  # where nesting lets it end
        self.parent: Call | None = None
        self.label: tuple[str, int] = ("", 0)
        self.waits = False
        self.number = -1


@dataclass
class Work:
    """A device row."""

    start: int
    end: int
    name: str
    kind: int
    device: int
    correlation: int

    def __post_init__(self) -> None:
        self.launch: Call | None = None
        self.number = -1


@dataclass
class Trace:
    """Rows in the order of the product's columns, so that rows can be compared by number."""

    calls: list[Call]
    works: list[Work]
    main: int
    name_order: dict[str, int]  # breaks ties between names that are seen equally often

    def __post_init__(self) -> None:
        callers: dict[int, Call] = {}
        for i, call in enumerate(self.calls):
            call.number = i
            if call.kind == HostKind.RUNTIME and call.correlation > 0:
                callers.setdefault(call.correlation, call)
        for i, work in enumerate(self.works):
            work.number = i
            work.launch = callers.get(work.correlation)


def from_timeline(timeline: Timeline) -> Trace:
    """The rows of a timeline, with its launches looked up anew."""
    names, host, device = timeline.names, timeline.host, timeline.device
    calls = [
        Call(*map(int, row[:2]), names[row[2]], *map(int, row[3:]))
        for row in zip(
            host.start, host.end, host.name, host.kind, host.thread, host.correlation, strict=True
        )
    ]
    works = [
        Work(*map(int, row[:2]), names[row[2]], *map(int, row[3:]))
        for row in zip(
            device.start,
            device.end,
            device.name,
            device.kind,
            device.device,
            device.correlation,
            strict=True,
        )
    ]
    return Trace(calls, works, timeline.main_thread, {n: i for i, n in enumerate(names)})


def from_kineto(path: Path) -> Trace:
    """The rows of a sound Kineto file."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    events = json.loads(text, parse_float=Decimal, strict=False)["traceEvents"]
    calls, works = [], []
    ids = {(str(e.get("pid")), str(e.get("tid"))) for e in events if _host_kind(e) is not None}
    threads = {key: i for i, key in enumerate(sorted(ids))}
    for e in events:
        if e.get("ph") != "X" or e.get("ts") is None:
            continue
        start, length = _ns(e["ts"]), max(_ns(e.get("dur") or 0), 0)
        name = "(unnamed)" if e.get("name") is None else str(e["name"])
        args = e.get("args") or {}
        correlation = _whole(args.get("correlation"))
        if (kind := _host_kind(e)) is not None:
            if kind == HostKind.OPERATOR and OLD_ANNOTATION.match(name):
                kind = HostKind.ANNOTATION
            thread = threads[str(e.get("pid")), str(e.get("tid"))]
            calls.append(Call(start, start + length, name, kind, thread, correlation))
        elif (category := str(e.get("cat")).lower()) in DEVICE_KINDS:
            device = _whole(args.get("device", e.get("pid")))
            kind = DEVICE_KINDS[category]
            works.append(Work(start, start + length, name, kind, device, correlation))
    calls.sort(key=lambda c: (c.thread, c.start, -c.end, c.kind))
    works.sort(key=lambda w: (w.device, w.start, w.end))
    order = {name: i for i, name in enumerate(sorted({row.name for row in (*calls, *works)}))}
    return Trace(calls, works, _main_thread(calls, threads), order)


def _host_kind(e: dict[str, Any]) -> int | None:
    if e.get("ph") != "X":
        return None
    category = str(e.get("cat")).lower()
    if category.endswith(("_runtime", "_driver")):
        return HostKind.RUNTIME
    return HOST_KINDS.get(category)


def _ns(us: Any) -> int:
    return int((Decimal(str(us)) * 1000).to_integral_value())


def _whole(value: Any) -> int:
    if value is None:
        return -1
    return int(value, 0) if isinstance(value, str) else int(value)


def _main_thread(calls: list[Call], threads: dict[tuple[str, str], int]) -> int:
    """Most step annotations; else most work outside autograd's nodes, the first thread on a tie."""
    worked: Counter[int] = Counter()
    steps: Counter[int] = Counter()
    engines = set()
    for call in calls:
        worked[call.thread] += call.kind in (HostKind.OPERATOR, HostKind.RUNTIME)
        steps[call.thread] += call.kind == HostKind.ANNOTATION and call.name.startswith(
            "ProfilerStep#"
        )
        if call.name.startswith("autograd::engine"):
            engines.add(call.thread)
    stepping = [t for t in sorted(threads.values()) if steps[t] and worked[t]]
    if stepping:
        return max(stepping, key=lambda t: steps[t])
    score = {}
    for (pid, tid), t in threads.items():
        score[t] = min(worked[t], 0.25) if t in engines else worked[t]
        score[t] += 0.5 if pid == tid else 0
    return max(sorted(score), key=lambda t: score[t]) if score else -1
