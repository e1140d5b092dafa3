"""What several rules of this room say of kernels, and from which loss on they say it."""

from __future__ import annotations

import re
from itertools import groupby

import numpy as np

from whyidle.causes import wording
from whyidle.causes.evidence import Evidence
from whyidle.causes.segments import busy_share, on_device, top_kernels
from whyidle.ledger.kinds import COMMUNICATION, kernel_kind
from whyidle.timeline.columns import I64, Bool, DeviceKind
from whyidle.timeline.intervals import coded

# What other kernels could save is told from this share of the window: it is an estimate. Ours.
BUSY_SIDE_SHARE = 0.05

UPPER_BOUND = "An upper bound, from kernel names and times; only a measurement shows the gain."


# Wrappers in the names of PyTorch's kernels, behind which the work's own name stands.
_WRAPPERS = re.compile(
    r"^void |at::native::|\(anonymous namespace\)::|c10::|gpu_kernel_impl(_nocast)?<|"
    r"(un)?(rolled|vectorized)?_?elementwise_kernel<[\d, ]*"
)


def brief(name: str) -> str:
    """A kernel's name without wrappers, cut to fit a sentence."""
    return wording.short(_WRAPPERS.sub("", name) or name, 50)


def told(evidence: Evidence, mask: Bool, what: str) -> list[str]:
    """How long the masked segments' kernels run, and which of them most."""
    ledger = evidence.ledger
    merged: dict[str, tuple[int, int]] = {}
    for name, ns, count in top_kernels(evidence, mask, 12):
        before = merged.get(brief(name), (0, 0))
        merged[brief(name)] = before[0] + ns, before[1] + count
    most = sorted(merged.items(), key=lambda item: -item[1][0])[:3]
    top = [
        f"{name} ({wording.per_step(ns, ledger)}, "
        f"{wording.number(n / max(len(ledger.steps), 1))} calls)"
        for name, (ns, n) in most
    ]
    return [
        f"{what} {wording.per_step(evidence.ns(mask), ledger)}, "
        f"{wording.percent(busy_share(evidence, mask))} of the GPU's busy time.",
        f"Most of it in {wording.listed(top)}.",
    ]


def streams(evidence: Evidence) -> list[I64]:
    """Computing kernels of the window, stream by stream, each in order of start."""
    device = evidence.timeline.device
    communicates = np.array([bool(COMMUNICATION.search(n)) for n in evidence.timeline.names])
    chosen = on_device(evidence) & (device.kind == DeviceKind.KERNEL)
    rows = np.flatnonzero(chosen & ~communicates[device.name])
    rows = rows[np.lexsort((device.start[rows], device.stream[rows]))]
    edges = np.flatnonzero(np.diff(device.stream[rows])) + 1
    return list(np.split(rows, edges))


def kinds(evidence: Evidence, rows: I64) -> list[str]:
    """The kinds (matmul, elementwise, ...) of device events."""
    names = evidence.timeline.names
    unique, inverse = coded(evidence.timeline.device.name[rows])
    kind = [kernel_kind(names[i]) for i in unique]
    return [kind[i] for i in inverse]


def runs(evidence: Evidence, wanted: tuple[str, ...]) -> list[I64]:
    """Device events in unbroken runs of two or more kernels of the wanted kinds on a stream."""
    found = []
    for rows in streams(evidence):
        fits = [k in wanted for k in kinds(evidence, rows)]
        at = 0
        for fit, members in groupby(fits):
            length = len(list(members))
            if fit and length > 1:
                found.append(rows[at : at + length])
            at += length
    return found


def ns_of_activities(evidence: Evidence, mask: Bool) -> I64:
    """Nanoseconds of the masked busy segments by device event, shape (device events,)."""
    seg = evidence.ledger.segments
    rows = np.flatnonzero(mask & ~seg.idle)
    total = np.zeros(len(evidence.timeline.device), np.int64)
    np.add.at(total, seg.activity[rows], seg.ns[rows])
    return total
