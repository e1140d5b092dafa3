"""Reader of PyTorch profiler (Kineto) traces: .json and .json.gz -> Timeline.

Reads what Kineto has written since 2021 for CUDA, HIP and XPU, in either naming ("kernel" or
"Kernel", "cuda_runtime" or "Runtime"). Other accelerators' rows are counted and told.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from whyidle.errors import WhyidleError
from whyidle.readers.clock import microseconds_to_ns
from whyidle.readers.trace_json import Args, Event, TraceText, batches
from whyidle.timeline.columns import (
    I64,
    DeviceEvents,
    DeviceKind,
    DeviceProperties,
    HostEvents,
    HostKind,
    Source,
    Thread,
    Timeline,
)

_DEVICE = 16  # categories below are host kinds, from here on device kinds
_CATEGORIES: dict[Any, int] = {
    "cpu_op": HostKind.OPERATOR,
    "operator": HostKind.OPERATOR,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
    "runtime": HostKind.RUNTIME,
    "overhead": HostKind.OVERHEAD,
    "python_gc": HostKind.GC,
    "kernel": _DEVICE + DeviceKind.KERNEL,
    "memcpy": _DEVICE + DeviceKind.MEMCPY,
    "gpu_memcpy": _DEVICE + DeviceKind.MEMCPY,
    "memset": _DEVICE + DeviceKind.MEMSET,
    "gpu_memset": _DEVICE + DeviceKind.MEMSET,
}
# Rows that are neither host work nor device activity (the ledger definition, "Device time").
_IGNORED = {"trace", "gpu_user_annotation", "cuda_sync", "ac2g", "fwdbwd", "async", "none"}
_ANNOTATION_NAMES = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.\w+#")
_ELEMENT_BYTES = {
    "byte": 1,
    "char": 1,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "half": 2,
    "bfloat16": 2,
    "float16": 2,
    "short": 2,
    "int": 4,
    "int32": 4,
    "float": 4,
    "float32": 4,
    "long": 8,
    "int64": 8,
    "double": 8,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


# Loops over events run inside the interpreter where they can: these fetch a field from each.
_TS, _DUR, _NAME, _CAT = map(attrgetter, ("ts", "dur", "name", "cat"))
_THREAD, _ARGS = attrgetter("pid", "tid"), attrgetter("args")
_CORRELATION, _GRID, _STACK = map(attrgetter, ("correlation", "grid", "call_stack"))
_NO_ARGS = Args()
_PASSED_OVER = ("X", "f", "s", "t")  # spans are read, arrows are not needed


class _Interner(dict[Any, int]):
    """Numbers for names, in order of appearance."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


class _Category(dict[Any, int]):
    """Category text -> kind; -1 for what is no host work and no device activity."""

    def __missing__(self, key: Any) -> int:
        text = str(key).lower()
        kind = _CATEGORIES.get(text, -1)
        if kind < 0 and text.endswith(("_runtime", "_driver")):
            kind = int(HostKind.RUNTIME)
        self[key] = kind
        return kind


@dataclass
class _Columns:
    """Columns under construction: lists of arrays, one a batch."""

    host: list[tuple[Any, ...]] = field(default_factory=list)
    device: list[tuple[Any, ...]] = field(default_factory=list)
    names: _Interner = field(default_factory=_Interner)
    stacks: _Interner = field(default_factory=_Interner)
    threads: _Interner = field(default_factory=_Interner)
    streams: _Interner = field(default_factory=_Interner)
    category: _Category = field(default_factory=_Category)
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    reserved: dict[int, int] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)
    whole_us: bool = True
    begin_end: int = 0
    untimed: int = 0
    bad_values: int = 0


def read_kineto(path: Path, progress: Callable[[int, int], None] | None = None) -> Timeline:
    """Read one trace file.

    ``progress`` is called with (bytes read, bytes in all) of the file. Raises WhyidleError when
    nothing can be read from it; damage that could be survived is told in ``Timeline.warnings``.
    """
    text = TraceText()
    columns = _Columns()
    collecting = gc.isenabled()
    gc.disable()  # millions of short-lived acyclic objects: the collector only costs time here
    try:
        for events in batches(path, text, progress):
            _add(columns, events)
    finally:
        if collecting:
            gc.enable()
    return _timeline(path, text, columns)


