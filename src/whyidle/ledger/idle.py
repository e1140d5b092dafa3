"""Idle time: what the host was doing while the device had nothing to run.

A gap [a, b) ends with an activity that host call l launched. If l ended before a, the device
already had the work (``idle.queue``). Else the host was late: [a, end of l) goes, instant by
instant, to what l's thread was doing; the rest, [end of l, b), is ``idle.queue``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.ledger.accounts import INDEX
from whyidle.ledger.host import HostLabels
from whyidle.timeline import intervals
from whyidle.timeline.columns import I32, I64, U8, Bool, HostKind, Timeline
from whyidle.timeline.nesting import Nesting

_QUEUE = INDEX["idle.queue"]
_PYTHON = INDEX["idle.python"]
_DISPATCH = INDEX["idle.dispatch"]
_UNATTRIBUTED = INDEX["idle.unattributed"]
_PROFILER = INDEX["idle.profiler"]


@dataclass(frozen=True, eq=False)
class IdlePieces:
    """Disjoint pieces that tile the gaps, sorted by start. All arrays have shape (n,)."""

    start: I64
    end: I64
    account: U8
    host: I32
    gap: I32
    after_sync: Bool


@dataclass(frozen=True, eq=False)
class _Doing:
    """What one thread was doing over time, holes included: tiles (-inf, inf)."""

    start: I64
    end: I64
    account: U8
    host: I32


class HostActivity:
    """What each host thread was doing at each instant, with the holes filled by rule.

    A hole on a thread other than the main one goes to what the main thread did then, for that is
    what the thread waited for; unless the main thread itself only waits (in ``backward()``): then
    the hole is the thread's own engine between two operators, which is dispatch. A hole on the
    main thread is Python between operators. Outside a thread's recorded life there is no evidence.
    """

    def __init__(self, timeline: Timeline, nesting: Nesting, labels: HostLabels) -> None:
        self.timeline = timeline
        self.nesting = nesting
        self.labels = labels
        self._made: dict[int, _Doing] = {}

    def of(self, thread: int) -> _Doing:
        """What ``thread`` was doing."""
        if thread not in self._made:
            main = self.timeline.main_thread
            own = self._own(thread)
            self._made[thread] = own if thread == main else self._with_main(own, self.of(main))
        return self._made[thread]

    def _own(self, thread: int) -> _Doing:
        segments = self.nesting.threads[thread]
        event = segments.event
        account = np.full(len(event), _UNATTRIBUTED, np.uint8)
        known = event >= 0
        account[known] = self.labels.account[event[known]]
        if self.timeline.has_operators or self.timeline.has_python:
            account[~known] = _PYTHON
        bounds = segments.bounds
        if not len(bounds):
            bounds = np.zeros(1, np.int64)
        far = np.iinfo(np.int64)
        return _Doing(
            np.append(far.min, bounds),
            np.append(bounds, far.max),
            np.concatenate([[_UNATTRIBUTED], account, [_UNATTRIBUTED]]).astype(np.uint8),
            np.concatenate([[-1], event, [-1]]).astype(np.int32),
        )

    def _with_main(self, own: _Doing, main: _Doing) -> _Doing:
        """Fill the holes of a thread (no event, or one that only waits) with the main thread."""
        hole = own.host < 0
        hole[~hole] = self.labels.passive[own.host[~hole]]
        if not hole.any():
            return own
        index, other = intervals.overlaps((own.start[hole], own.end[hole]), (main.start, main.end))
        index = np.flatnonzero(hole)[index]
        start = np.maximum(own.start[index], main.start[other])
        end = np.minimum(own.end[index], main.end[other])
        host = main.host[other]
        idle_main = host < 0
        idle_main[~idle_main] = self.labels.passive[host[~idle_main]]
        busy_main = np.zeros(len(own.start), np.bool_)
        busy_main[index[~idle_main]] = True
        inside = np.ones(len(own.start), np.bool_)
        inside[[0, -1]] = False  # before the first and after the last event: no engine at work
        engine = idle_main & ~busy_main[index] & inside[index]
        account = np.where(engine, _DISPATCH, main.account[other]).astype(np.uint8)
        keep = ~hole
        order = np.argsort(np.concatenate([own.start[keep], start]), kind="stable")
        return _Doing(
            np.concatenate([own.start[keep], start])[order],
            np.concatenate([own.end[keep], end])[order],
            np.concatenate([own.account[keep], account])[order],
            np.concatenate([own.host[keep], host])[order],
        )


def idle_pieces(
    activity: HostActivity, start: I64, end: I64, launch: I32, trailing: Bool
) -> IdlePieces:
    """Attribute gaps to accounts.

    ``start``, ``end``: the gaps, sorted, shape (n,). ``launch``: the host call that launched the
    activity which ended the gap, -1 where none is recorded. ``trailing``: nothing followed the
    gap; it is wholly the main thread's.
    """
    host = activity.timeline.host
    main = activity.timeline.main_thread
    thread = np.where(launch >= 0, host.thread[launch] if len(host) else -1, -1)
    thread = np.where(trailing, main, thread)
    reached = np.where(launch >= 0, host.end[launch] if len(host) else 0, start)
    reached = np.clip(np.where(trailing & (main >= 0), end, reached), start, end)
    parts: list[tuple[I64, I64, U8, I32, I32]] = []
    for t in intervals.distinct(thread[reached > start]):
        gaps = np.flatnonzero((thread == t) & (reached > start))
        doing = activity.of(int(t))
        index, piece = intervals.overlaps((start[gaps], reached[gaps]), (doing.start, doing.end))
        gap = gaps[index]
        parts.append(
            (
                np.maximum(start[gap], doing.start[piece]),
                np.minimum(reached[gap], doing.end[piece]),
                doing.account[piece],
                doing.host[piece],
                gap.astype(np.int32),
            )
        )
    rest = np.flatnonzero(reached < end)
    known = (launch[rest] >= 0) & ~trailing[rest]
    parts.append(
        (
            reached[rest],
            end[rest],
            np.where(known, _QUEUE, _UNATTRIBUTED).astype(np.uint8),
            np.full(len(rest), -1, np.int32),
            rest.astype(np.int32),
        )
    )
    begin = np.concatenate([part[0] for part in parts])
    order = np.argsort(begin, kind="stable")
    pieces = IdlePieces(
        begin[order],
        np.concatenate([part[1] for part in parts])[order],
        np.concatenate([part[2] for part in parts])[order],
        np.concatenate([part[3] for part in parts])[order],
        np.concatenate([part[4] for part in parts])[order],
        np.zeros(len(begin), np.bool_),
    )
    pieces = _profiler_overhead(activity.timeline, activity.labels, pieces)
    return _mark_after_sync(activity.labels, pieces)


def _profiler_overhead(timeline: Timeline, labels: HostLabels, pieces: IdlePieces) -> IdlePieces:
    """Give the host's work time during the profiler's own overhead rows to their account.

    CUPTI writes these rows on a thread of their own, but they hold up whoever calls the driver.
    """
    rows = np.flatnonzero(timeline.host.kind == HostKind.OVERHEAD)
    rows = rows[labels.account[rows] == _PROFILER]
    if not len(rows):
        return pieces
    overhead = intervals.union(timeline.host.start[rows], timeline.host.end[rows])
    open_to = np.isin(pieces.account, (_PYTHON, _DISPATCH, _UNATTRIBUTED))
    index, other = intervals.overlaps((pieces.start, pieces.end), overhead)
    index, other = index[open_to[index]], other[open_to[index]]
    if not len(index):
        return pieces
    low = np.maximum(pieces.start[index], overhead[0][other])
    high = np.minimum(pieces.end[index], overhead[1][other])
    cuts = intervals.distinct(np.concatenate([pieces.start, pieces.end, low, high]))
    first = np.searchsorted(cuts, pieces.start)
    count = np.searchsorted(cuts, pieces.end) - first
    source = np.repeat(np.arange(len(count)), count)
    at = intervals.ragged_ranges(first, count)
    start, end = cuts[at], cuts[at + 1]
    place = np.searchsorted(overhead[1], start, side="right")
    inside = place < len(overhead[0])
    inside &= overhead[0][np.minimum(place, len(overhead[0]) - 1)] <= start
    account = np.where(inside & open_to[source], _PROFILER, pieces.account[source])
    return IdlePieces(
        start,
        end,
        account.astype(np.uint8),
        pieces.host[source],
        pieces.gap[source],
        pieces.after_sync[source],
    )


def _mark_after_sync(labels: HostLabels, pieces: IdlePieces) -> IdlePieces:
    """Mark what follows a blocking wait within the same gap."""
    if not len(pieces.start):
        return pieces
    waits = np.zeros(len(pieces.start), np.bool_)
    known = pieces.host >= 0
    waits[known] = labels.waits[pieces.host[known]]
    seen = np.cumsum(waits)
    new_gap = np.append(True, pieces.gap[1:] != pieces.gap[:-1])
    before = np.where(new_gap, seen - waits, 0)
    before = np.maximum.accumulate(before)
    after = (seen - before > 0) & ~waits
    return IdlePieces(pieces.start, pieces.end, pieces.account, pieces.host, pieces.gap, after)
