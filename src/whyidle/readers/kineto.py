"""Reader of PyTorch profiler (Kineto) traces: .json and .json.gz -> Timeline.

Reads what Kineto has written since 2021 for CUDA, HIP and XPU, in either naming ("kernel" or
"Kernel", "cuda_runtime" or "Runtime"). Other accelerators' rows are counted and told.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from whyidle.errors import WhyidleError
from whyidle.readers.kineto_columns import Columns, Interner, add
from whyidle.readers.trace_json import TraceText, batches
from whyidle.readers.two_processes import read_in_two
from whyidle.timeline.columns import (
    I64,
    DeviceEvents,
    DeviceProperties,
    HostEvents,
    HostKind,
    Source,
    Thread,
    Timeline,
)

_LONGEST_NAME = 1 << 14  # templates of real kernels reach some thousand characters
# Rows that are neither host work nor device activity (the ledger definition, "Device time").
_IGNORED = {"trace", "gpu_user_annotation", "cuda_sync", "ac2g", "fwdbwd", "async", "none"}
_ANNOTATION_NAMES = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.\w+#")


def read_kineto(path: Path, progress: Callable[[int, int], None] | None = None) -> Timeline:
    """Read one trace file.

    ``progress`` is called with (bytes read, bytes in all) of the file. Raises WhyidleError when
    nothing can be read from it; damage that could be survived is told in ``Timeline.warnings``.
    """
    collecting = gc.isenabled()
    gc.disable()  # millions of short-lived acyclic objects: the collector only costs time here
    try:
        text, columns = read_in_two(path, progress) or _read(path, progress)
    finally:
        if collecting:
            gc.enable()
    return _timeline(path, text, columns)


def _read(path: Path, progress: Callable[[int, int], None] | None) -> tuple[TraceText, Columns]:
    text, columns = TraceText(), Columns()
    for events in batches(path, text, progress):
        add(columns, events)
    return text, columns


def _concatenate(parts: list[tuple[Any, ...]], types: Iterable[Any]) -> list[Any]:
    if not parts:
        return [np.empty(0, t) for t in types]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    parts.clear()
    return columns


def _timeline(path: Path, text: TraceText, columns: Columns) -> Timeline:
    names, name_of = _in_order(columns.names, _name)
    stacks, stack_of = _in_order(columns.stacks, str)
    threads, thread_of = _threads(columns)
    host = _host(columns, names, (name_of, thread_of, stack_of))
    main = _main_thread(host, names, threads)
    device = _device(columns, host, name_of)
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
        stacks=stacks,
        threads=threads,
        main_thread=main,
        host=host,
        device=device,
        devices=properties,
        resolution_ns=1000 if columns.whole_us and len(host) + len(device) else 1,
        has_operators=bool((host.kind == HostKind.OPERATOR).any()),
        has_python=bool((host.kind == HostKind.PYTHON).any()),
        recorded_share=1.0 if columns.recorded_share is None else columns.recorded_share,
        cut_off=bool(text.damage.what) or text.cut_off,
        peak_reserved_bytes=columns.reserved,
        warnings=warnings,
    )


def _nothing(text: TraceText) -> str:
    if text.lost:
        return f"none of its {text.lost} pieces of events could be decoded"
    return "it holds no event"


def _name(value: Any) -> str:
    """A name as text, cut where no real name reaches: patterns are searched in it."""
    text = "(unnamed)" if value is None else str(value)
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."


def _in_order(found: Interner, text: Callable[[Any], str]) -> tuple[list[str], I64]:
    """Values as sorted distinct text, and the new number of each old one.

    Sorted, so that the numbers do not depend on who read which part of the file first.
    """
    texts = [text(value) for value in found]
    unique = sorted(set(texts))
    number = {value: i for i, value in enumerate(unique)}
    return unique, np.array([number[value] for value in texts], np.int32)


def _threads(columns: Columns) -> tuple[list[Thread], I64]:
    """Threads, with (25738, "25738") and ("25738", "25738") made one."""
    keys = [(str(pid), str(tid)) for pid, tid in columns.threads]
    unique = sorted(set(keys))
    number = {key: i for i, key in enumerate(unique)}
    threads = [Thread(pid, tid, columns.labels.get((pid, tid), "")) for pid, tid in unique]
    return threads, np.array([number[key] for key in keys], np.int32)


def _host(columns: Columns, names: list[str], renumber: tuple[I64, I64, I64]) -> HostEvents:
    types = (np.int64, np.int64, np.int32, np.uint8, np.int32, np.int64, np.int32)
    start, end, name, kind, thread, correlation, stack = _concatenate(columns.host, types)
    if len(start):
        name, thread = renumber[0][name], renumber[1][thread]
        if len(renumber[2]):
            stack = np.where(stack >= 0, renumber[2][stack], -1).astype(np.int32)
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


def _device(columns: Columns, host: HostEvents, renumber: I64) -> DeviceEvents:
    types = (np.int64, np.int64, np.int32, np.uint8, *([np.int64] * 5))
    parts = _concatenate(columns.device, types)
    start, end, name, kind, device, stream, correlation, size, blocks = parts
    if len(start):
        texts, stream_of = _in_order(columns.streams, str)
        labels = [_stream_label(text, i) for i, text in enumerate(texts)]
        name, stream = renumber[name], np.array(labels, np.int64)[stream_of[stream]]
    order = np.lexsort((end, start, device))
    return DeviceEvents(
        start[order],
        end[order],
        name[order].astype(np.int32),
        kind[order],
        device[order].astype(np.int32),
        stream[order],
        correlation[order],
        size[order],
        blocks[order],
        _launches(host, correlation[order]),
    )


def _stream_label(stream: str, number: int) -> int:
    """A stream's own number; streams named by pointers or words get one above 2^31."""
    try:
        label = int(stream.removeprefix("stream "), 0)
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


def _warnings(path: Path, text: TraceText, columns: Columns, events: int) -> tuple[str, ...]:
    told = []
    if text.damage.what or text.cut_off:
        why = text.damage.what or "the text ends before the list of events does"
        told.append(
            f"{path}: incomplete, {why}; the {events} whole events were read, "
            "what came after them is missing"
        )
    if text.lost:
        told.append(
            f"{path}: {text.lost} piece(s) of broken text could not be decoded and are left out"
        )
    if text.repaired:
        told.append(
            f"{path}: {text.repaired} piece(s) of the text held invalid JSON (bad escapes, NaN "
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
        most = sorted(others.items(), key=lambda item: (-item[1], item[0]))[:5]
        listed = ", ".join(f"{c} ({n})" for c, n in most)
        told.append(
            f"{path}: rows of categories that are not GPU activity here are not counted: {listed}"
        )
    return tuple(told)
