"""Which host threads of a step are drawn, and which of their events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.ledger.model import Ledger
from whyidle.timeline.columns import I64, Timeline
from whyidle.timeline.nesting import Nesting

_MAX_THREADS = 3


@dataclass(frozen=True, eq=False)
class Lane:
    """A thread: ``events`` index host rows in order; ``outer`` are the events around all of the
    step, outermost first, which would be rows without information and are only named."""

    title: str
    events: I64
    outer: list[int]


def host_lanes(
    timeline: Timeline, nesting: Nesting, ledger: Ledger | None, low: int, high: int
) -> tuple[list[Lane], int, int]:
    """The main thread, then those that the device waited for or that launched work on it.

    Returns the lanes, the number of other threads with events in [low, high), and the number of
    events that do not nest and are therefore not drawn.
    """
    host = timeline.host
    # Zero-length events count as inside where they start.
    inside = (host.start < high) & ((host.end > low) | (host.start >= low))
    threads = np.unique(host.thread[inside])
    weight = _relevance(timeline, ledger, low, high)
    ranked = sorted(
        (int(t) for t in threads if t == timeline.main_thread or weight[t] > 0),
        key=lambda t: (t != timeline.main_thread, -weight[t]),
    )[:_MAX_THREADS]
    drawable = inside & ~nesting.left_out
    lanes = []
    for thread in ranked:
        events = np.flatnonzero(drawable & (host.thread == thread))
        outer = _outer(timeline, nesting, events, low, high)
        events = events[nesting.depth[events] >= len(outer)]
        lanes.append(Lane(_title(timeline, thread), events, outer))
    unnested = inside & nesting.left_out & np.isin(host.thread, ranked)
    return lanes, len(threads) - len(ranked), int(unnested.sum())


def _relevance(timeline: Timeline, ledger: Ledger | None, low: int, high: int) -> I64:
    """By thread: ns of idle time that it is the innermost evidence of, plus 1 a launch."""
    weight = np.zeros(len(timeline.threads), np.int64)
    if ledger is None:
        return weight
    seg = ledger.segments
    idle = (seg.host >= 0) & (seg.end > low) & (seg.start < high)
    np.add.at(weight, timeline.host.thread[seg.host[idle]], seg.ns[idle])
    device = timeline.device
    launched = (
        (device.launch >= 0)
        & (device.device == ledger.device)
        & (device.end > low)
        & (device.start < high)
    )
    np.add.at(weight, timeline.host.thread[device.launch[launched]], 1)
    return weight


def _outer(timeline: Timeline, nesting: Nesting, events: I64, low: int, high: int) -> list[int]:
    host = timeline.host
    depth = nesting.depth[events]
    outer: list[int] = []
    while True:
        level = events[depth == len(outer)]
        if len(level) != 1 or host.start[level[0]] > low or host.end[level[0]] < high:
            return outer
        outer.append(int(level[0]))


def _title(timeline: Timeline, thread: int) -> str:
    info = timeline.threads[thread]
    role = "main thread" if thread == timeline.main_thread else "thread"
    called = info.name if info.tid in info.name else f"{info.name} {info.tid}".strip()
    return f"host {role}: {called.removeprefix('thread ')}"
