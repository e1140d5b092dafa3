"""Picking ledger segments: by the host event behind them, by the kernel that runs, by step."""

from __future__ import annotations

import re

import numpy as np

from whyidle.causes.evidence import Evidence
from whyidle.ledger.accounts import ACCOUNTS
from whyidle.timeline.columns import I64, Bool
from whyidle.timeline.intervals import coded
from whyidle.timeline.select import name_mask, of_host

_COMPUTE = np.array([a.name.startswith("compute.") for a in ACCOUNTS])


def held_by(evidence: Evidence, events: Bool) -> Bool:
    """Free idle segments during which one of the host events was innermost, shape (segments,)."""
    seg = evidence.ledger.segments
    return evidence.free & seg.idle & of_host(events, seg.host)


def launched_by(evidence: Evidence, events: Bool) -> Bool:
    """Free busy segments whose activity one of the host events launched, shape (segments,)."""
    seg = evidence.ledger.segments
    return evidence.free & ~seg.idle & of_host(events, seg.launch)


def running(evidence: Evidence, pattern: str | re.Pattern[str]) -> Bool:
    """Free busy segments whose activity's name the pattern is found in, shape (segments,)."""
    named: Bool = name_mask(evidence.timeline.names, pattern)[evidence.timeline.device.name]
    found: Bool = evidence.free & ~evidence.ledger.segments.idle & of_activity(evidence, named)
    return found


def computing(evidence: Evidence) -> Bool:
    """Free segments in which a computing kernel runs, shape (segments,)."""
    found: Bool = evidence.free & _COMPUTE[evidence.ledger.segments.account]
    return found


def of_activity(evidence: Evidence, activities: Bool) -> Bool:
    """A mask of device events looked up at each segment's activity, shape (segments,).

    The activity of an idle segment is the one that ended its gap.
    """
    return of_host(activities, evidence.ledger.segments.activity)


def on_device(evidence: Evidence) -> Bool:
    """Device events of the ledger's device inside its window, shape (device events,)."""
    device, (low, high) = evidence.timeline.device, evidence.ledger.window
    inside: Bool = (
        (device.device == evidence.ledger.device) & (device.end > low) & (device.start < high)
    )
    return inside


def step_of(evidence: Evidence, time: I64) -> I64:
    """The index of the step that each time lies in, -1 before the first."""
    step: I64 = np.searchsorted(evidence.ledger.steps.start, time, side="right") - 1
    return step


def steps_known(evidence: Evidence) -> bool:
    """Whether there are several steps, so that steady state can be told from the start."""
    return evidence.ledger.steps.source != "span" and len(evidence.ledger.steps) > 1


def busy_share(evidence: Evidence, mask: Bool) -> float:
    """The masked segments' share of the device's busy time."""
    busy = evidence.ledger.busy_ns
    return evidence.ns(mask) / busy if busy else 0.0


def top_kernels(evidence: Evidence, mask: Bool, limit: int = 3) -> list[tuple[str, int, int]]:
    """(name, ns, number of activities) behind the masked busy segments, most ns first."""
    rows = np.flatnonzero(mask & ~evidence.ledger.segments.idle)
    if not len(rows):
        return []
    activity = evidence.ledger.segments.activity[rows]
    names = evidence.timeline.device.name[activity]
    unique, group = coded(names)
    total = np.zeros(len(unique), np.int64)
    np.add.at(total, group, evidence.ledger.segments.ns[rows])
    count = np.bincount(names[np.unique(activity, return_index=True)[1]], minlength=1)
    order = np.argsort(-total, kind="stable")[:limit]
    return [
        (evidence.timeline.names[unique[i]], int(total[i]), int(count[unique[i]])) for i in order
    ]
