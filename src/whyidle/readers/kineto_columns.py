"""Batches of Kineto's events -> columns under construction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np

from whyidle.readers.clock import microseconds_to_ns
from whyidle.readers.trace_json import Args, Event
from whyidle.timeline.columns import I64, Bool, DeviceKind, HostKind

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
_RESERVED = attrgetter("device_id", "total_reserved")
_NO_ARGS = Args()
_PASSED_OVER = ("X", "f", "s", "t")  # spans are read, arrows are not needed


class Interner(dict[Any, int]):
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
class Columns:
    """Columns under construction: lists of arrays, one a batch."""

    host: list[tuple[Any, ...]] = field(default_factory=list)
    device: list[tuple[Any, ...]] = field(default_factory=list)
    names: Interner = field(default_factory=Interner)
    stacks: Interner = field(default_factory=Interner)
    threads: Interner = field(default_factory=Interner)
    streams: Interner = field(default_factory=Interner)
    category: _Category = field(default_factory=_Category)
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    reserved: dict[int, int] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)
    whole_us: bool = True
    begin_end: int = 0
    untimed: int = 0
    bad_values: int = 0
    recorded_share: float | None = None
    recorded_batch: int = 0  # the batch that it was measured in


def add(columns: Columns, events: list[Event]) -> None:
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
    columns: Columns, spans: list[Event]
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


def _host_columns(columns: Columns, events: list[Event], kinds: Any) -> tuple[Any, ...]:
    start, end, no_time = _times(columns, events)
    args = _arguments(events)
    if columns.recorded_share is None:
        columns.recorded_share = _recorded_share(args)
    texts: list[Any] = list(map(_STACK, args))
    stack = np.full(len(events), -1, np.int32)
    if texts.count(None) < len(texts):
        stacks = columns.stacks
        stack[:] = [stacks[text] if text else -1 for text in texts]
    found = (
        start,
        end,
        np.array(list(map(columns.names.__getitem__, map(_NAME, events))), np.int32),
        kinds.astype(np.uint8),
        np.array(list(map(columns.threads.__getitem__, map(_THREAD, events))), np.int32),
        _integers(columns, list(map(_CORRELATION, args))),
        stack,
    )
    return _timed(found, no_time)


def _recorded_share(args: list[Args]) -> float | None:
    """The share of the profiler's numbered events that are there, None where none is numbered.

    Kineto numbers the events that it records without a gap, so a file in which numbers are missing
    was sampled or filtered afterwards. The first batch tells: on complete real traces its numbers
    are 0.89 to 1.0 dense, on sampled ones 0.01.
    """
    numbers = [a.event_index if a.old_event_index is None else a.old_event_index for a in args]
    known = {n for n in numbers if isinstance(n, int)}
    return len(known) / (max(known) - min(known) + 1) if known else None


def _arguments(events: list[Event]) -> list[Args]:
    args = list(map(_ARGS, events))
    return [_NO_ARGS if a is None else a for a in args] if None in args else args


def _device_columns(columns: Columns, events: list[Event], kinds: Any) -> tuple[Any, ...]:
    start, end, no_time = _times(columns, events)
    args = _arguments(events)
    device = [e.pid if a.device is None else a.device for e, a in zip(events, args, strict=True)]
    stream = [e.tid if a.stream is None else a.stream for e, a in zip(events, args, strict=True)]
    found = (
        start,
        end,
        np.array(list(map(columns.names.__getitem__, map(_NAME, events))), np.int32),
        kinds.astype(np.uint8),
        _device_ids(columns, device),
        np.array(list(map(columns.streams.__getitem__, stream)), np.int64),
        _integers(columns, list(map(_CORRELATION, args))),
        _integers(columns, list(map(_bytes, args))),
        _integers(columns, list(map(_blocks, map(_GRID, args)))),
    )
    return _timed(found, no_time)


def _timed(found: tuple[Any, ...], no_time: Bool | None) -> tuple[Any, ...]:
    """Columns without the events whose time is unknown: nobody can say where they belong."""
    return found if no_time is None else tuple(column[~no_time] for column in found)


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


def _add_others(columns: Columns, events: list[Event]) -> None:
    """Thread names, memory counters, and a count of what is not read."""
    others = [e for e in events if e.ph not in _PASSED_OVER]
    memory = [a for e in others if e.name == "[memory]" and (a := e.args) is not None]
    _add_memory(columns, memory)
    for e in others if len(memory) < len(others) else ():
        ph = e.ph
        if ph == "M" and e.name == "thread_name" and e.args is not None:
            # Of several the greatest: the same whatever the order in which they are read.
            key, label = (str(e.pid), str(e.tid)), str(e.args.name or "")
            columns.labels[key] = max(label, columns.labels.get(key, ""))
        elif ph in ("B", "E"):
            columns.begin_end += 1


def _add_memory(columns: Columns, args: list[Args]) -> None:
    """The largest reserved memory of each device (profile_memory=True)."""
    try:
        pairs = set(map(_RESERVED, args))  # few: the reserve seldom changes
    except TypeError:
        return
    for index, total in pairs:
        if isinstance(index, int) and isinstance(total, int) and index >= 0:
            columns.reserved[index] = max(columns.reserved.get(index, 0), total)


def _times(columns: Columns, events: list[Event]) -> tuple[I64, I64, Bool | None]:
    """Start and end in ns, exact to the clock that wrote them, and which starts are no times."""
    start = microseconds_to_ns(list(map(_TS, events)))
    lengths: list[Any] = list(map(_DUR, events))
    if untimed := lengths.count(None):
        columns.untimed += untimed
        lengths = [0 if dur is None else dur for dur in lengths]
    dur = microseconds_to_ns(lengths)
    columns.untimed += 0 if start.bad is None else int(start.bad.sum())
    columns.bad_values += 0 if dur.bad is None else int(dur.bad.sum())
    length = dur.ns
    if start.given_as_ns is not None:
        length = np.where(start.given_as_ns, length // 1000, length)
    if columns.whole_us and not (start.whole_us and dur.whole_us):
        columns.whole_us = not (start.ns % 1000).any() and not (length % 1000).any()
    return start.ns, start.ns + np.maximum(length, 0), start.bad


def _integers(columns: Columns, values: list[Any]) -> I64:
    """Whole numbers, also as text or hex text; None and, counted, what is no number become -1."""
    if None in values:
        values = [-1 if value is None else value for value in values]
    try:
        return np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(columns, v) for v in values], np.int64)


def _device_ids(columns: Columns, values: list[Any]) -> I64:
    """Device numbers; those beyond 32 bits, which no device has, become -1 and are counted."""
    ids = _integers(columns, values)
    beyond = (ids < -(2**31)) | (ids >= 2**31)
    if beyond.any():
        columns.bad_values += int(beyond.sum())
        ids[beyond] = -1
    return ids


def _integer(columns: Columns, value: Any) -> int:
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
        if -(2**63) <= number < 2**63:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    columns.bad_values += 1
    return -1
