"""The idle blocks of one step, and what the host did during each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.ledger.model import Ledger
from whyidle.timeline.columns import I32, I64, U8, Bool, Timeline

_TOLD = 4  # host events told of one block: the longest innermost ones


@dataclass(frozen=True, eq=False)
class Gaps:
    """Stretches of a gap that are in one account; arrays have shape (n,), times in ns.

    ``activity`` and ``launch`` are as in the ledger's segments. ``did[i]`` lists (innermost host
    event or -1, ns), longest first, one event a name; ``more[i]`` counts the names left out.
    """

    start: I64
    end: I64
    account: U8
    activity: I32
    launch: I32
    after_sync: Bool
    did: list[list[tuple[int, int]]]
    more: list[int]


def gaps_of(timeline: Timeline, ledger: Ledger, low: int, high: int) -> Gaps:
    """The idle blocks that overlap [low, high), cut to it."""
    seg = ledger.segments
    idle = np.flatnonzero(seg.idle & (seg.end > low) & (seg.start < high))
    start, end = np.maximum(seg.start[idle], low), np.minimum(seg.end[idle], high)
    before, after = idle[:-1], idle[1:]
    split = (
        (seg.account[before] != seg.account[after])
        | (seg.gap[before] != seg.gap[after])
        | (seg.end[before] != seg.start[after])
    )
    first = np.append(0, np.flatnonzero(split) + 1) if len(idle) else np.empty(0, np.int64)
    last = np.append(first[1:], len(idle)) if len(idle) else first
    did, more = [], []
    for a, b in zip(first.tolist(), last.tolist(), strict=True):
        told, left = _told(timeline, seg.host[idle[a:b]], end[a:b] - start[a:b])
        did.append(told)
        more.append(left)
    lead = idle[first]
    any_sync = (
        np.logical_or.reduceat(seg.after_sync[idle], first) if len(first) else np.empty(0, np.bool_)
    )
    return Gaps(
        start[first],
        end[last - 1],
        seg.account[lead],
        seg.activity[lead],
        seg.launch[lead],
        any_sync,
        did,
        more,
    )


def _told(timeline: Timeline, host: I32, ns: I64) -> tuple[list[tuple[int, int]], int]:
    """Time by the innermost event's name; each name told by the event that it has most time in."""
    total: dict[int, int] = {}
    longest: dict[int, tuple[int, int]] = {}
    for event, part in zip(host.tolist(), ns.tolist(), strict=True):
        name = int(timeline.host.name[event]) if event >= 0 else -1
        total[name] = total.get(name, 0) + part
        if part > longest.get(name, (-1, -1))[0]:
            longest[name] = (part, event)
    ranked = sorted(total, key=lambda name: (-total[name], name))
    told = [(longest[name][1], total[name]) for name in ranked[:_TOLD]]
    return told, max(len(ranked) - _TOLD, 0)