def _add(columns: _Columns, events: list[Event]) -> None:
    spans = [e for e in events if e.ph == "X"]
    if len(spans) < len(events):
        _add_others(columns, events)
    try:
        host, device = _split(columns, spans)
    except TypeError:  # a list or an object where a name or an id belongs
        for e in spans:
            e.cat, e.name, e.pid, e.tid = map(_hashable, (e.cat, e.name, e.pid, e.tid))
            if e.args is not None:
                e.args.stream = _hashable(e.args.stream)
                e.args.call_stack = _hashable(e.args.call_stack)
        host, device = _split(columns, spans)
    columns.host += host
    columns.device += device


def _hashable(value: Any) -> Any:
    return str(value) if isinstance(value, list | dict) else value


def _split(
    columns: _Columns, spans: list[Event]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The host and the device columns of a batch."""
    kinds = np.array(list(map(columns.category.__getitem__, map(_CAT, spans))), np.int16)
    for i in np.flatnonzero(kinds < 0):
        columns.unknown[str(spans[i].cat)] += 1
    times = list(map(_TS, spans))
    if None in times:
        untimed = np.array([ts is None for ts in times], np.bool_)
        columns.untimed += int(untimed.sum())
        kinds[untimed] = -1
    on_host = (kinds >= 0) & (kinds < _DEVICE)
    on_device = kinds >= _DEVICE
    host = list(compress(spans, on_host.tolist()))
    device = list(compress(spans, on_device.tolist()))
    return (
        [_host_columns(columns, host, kinds[on_host])] if host else [],
        [_device_columns(columns, device, kinds[on_device] - _DEVICE)] if device else [],
    )


def _host_columns(columns: _Columns, events: list[Event], kinds: Any) -> tuple[Any, ...]:
    stacks = columns.stacks
    start, end = _times(columns, events)
    args = [_NO_ARGS if a is None else a for a in map(_ARGS, events)]
    stack = [stacks[text] if text else -1 for text in map(_STACK, args)]
    return (
        start,
        end,
        np.array(list(map(columns.names.__getitem__, map(_NAME, events))), np.int32),
        kinds.astype(np.uint8),
        np.array(list(map(columns.threads.__getitem__, map(_THREAD, events))), np.int32),
        _integers(columns, list(map(_CORRELATION, args))),
        np.array(stack, np.int32),
    )


def _device_columns(columns: _Columns, events: list[Event], kinds: Any) -> tuple[Any, ...]:
    start, end = _times(columns, events)
    args = [_NO_ARGS if a is None else a for a in map(_ARGS, events)]
    device = [e.pid if a.device is None else a.device for e, a in zip(events, args, strict=True)]
    stream = [e.tid if a.stream is None else a.stream for e, a in zip(events, args, strict=True)]
    return (
        start,
        end,
        np.array(list(map(columns.names.__getitem__, map(_NAME, events))), np.int32),
        kinds.astype(np.uint8),
        _integers(columns, device),
        np.array(list(map(columns.streams.__getitem__, stream)), np.int64),
        _integers(columns, list(map(_CORRELATION, args))),
        _integers(columns, list(map(_bytes, args))),
        _integers(columns, list(map(_blocks, map(_GRID, args)))),
    )


def _bytes(args: Args) -> Any:
    if args.bytes is not None:
        return args.bytes
    if args.in_nelems is not None:
        size = _ELEMENT_BYTES.get(str(args.dtype).lower().removeprefix("c10::"), 0)
        return args.in_nelems * size if size and isinstance(args.in_nelems, int) else -1
    return args.size


def _blocks(grid: Any) -> Any:
    try:
        x, y, z = grid
        return x * y * z
    except (TypeError, ValueError):
        return None


def _add_others(columns: _Columns, events: list[Event]) -> None:
    """Thread names, memory counters, and a count of what is not read."""
    for e in [e for e in events if e.ph not in _PASSED_OVER]:
        ph = e.ph
        if ph == "M" and e.name == "thread_name" and e.args is not None:
            columns.labels[(str(e.pid), str(e.tid))] = str(e.args.name or "")
        elif ph == "i" and e.name == "[memory]" and e.args is not None:
            total, index = e.args.total_reserved, e.args.device_id
            if isinstance(total, int) and isinstance(index, int) and index >= 0:
                columns.reserved[index] = max(columns.reserved.get(index, 0), total)
        elif ph in ("B", "E"):
            columns.begin_end += 1


def _times(columns: _Columns, events: list[Event]) -> tuple[I64, I64]:
    """Start and end in ns, exact to the clock that wrote them."""
    start = microseconds_to_ns(list(map(_TS, events)))
    lengths: list[Any] = list(map(_DUR, events))
    if untimed := lengths.count(None):
        columns.untimed += untimed
        lengths = [0 if dur is None else dur for dur in lengths]
    dur = microseconds_to_ns(lengths)
    columns.bad_values += start.bad + dur.bad
    length = dur.ns // 1000 if start.given_as_ns else dur.ns
    columns.whole_us &= not (start.ns % 1000).any() and not (length % 1000).any()
    return start.ns, start.ns + np.maximum(length, 0)


def _integers(columns: _Columns, values: list[Any]) -> I64:
    """Whole numbers, also as text or hex text; None and, counted, what is no number become -1."""
    if None in values:
        values = [-1 if value is None else value for value in values]
    try:
        return np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(columns, v) for v in values], np.int64)


def _integer(columns: _Columns, value: Any) -> int:
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
        if -(2**63) <= number < 2**63:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    columns.bad_values += 1
    return -1


def _concatenate(parts: list[tuple[Any, ...]], types: Iterable[Any]) -> list[Any]:
    if not parts:
        return [np.empty(0, t) for t in types]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    parts.clear()
    return columns


def _timeline(path: Path, text: TraceText, columns: _Columns) -> Timeline:
    names = [
        "(unnamed)" if n is None else n if isinstance(n, str) else str(n) for n in columns.names
    ]
    threads, merged = _threads(columns)
    host = _host(columns, names, merged)
    main = _main_thread(host, names, threads)
    device = _device(columns, host)
    metadata = text.metadata
    distributed = metadata.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    properties = _properties(metadata.get("deviceProperties"))
    used = [p.name for p in properties if p.index in set(device.device.tolist())]
    warnings = _warnings(path, text, columns, len(host) + len(device))
    if not len(host) and not len(device) and not text.metadata and not columns.unknown:
        raise WhyidleError(f"{path}: {_nothing(text)}; record it again with torch.profiler")
    return Timeline(
        source=Source(
            str(path),
            "kineto",
            _count(distributed.get("rank")),
            _count(distributed.get("world_size")),
            used[0] if used else None,
        ),
        names=names,
        stacks=[str(s) for s in columns.stacks],
        threads=threads,
        main_thread=main,
        host=host,
        device=device,
        devices=properties,
        resolution_ns=1000 if columns.whole_us and len(host) + len(device) else 1,
        has_operators=bool((host.kind == HostKind.OPERATOR).any()),
        has_python=bool((host.kind == HostKind.PYTHON).any()),
        peak_reserved_bytes=columns.reserved,
        warnings=warnings,
    )


def _nothing(text: TraceText) -> str:
    if text.lost:
        return f"none of its {text.lost} pieces of events could be decoded"
    return "it holds no event"


def _threads(columns: _Columns) -> tuple[list[Thread], Any]:
    """Threads, with (25738, "25738") and ("25738", "25738") made one."""
    unique = _Interner()
    merged = np.array([unique[(str(p), str(t))] for p, t in columns.threads], np.int32)
    return [Thread(p, t, columns.labels.get((p, t), "")) for p, t in unique], merged


def _host(columns: _Columns, names: list[str], merged: Any) -> HostEvents:
    types = (np.int64, np.int64, np.int32, np.uint8, np.int32, np.int64, np.int32)
    start, end, name, kind, thread, correlation, stack = _concatenate(columns.host, types)
    if len(start):
        thread = merged[thread]
        # Old profilers wrote annotations as operators.
        annotation = np.array([bool(_ANNOTATION_NAMES.match(n)) for n in names])
        kind = np.where(
            annotation[name] & (kind == HostKind.OPERATOR), np.uint8(HostKind.ANNOTATION), kind
        )
        order = np.lexsort((kind, -end, start, thread))
        start, end, name, kind, thread, correlation, stack = (
            column[order] for column in (start, end, name, kind, thread, correlation, stack)
        )
    return HostEvents(start, end, name, kind, thread, correlation, stack)


def _device(columns: _Columns, host: HostEvents) -> DeviceEvents:
    types = (np.int64, np.int64, np.int32, np.uint8, *([np.int64] * 5))
    parts = _concatenate(columns.device, types)
    start, end, name, kind, device, stream, correlation, size, blocks = parts
    if len(start):
        labels = [_stream_label(s, i) for i, s in enumerate(columns.streams)]
        stream = np.array(labels, np.int64)[stream]
    order = np.lexsort((end, start, device))
    return DeviceEvents(
        start[order],
        end[order],
        name[order],
        kind[order],
        device[order].astype(np.int32),
        stream[order],
        correlation[order],
        size[order],
        blocks[order],
        _launches(host, correlation[order]),
    )


def _stream_label(stream: Any, number: int) -> int:
    """A stream's own number; streams named by pointers or words get one above 2^31."""
    try:
        label = int(str(stream).removeprefix("stream "), 0)
        return label if -(2**31) <= label < 2**31 else 2**31 + number
    except ValueError:
        return 2**31 + number


def _launches(host: HostEvents, correlation: I64) -> Any:
    """For each device event the runtime call with its correlation id (the first, if several)."""
    calls = np.flatnonzero((host.kind == HostKind.RUNTIME) & (host.correlation > 0))
    if not len(calls):
        return np.full(len(correlation), -1, np.int32)
    order = np.argsort(host.correlation[calls], kind="stable")
    calls = calls[order]
    sorted_ids = host.correlation[calls]
    at = np.minimum(np.searchsorted(sorted_ids, correlation), len(calls) - 1)
    found = (sorted_ids[at] == correlation) & (correlation > 0)
    return np.where(found, calls[at], -1).astype(np.int32)


def _main_thread(host: HostEvents, names: list[str], threads: list[Thread]) -> int:
    """The thread that runs the training loop.

    The one with the step annotations; else the one with most operators and runtime calls outside
    autograd's own nodes, where the process's first thread (tid = pid) wins a tie.
    """
    if not len(host):
        return -1
    steps = np.array([n.startswith("ProfilerStep#") for n in names], np.bool_)
    work = (host.kind == HostKind.OPERATOR) | (host.kind == HostKind.RUNTIME)
    autograd = np.array([n.startswith("autograd::engine") for n in names], np.bool_)
    worked = np.bincount(host.thread[work], minlength=len(threads))
    count = worked.astype(np.float64)
    nodes = np.bincount(host.thread[autograd[host.name]], minlength=len(threads))
    count[nodes > 0] = np.minimum(count[nodes > 0], 0.25)
    first = np.array([t.pid == t.tid for t in threads])
    count += np.where(first, 0.5, 0.0)
    in_step = np.bincount(
        host.thread[steps[host.name] & (host.kind == HostKind.ANNOTATION)], minlength=len(threads)
    )
    in_step = np.where(worked > 0, in_step, 0)  # an annotation from another process's thread
    return int(np.argmax(in_step)) if in_step.any() else int(np.argmax(count))


def _properties(devices: Any) -> tuple[DeviceProperties, ...]:
    known = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    return tuple(
        DeviceProperties(
            d["id"],
            str(d.get("name", "")),
            _count(d.get("numSms")) or 0,
            _count(d.get("totalGlobalMem")) or 0,
            (_count(d.get("computeMajor")) or 0, _count(d.get("computeMinor")) or 0),
        )
        for d in known
        if isinstance(d.get("id"), int)
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _warnings(path: Path, text: TraceText, columns: _Columns, events: int) -> tuple[str, ...]:
    told = []
    if text.damage.what or text.cut_off:
        why = text.damage.what or "the text ends before the list of events does"
        told.append(
            f"{path}: incomplete, {why}; the {events} whole events were read, "
            "what came after them is missing"
        )
    if text.lost:
        told.append(
            f"{path}: {text.lost} pieces of broken text could not be decoded and are left out"
        )
    if text.repaired:
        told.append(
            f"{path}: {text.repaired} pieces of the text held invalid JSON (bad escapes, NaN "
            "or control characters) and were repaired"
        )
    if columns.begin_end:
        told.append(f"{path}: {columns.begin_end} begin/end (B, E) events are not read")
    if columns.untimed:
        told.append(
            f"{path}: {columns.untimed} events without a time or duration are taken as instants "
            "or left out"
        )
    if columns.bad_values:
        told.append(
            f"{path}: {columns.bad_values} values that should be numbers are not and are ignored"
        )
    others = Counter({c: n for c, n in columns.unknown.items() if c.lower() not in _IGNORED})
    if others:
        listed = ", ".join(f"{c} ({n})" for c, n in others.most_common(5))
        told.append(
            f"{path}: rows of categories that are not GPU activity here are not counted: {listed}"
        )
    return tuple(told)
