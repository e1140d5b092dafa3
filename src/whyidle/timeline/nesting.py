"""Who is inside whom on a host thread, and which event is innermost at each instant.

Vectorised: the edges of properly nested events are sorted once; the open event after an edge is
the last event that started at the depth then reached. Events that overlap without nesting are cut
first, by a stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from whyidle.timeline.columns import I32, I64, U8, Bool, HostEvents, HostKind

_CHUNK = 1 << 16  # events turned into Python numbers at a time, where a loop is needed


@dataclass(frozen=True, eq=False)
class Segments:
    """The innermost host event of one thread over time.

    ``bounds`` has shape (n + 1,), ``event`` shape (n,): ``event[i]`` (an index into the host
    columns, -1 for none) is innermost in [bounds[i], bounds[i + 1]).
    """

    bounds: I64
    event: I32


@dataclass(frozen=True, eq=False)
class Nesting:
    """Parents of all host events, and per thread the innermost event over time.

    ``parent`` and ``depth`` have the shape of the host columns; ``left_out`` marks events of
    which nothing is left when overlaps are cut into a nesting.
    """

    parent: I32
    depth: I32
    left_out: Bool
    threads: tuple[Segments, ...]

    @cached_property
    def levels(self) -> list[I64]:
        """Indices of the events that have a parent, level by level, outer ones first.

        A parent is one level up, so what is known of a level follows from the one before it.
        """
        if not len(self.depth):
            return []
        order = _sorted_by(self.depth)
        deepest = int(self.depth[order[-1]])
        edges = np.searchsorted(self.depth[order], np.arange(1, deepest + 2))
        return [order[low:high] for low, high in pairwise(edges.tolist())]


def nest(host: HostEvents, threads: int) -> Nesting:
    """Nest the host events, thread by thread (host columns are sorted by thread)."""
    n = len(host)
    parent = np.full(n, -1, np.int32)
    depth = np.zeros(n, np.int32)
    left_out = np.zeros(n, np.bool_)
    bounds = np.searchsorted(host.thread, np.arange(threads + 1))
    segments = []
    for low, high in pairwise(bounds.tolist()):
        p, d, out, seg = _nest_thread(host.start[low:high], host.end[low:high], host.kind[low:high])
        parent[low:high] = np.where(p >= 0, p + low, -1)
        depth[low:high] = d
        left_out[low:high] = out
        segments.append(
            Segments(seg.bounds, np.where(seg.event >= 0, seg.event + low, -1).astype(np.int32))
        )
    return Nesting(parent, depth, left_out, tuple(segments))


def _nest_thread(start: I64, end: I64, kind: U8) -> tuple[I32, I32, Bool, Segments]:
    """Nest events sorted by (start, longest first); the result indexes into them."""
    n = len(start)
    parent = np.full(n, -1, np.int32)
    depth = np.zeros(n, np.int32)
    out = np.zeros(n, np.bool_)
    lasting = np.flatnonzero(end > start)
    stop = end[lasting]
    inner_parent, inner_depth, segments = _open_events(start[lasting], stop)
    # Up to the first event that outlives its parent all parents are right, so none is missed here.
    if ((inner_parent >= 0) & (stop > stop[inner_parent])).any():
        stop = _cut(start[lasting], stop, kind[lasting])
        alive = stop > start[lasting]
        out[lasting[~alive]] = True
        lasting, stop = lasting[alive], stop[alive]
        inner_parent, inner_depth, segments = _open_events(start[lasting], stop)
    parent[lasting] = np.where(inner_parent >= 0, lasting[inner_parent], -1)
    depth[lasting] = inner_depth
    event = np.where(segments.event >= 0, lasting[segments.event] if len(lasting) else -1, -1)
    segments = Segments(segments.bounds, event.astype(np.int32))
    instant = np.flatnonzero((end == start) | out)
    if len(instant) and len(segments.event):
        at = np.searchsorted(segments.bounds, start[instant], side="right") - 1
        inside = (at >= 0) & (at < len(segments.event))
        holder = np.where(inside, segments.event[np.clip(at, 0, len(segments.event) - 1)], -1)
        holder = np.where(holder == instant, -1, holder)
        parent[instant] = holder
        depth[instant] = np.where(holder >= 0, depth[holder] + 1, 0)
    return parent, depth, out, segments


def _cut(start: I64, end: I64, kind: U8) -> I64:
    """Ends with which events of positive length nest, shape (n,).

    A child that outlives its parent (clock rounding, asynchronous events) ends with it, for the
    parent's end is what was measured around it. An annotation, though, starts inside the Python
    call that opens it (``_record_function_enter``) and outlives it by far: of a Python call and an
    annotation that overlap the one is cut that loses less.
    """
    stop = end.copy()
    stack: list[tuple[int, int, int]] = []  # event, its end, its kind
    for low in range(0, len(start), _CHUNK):
        part = slice(low, low + _CHUNK)
        rows = zip(start[part].tolist(), end[part].tolist(), kind[part].tolist(), strict=True)
        for event, (begin, until, what) in enumerate(rows, low):
            while stack and stack[-1][1] <= begin:
                stack.pop()
            if stack and until > stack[-1][1]:
                opened = what == HostKind.ANNOTATION
                fixed = (e for _, e, k in reversed(stack) if not (opened and k == HostKind.PYTHON))
                until = min(until, next(fixed, until))
                while stack and until > stack[-1][1]:
                    if stack[-1][1] - begin > until - stack[-1][1]:
                        until = stack[-1][1]
                    else:
                        stop[stack.pop()[0]] = begin
                stop[event] = until
            stack.append((event, until, what))
    return stop


def _sorted_by(level: I32) -> I64:
    """Stable order by level. numpy sorts 16-bit integers by radix, several times faster."""
    small = not len(level) or int(level.max()) < 2**15
    return np.argsort(level.astype(np.int16) if small else level, kind="stable")


def _open_events(start: I64, end: I64) -> tuple[I32, I32, Segments]:
    """Parent, depth and innermost segments of events with positive length."""
    n = len(start)
    if not n:
        return (
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            Segments(np.empty(0, np.int64), np.empty(0, np.int32)),
        )
    by_end = np.argsort(end, kind="stable")
    # Merge starts and ends; at equal times ends come first.
    place_of_start = np.arange(n) + np.searchsorted(end[by_end], start, side="right")
    place_of_end = np.arange(n) + np.searchsorted(start, end[by_end], side="left")
    time = np.empty(2 * n, np.int64)
    step = np.empty(2 * n, np.int32)
    event = np.empty(2 * n, np.int32)
    time[place_of_start], step[place_of_start] = start, 1
    event[place_of_start] = np.arange(n)
    time[place_of_end], step[place_of_end] = end[by_end], -1
    event[place_of_end] = -1
    level = np.cumsum(step, dtype=np.int32)
    # Within one level the edges stay in time order, so "last start before" is a running maximum.
    by_level = _sorted_by(level)
    by_event = event[by_level]
    last = np.where(by_event >= 0, np.arange(2 * n, dtype=np.int32), np.int32(-1))
    # A level's first edge is always a start (nothing can end before it starts), so the running
    # maximum never reaches back into the level before.
    np.maximum.accumulate(last, out=last)
    innermost = np.empty(2 * n, np.int32)
    innermost[by_level] = by_event[last]
    innermost[level <= 0] = -1
    before = np.concatenate([[-1], innermost[:-1]]).astype(np.int32)
    segment_event = innermost[:-1]
    wide = time[1:] > time[:-1]
    bounds = np.append(time[:-1][wide], time[-1])
    return before[place_of_start], level[place_of_start] - 1, Segments(bounds, segment_event[wide])
