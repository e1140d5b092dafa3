"""Collectives on the device: which they are, their kinds, and the time they leave exposed."""

from __future__ import annotations

import re

import numpy as np

from whyidle.causes import wording
from whyidle.causes.evidence import Evidence
from whyidle.causes.segments import of_activity, on_device
from whyidle.ledger.kinds import COMMUNICATION
from whyidle.timeline.columns import Bool, DeviceKind
from whyidle.timeline.intervals import coded
from whyidle.timeline.select import events_named, innermost, name_mask

# One stream takes up work within microseconds of another's event; generously. Ours.
HAND_OVER_NS = 100_000

_MARK = r"^(nccl|gloo|mpi|ucc|xccl|rccl):"
_KERNEL_KIND = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|reduce)",
    re.IGNORECASE,
)


def collectives(evidence: Evidence) -> Bool:
    """Collectives on this device inside the window, shape (device events,)."""
    timeline = evidence.timeline
    named: Bool = name_mask(timeline.names, COMMUNICATION)[timeline.device.name]
    kernel: Bool = timeline.device.kind == DeviceKind.KERNEL
    return named & kernel & on_device(evidence)


def exposed(evidence: Evidence, chosen: Bool) -> Bool:
    """Free segments lost to the chosen collectives, shape (segments,).

    Where one of them runs and no kernel does, and the ``idle.queue`` right behind, in which work
    already launched waits (a stream waits for the event behind a collective). A longer wait than
    ``HAND_OVER_NS`` is not for a collective that has ended.
    """
    seg = evidence.ledger.segments
    running: Bool = of_activity(evidence, chosen) & ~seg.idle
    own = evidence.accounts("comm.") & running
    behind = np.append(False, running[:-1]) & (seg.ns <= HAND_OVER_NS)
    found: Bool = own | (evidence.accounts("idle.queue") & behind)
    return found


def kinds(evidence: Evidence, chosen: Bool) -> dict[str, Bool]:
    """The chosen collectives by kind ("all_reduce"), those with most time first.

    The kind is the mark that torch.distributed put around the launch, else what the kernel's name
    tells, else "collectives of unknown kind".
    """
    timeline = evidence.timeline
    mark = innermost(evidence.nesting, events_named(timeline, _MARK))
    rows = np.flatnonzero(chosen)
    launch = timeline.device.launch[rows]
    at = np.full(len(rows), -1, np.int64)
    at[launch >= 0] = mark[launch[launch >= 0]]
    # One key a name: marks are host names, kernels' names come behind them.
    count = len(timeline.names)
    key = count + timeline.device.name[rows].astype(np.int64)
    key[at >= 0] = timeline.host.name[at[at >= 0]]
    unique, group = coded(key)
    kind = [
        _of_mark(timeline.names[k]) if k < count else _of_kernel(timeline.names[k - count])
        for k in unique.tolist()
    ]
    lasted = timeline.device.end[rows] - timeline.device.start[rows]
    found: dict[str, Bool] = {}
    total: dict[str, int] = {}
    for i, name in enumerate(kind):
        members = group == i
        found.setdefault(name, np.zeros(len(chosen), np.bool_))[rows[members]] = True
        total[name] = total.get(name, 0) + int(lasted[members].sum())
    return {name: found[name] for name in sorted(found, key=lambda n: -total[n])}


def told(evidence: Evidence, chosen: Bool) -> str:
    """The chosen collectives by kind, with their count, time, bytes and speed, as prose."""
    ledger, device = evidence.ledger, evidence.timeline.device
    parts = []
    for kind, mask in list(kinds(evidence, chosen).items())[:3]:
        lasted = device.end[mask] - device.start[mask]
        text = f"{wording.count_per_step(int(mask.sum()), kind, ledger)} ("
        text += f"{wording.ns(float(np.median(lasted)))} in the median"
        sized = mask & (device.bytes >= 0)
        if sized.any():
            moved = int(device.bytes[sized].sum())
            time = int((device.end[sized] - device.start[sized]).sum())
            text += f", {wording.size(moved / int(sized.sum()))} each on average"
            text += f", {moved / time:.1f} GB/s" if time else ""  # bytes by ns are GB by s
        parts.append(text + ")")
    return wording.listed(parts)


def calls(evidence: Evidence, chosen: Bool) -> Bool:
    """The host calls that launched the chosen collectives, shape (host events,)."""
    found = np.zeros(len(evidence.timeline.host), np.bool_)
    launch = evidence.timeline.device.launch[chosen]
    found[launch[launch >= 0]] = True
    return found


def _of_mark(name: str) -> str:
    return re.sub(_MARK, "", name).strip().strip("_") or "collectives of unknown kind"


def _of_kernel(name: str) -> str:
    match = _KERNEL_KIND.search(name)
    return match[1] if match else "collectives of unknown kind"
