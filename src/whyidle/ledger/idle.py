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


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of given intervals, each with what the host did; ``index`` names the interval."""

    index: I64
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
        self._own: dict[int, _Doing] = {}

    def during(self, thread: int, start: I64, end: I64) -> _Parts:
        """What ``thread`` did in each of the disjoint intervals [start, end), shape (n,)."""
        own = self._doing(thread)
        index, piece = intervals.overlaps((start, end), (own.start, own.end))
        parts = _Parts(
            index,
            np.maximum(start[index], own.start[piece]),
            np.minimum(end[index], own.end[piece]),
            own.account[piece],
            own.host[piece],
        )
        if thread == self.timeline.main_thread:
            return parts
        hole = self._only_waits(parts.host)
        if not hole.any():
            return parts
        kept, filled = ~hole, self._from_main(own, piece[hole], parts.start[hole], parts.end[hole])
        return _Parts(
            np.concatenate([index[kept], index[hole][filled.index]]),
            np.concatenate([parts.start[kept], filled.start]),
            np.concatenate([parts.end[kept], filled.end]),
            np.concatenate([parts.account[kept], filled.account]),
            np.concatenate([parts.host[kept], filled.host]),
        )

    def _doing(self, thread: int) -> _Doing:
        """What the thread's own rows say."""
        if thread in self._own:
            return self._own[thread]
        segments = self.nesting.threads[thread]
        event = segments.event
        account = np.full(len(event) + 2, _UNATTRIBUTED, np.uint8)
        known = event >= 0
        account[1:-1][known] = self.labels.account[event[known]]
        if self.timeline.has_operators or self.timeline.has_python:
            account[1:-1][~known] = _PYTHON
        bounds = segments.bounds if len(segments.bounds) else np.zeros(1, np.int64)
        none = np.full(1, -1, np.int32)
        far = np.iinfo(np.int64)
        self._own[thread] = _Doing(
            np.append(far.min, bounds),
            np.append(bounds, far.max),
            account,
            np.concatenate([none, event, none]),
        )
        return self._own[thread]

    def _only_waits(self, host: I32) -> Bool:
        """Whether the thread does nothing itself: it has no event, or one that only waits."""
        waits: Bool = host < 0
        waits[~waits] = self.labels.passive[host[~waits]]
        return waits

    def _from_main(self, own: _Doing, hole: I64, start: I64, end: I64) -> _Parts:
        """What the main thread did in parts [start, end) of a thread's holes ``hole``."""
        main = self._doing(self.timeline.main_thread)
        holes = intervals.distinct(hole)
        at, piece = intervals.overlaps((own.start[holes], own.end[holes]), (main.start, main.end))
        # Before a thread's first and after its last event no engine is at work.
        engine = np.zeros(len(own.start), np.bool_)
        engine[holes] = (holes > 0) & (holes < len(own.start) - 1)
        engine[holes[at[~self._only_waits(main.host[piece])]]] = False
        index, piece = intervals.overlaps((start, end), (main.start, main.end))
        dispatch = engine[hole[index]] & self._only_waits(main.host[piece])
        return _Parts(
            index,
            np.maximum(start[index], main.start[piece]),
            np.minimum(end[index], main.end[piece]),
            np.where(dispatch, np.uint8(_DISPATCH), main.account[piece]),
            main.host[piece],
        )


def idle_pieces(
    activity: HostActivity, start: I64, end: I64, launch: I32, earlier: Bool, trailing: Bool
) -> IdlePieces:
    """Attribute gaps to accounts.

    ``start``, ``end``: the gaps, sorted, shape (n,). ``launch``: the host call that launched the
    activity which ended the gap, -1 where none is recorded. ``earlier``: it was launched before
    the recording began, so the device already had the work. ``trailing``: nothing followed the
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
        did = activity.during(int(t), start[gaps], reached[gaps])
        parts.append((did.start, did.end, did.account, did.host, gaps[did.index].astype(np.int32)))
    rest = np.flatnonzero(reached < end)
    known = ((launch[rest] >= 0) | earlier[rest]) & ~trailing[rest]
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
