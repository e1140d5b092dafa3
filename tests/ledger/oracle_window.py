"""The window of a device's ledger, once more by loops over rows."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from statistics import median

from whyidle.timeline.columns import DeviceKind, HostKind

from .oracle_trace import Call, Trace, Work

STEP_NAME = re.compile(
    r"^\W*(train(ing)?[_ ]?)?(step|iter(ation)?|train_batch|run_training_batch|batch)\W*\d*\W*$|"
    r"run_training_batch|training_step_and_backward",
    re.IGNORECASE,
)


def window(trace: Trace, device: int) -> tuple[int, int]:
    """From the first step's start to the end of the last work launched in the last step."""
    works = [w for w in trace.works if w.device == device]
    span = min(w.start for w in works), max(w.end for w in works)
    on_host = (
        _annotated(trace, re.compile(r"^ProfilerStep#\d+"), 1)
        or _annotated(trace, STEP_NAME, 2)
        or _by_optimizer(trace)
    )
    if on_host:
        start, (low, high) = on_host[0][0], on_host[-1]
        launched = [w for w in works if w.launch]
        if launched:
            last = [w.end for w in launched if w.launch and low <= w.launch.start < high]
        else:
            last = [w.end for w in works if low <= w.start < high]
        end = max(last, default=high)
    elif repeated := _by_kernels(trace, works):
        start, end = repeated
    else:
        return span
    active = any(w.end > start and w.start < end for w in works)
    return (start, end) if end > start and active else span


def _annotated(
    trace: Trace, pattern: re.Pattern[str], at_least: int
) -> list[tuple[int, int]] | None:
    """Annotations with such a name: the main thread's if it has any, the outermost of nested."""
    found = [c for c in trace.calls if c.kind == HostKind.ANNOTATION and pattern.search(c.name)]
    found = [c for c in found if c.thread == trace.main] or found
    kept: list[Call] = []
    for call in sorted(found, key=lambda c: c.start):
        if not kept or call.start >= kept[-1].end:
            kept.append(call)
    return [(c.start, c.end) for c in kept] if len(kept) >= at_least else None


def _by_optimizer(trace: Trace) -> list[tuple[int, int]] | None:
    own = [c for c in trace.calls if c.thread == trace.main]
    ends = sorted(
        c.end for c in own if c.kind == HostKind.ANNOTATION and c.name.startswith("Optimizer.step#")
    )
    if len(ends) < 2:
        return None
    return list(pairwise([min(c.start for c in own), *ends]))


def _by_kernels(trace: Trace, works: list[Work]) -> tuple[int, int] | None:
    """From the first to the last of the rarest kernels between which all repeats."""
    kernels = [w for w in works if w.kind == DeviceKind.KERNEL]
    names = [w.name for w in kernels]
    count = Counter(names)
    if len(names) < 6:
        return None
    usual = [
        n for n in sorted(count, key=lambda n: (count[n], trace.name_order[n])) if count[n] > 2
    ]
    for name in usual[:64]:
        at = [i for i, n in enumerate(names) if n == name]
        length = int(median(b - a for a, b in pairwise(at)))
        regular = [a for a, b in pairwise(at) if b - a == length]
        if length < 2 or len(regular) < 2 or len(regular) * length < 0.6 * len(names):
            continue
        first = names[regular[0] : regular[0] + length]
        if sum(names[i : i + length] == first for i in regular) >= 0.8 * len(regular):
            return _shifted(kernels, at, length)
    return None


def _shifted(kernels: list[Work], at: list[int], length: int) -> tuple[int, int]:
    """The steps begin where the device usually pauses longest."""
    pauses, reached = [0], kernels[0].end
    for kernel in kernels[1:]:
        pauses.append(kernel.start - reached)
        reached = max(reached, kernel.end)
    last = len(kernels) - 1
    typical = [median(pauses[min(i + k, last)] for i in at[:-1]) for k in range(length)]
    shift = typical.index(max(typical))
    at = [i + shift for i in at if i + shift <= last]
    if shift and at[0] >= length:
        at.insert(0, at[0] - length)
    length = int(median(b - a for a, b in pairwise(at)))
    return kernels[at[0]].start, max(k.end for k in kernels[at[-1] : at[-1] + length])
