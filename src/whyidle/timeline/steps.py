"""Training steps: from annotations; else by repetition; else none. Each says how it was found."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from whyidle.timeline.columns import I32, I64, DeviceKind, HostKind, Timeline

_PROFILER_STEP = re.compile(r"^ProfilerStep#\d+")
# Annotations that people put around a step. Digits in the name count the steps.
_STEP_NAME = re.compile(
    r"^\W*(train(ing)?[_ ]?)?(step|iter(ation)?|train_batch|run_training_batch|batch)\W*\d*\W*$|"
    r"run_training_batch|training_step_and_backward",
    re.IGNORECASE,
)
_OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
_MIN_REPEATS = 3  # a sequence seen fewer times is no repetition
_MIN_COVERAGE = 0.6  # share of the device's kernels that the repeated sequences must hold (ours)
_CANDIDATES = 64


@dataclass(frozen=True, eq=False)
class StepMarks:
    """Step starts and ends in ns, shape (n,), sorted. ``on_host``: times of the host's loop."""

    start: I64
    end: I64
    source: str
    how: str
    on_host: bool


def find_steps(timeline: Timeline, device: int) -> StepMarks | None:
    """The steps of a timeline, or None where there is no sign of any.

    ``device`` is the one whose kernels are searched when the host gives no mark.
    """
    return (
        _annotated(timeline, _PROFILER_STEP, "ProfilerStep annotations")
        or _annotated(timeline, _STEP_NAME, "")
        or _by_optimizer(timeline)
        or _by_kernels(timeline, device)
    )


def _annotated(timeline: Timeline, pattern: re.Pattern[str], how: str) -> StepMarks | None:
    host = timeline.host
    match = np.array([bool(pattern.search(n)) for n in timeline.names], np.bool_)
    if not match.any() or not len(host):
        return None
    found = np.flatnonzero(match[host.name] & (host.kind == HostKind.ANNOTATION))
    on_main = found[host.thread[found] == timeline.main_thread]
    found = on_main if len(on_main) else found
    found = found[np.argsort(host.start[found], kind="stable")]
    # The outermost of nested marks, and one of those that several threads wrote.
    kept: list[int] = []
    for i in found:
        if not kept or host.start[i] >= host.end[kept[-1]]:
            kept.append(int(i))
    if not kept or (not how and len(kept) < 2):
        return None
    how = how or f"annotations named like {timeline.names[host.name[kept[0]]]!r}"
    return StepMarks(host.start[kept], host.end[kept], "steps", how, True)


def _by_optimizer(timeline: Timeline) -> StepMarks | None:
    """Steps that end where an optimizer step ends."""
    host = timeline.host
    match = np.array([bool(_OPTIMIZER_STEP.search(n)) for n in timeline.names], np.bool_)
    if not match.any() or not len(host):
        return None
    found = np.flatnonzero(
        match[host.name]
        & (host.kind == HostKind.ANNOTATION)
        & (host.thread == timeline.main_thread)
    )
    if len(found) < 2:
        return None
    end = np.sort(host.end[found])
    own = host.thread == timeline.main_thread
    start = np.append(host.start[own].min(), end[:-1])
    return StepMarks(start, end, "repetition", "the ends of Optimizer.step", True)


def _by_kernels(timeline: Timeline, device: int) -> StepMarks | None:
    """Steps as a repeated sequence of kernels, for traces without any mark of the host."""
    rows = np.flatnonzero(
        (timeline.device.device == device) & (timeline.device.kind == DeviceKind.KERNEL)
    )
    names = timeline.device.name[rows]
    period = _period(names)
    if period is None:
        return None
    anchors = _natural_start(timeline, rows, period)
    start = timeline.device.start[rows[anchors]]
    length = int(np.median(np.diff(anchors)))
    last = min(int(anchors[-1]) + length, len(rows)) - 1
    end = np.append(start[1:], timeline.device.end[rows[anchors[-1] : last + 1]].max())
    return StepMarks(
        start, end, "repetition", f"a sequence of {length} kernels that repeats", False
    )


def _period(names: I32) -> I64 | None:
    """Positions of one kernel name between which the same sequence of names repeats."""
    if len(names) < 2 * _MIN_REPEATS:
        return None
    unique, count = np.unique(names, return_counts=True)
    usable = count >= _MIN_REPEATS
    order = np.argsort(count[usable], kind="stable")[:_CANDIDATES]
    for name in unique[usable][order]:
        at = np.flatnonzero(names == name).astype(np.int64)
        lengths = np.diff(at)
        length = int(np.median(lengths))
        if length < 2:
            continue
        regular = at[:-1][lengths == length]
        if len(regular) + 1 < _MIN_REPEATS or len(regular) * length < _MIN_COVERAGE * len(names):
            continue
        pattern = names[regular[0] : regular[0] + length]
        same = sum(bool((names[i : i + length] == pattern).all()) for i in regular)
        if same >= 0.8 * len(regular):
            return at
    return None


def _natural_start(timeline: Timeline, rows: I64, anchors: I64) -> I64:
    """Shift the anchors to where the device pauses longest, as it does between steps."""
    length = int(np.median(np.diff(anchors)))
    device = timeline.device
    pause = np.zeros(len(rows), np.int64)
    pause[1:] = device.start[rows[1:]] - np.maximum.accumulate(device.end[rows])[:-1]
    inner = anchors[:-1]
    offsets = np.arange(length)
    typical = np.median(pause[np.minimum(inner[:, None] + offsets, len(rows) - 1)], axis=0)
    shift = int(np.argmax(typical))
    shifted = anchors + shift
    shifted = shifted[shifted < len(rows)]
    if shift and shifted[0] - length >= 0:
        shifted = np.append(shifted[0] - length, shifted)
    return shifted
