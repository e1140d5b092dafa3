"""Picture -> compact plain data for drawing a few steps: host rows, idle gaps, device streams.

Times are ns from the start of their step, so that they stay exact in the browser's doubles. Lists
of one kind of event are columns of equal length. Names are indices into ``names``; a chain is a
host event's name and its ancestors', innermost first, as an index into ``chains``. Accounts are
indices into the ledger's.

The number of events is bounded; what is left out (the shortest first) is counted per step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whyidle.ledger.kinds import busy_accounts
from whyidle.ledger.model import Ledger
from whyidle.reports.html.gaps import Gaps, gaps_of
from whyidle.reports.html.lanes import Lane, host_lanes
from whyidle.reports.model import Picture
from whyidle.reports.words import device_title, plain
from whyidle.timeline.columns import I64, Timeline
from whyidle.timeline.nesting import Nesting
from whyidle.timeline.steps import find_steps

MAX_EVENTS = 40_000  # over all steps: about 40 bytes each, 100 an idle block
MAX_STEPS = 5
_MAX_STREAMS = 12
_CHAIN = 16  # names kept of one chain: the innermost; a last entry of -n says n more are left out
_NAME_LIMIT = 300
# Traces with tens of thousands of different names or ancestries would break the page's bound.
_NAME_BYTES = 1_200_000  # of all names; what comes later is only said to be left out
_NAME_LEFT_OUT = "(name left out: too many long names)"
_FULL_CHAINS = 8_000  # kept with all their names; later ones with the innermost two


@dataclass
class _Tables:
    """Names and chains, each text once."""

    timeline: Timeline
    nesting: Nesting
    names: list[str] = field(default_factory=list)
    chains: list[list[int]] = field(default_factory=list)
    _by_name: dict[int, int] = field(default_factory=dict)
    _by_event: dict[int, int] = field(default_factory=dict)
    _by_chain: dict[tuple[int, ...], int] = field(default_factory=dict)
    _by_text: dict[str, int] = field(default_factory=dict)
    _bytes: int = 0

    def name(self, index: int) -> int:
        """The place of a timeline's name; -1 for none."""
        if index < 0:
            return -1
        if index not in self._by_name:
            text, size = _NAME_LEFT_OUT, 0
            if self._bytes < _NAME_BYTES:
                text = plain(self.timeline.names[index][: _NAME_LIMIT + 1], _NAME_LIMIT)
                size = len(json.dumps(text))
            if text not in self._by_text:
                self._bytes += size
                self._by_text[text] = len(self.names)
                self.names.append(text)
            self._by_name[index] = self._by_text[text]
        return self._by_name[index]

    def chain(self, event: int) -> int:
        """The place of a host event's chain; -1 for no event."""
        if event < 0:
            return -1
        if event not in self._by_event:
            most = _CHAIN if len(self.chains) < _FULL_CHAINS else 2
            links: list[int] = []
            left = 0
            at = event
            while at >= 0:
                if len(links) < most:
                    links.append(self.name(int(self.timeline.host.name[at])))
                else:
                    left += 1
                at = int(self.nesting.parent[at])
            key = (*links, -left) if left else tuple(links)
            if key not in self._by_chain:
                self._by_chain[key] = len(self.chains)
                self.chains.append(list(key))
            self._by_event[event] = self._by_chain[key]
        return self._by_event[event]


def picture_data(picture: Picture) -> dict[str, Any] | None:
    """The step of median duration and up to four others; None where there is nothing to draw."""
    timeline = picture.timeline
    ledger = max(picture.ledgers, key=_idle_share, default=None)
    edges = _edges(timeline, ledger)
    if edges is None:
        return None
    tables = _Tables(timeline, picture.nesting)
    chosen = choose_steps(np.diff(edges) if ledger is not None else edges[1::2] - edges[::2])
    steps = []
    budget = MAX_EVENTS
    for place, (index, why) in enumerate(chosen):
        low, high = _bounds(edges, index, ledger is not None)
        # The step shown first may use up to two thirds of the room, the others share the rest.
        share = (
            budget * 2 // 3 if place == 0 and len(chosen) > 1 else budget // (len(chosen) - place)
        )
        step, drawn = _step(tables, ledger, low, high, share)
        budget -= drawn
        steps.append({"index": index, "why": why, "ns": high - low, **step})
    source = timeline.source
    return {
        "path": plain(source.path, 2000),
        "device": None if ledger is None else device_title(ledger.rank, ledger.device),
        "devices": len(picture.ledgers),
        "found": "none" if ledger is None else ledger.steps.source,
        "steps_total": len(edges) - 1 if ledger is not None else len(edges) // 2,
        "names": tables.names,
        "chains": tables.chains,
        "steps": steps,
    }


def _idle_share(ledger: Ledger) -> float:
    return ledger.idle_ns / max(ledger.window_ns, 1)


def _edges(timeline: Timeline, ledger: Ledger | None) -> I64 | None:
    """Edges of the ledger's steps; without a ledger the host's steps as start, end, start, ..."""
    if ledger is not None:
        return ledger.step_edges() if ledger.window_ns > 0 else None
    main = timeline.main_thread
    own = timeline.host.thread == main
    if main < 0 or not own.any():
        return None
    marks = find_steps(timeline, -1)
    if marks is not None and len(marks.start) and bool((marks.end > marks.start).all()):
        return np.stack([marks.start, marks.end], axis=1).ravel()
    span = int(timeline.host.start[own].min()), int(timeline.host.end[own].max())
    return np.array(span, np.int64) if span[1] > span[0] else None


def _bounds(edges: I64, index: int, shared: bool) -> tuple[int, int]:
    first = index if shared else 2 * index
    return int(edges[first]), int(edges[first + 1])


def choose_steps(ns: I64) -> list[tuple[int, str]]:
    """(index, why) of the steps to draw: the lower median first, then the extremes and the ends.

    A step is drawn once, with every reason it was chosen for.
    """
    order = np.argsort(ns, kind="stable")
    n = len(order)
    wanted = [
        (int(order[(n - 1) // 2]), "median"),
        (int(order[-1]), "longest"),
        (int(order[0]), "shortest"),
        (0, "first"),
        (n - 1, "last"),
    ]
    if n == 1:
        return [(0, "the only one")]
    reasons: dict[int, list[str]] = {}
    for index, why in wanted:
        reasons.setdefault(index, []).append(why)
    return [(index, ", ".join(why)) for index, why in reasons.items()][:MAX_STEPS]


def allot(wanted: list[int], room: int) -> list[int]:
    """Divide ``room`` equally, each at most what it wants; what one leaves, others may use."""
    given = [0] * len(wanted)
    open_ = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for place, i in enumerate(open_):
        given[i] = min(wanted[i], room // (len(open_) - place))
        room -= given[i]
    return given


def _step(
    tables: _Tables, ledger: Ledger | None, low: int, high: int, room: int
) -> tuple[dict[str, Any], int]:
    """One step's data, and how many events it holds."""
    timeline = tables.timeline
    gaps = gaps_of(timeline, ledger, low, high) if ledger is not None else None
    rows, streams, more_streams = _device_rows(timeline, ledger, low, high)
    lanes, other_threads, unnested = host_lanes(timeline, tables.nesting, ledger, low, high)
    events = np.concatenate([lane.events for lane in lanes]) if lanes else np.empty(0, np.int64)
    n_gaps = 0 if gaps is None else len(gaps.start)
    kept = allot([n_gaps, len(rows), len(events)], room)
    device, host = timeline.device, timeline.host
    kept_gaps, lost_gaps = _longest(None if gaps is None else gaps.end - gaps.start, kept[0])
    kept_rows, lost_rows = _longest(device.end[rows] - device.start[rows], kept[1])
    kept_host, lost_host = _longest(host.end[events] - host.start[events], kept[2])
    drawn = np.zeros(len(host), np.bool_)
    drawn[events[kept_host]] = True
    data = {
        "lanes": [_lane(tables, lane, drawn, low) for lane in lanes],
        "gaps": None if gaps is None else _gap_columns(tables, gaps, kept_gaps, low),
        "streams": _stream_columns(tables, rows[kept_rows], streams, low),
        "left_out": {
            "host": lost_host,
            "device": lost_rows,
            "gaps": lost_gaps,
            "threads": other_threads,
            "streams": more_streams,
            "unnested": unnested,
        },
    }
    return data, sum(kept)


def _longest(ns: I64 | None, count: int) -> tuple[I64, dict[str, int]]:
    """Indices of the ``count`` longest, in order; and how many are left out, how long at most.

    Equal ones are taken in order, so that a parent, which comes first, is never lost before its
    child.
    """
    if ns is None:
        return np.empty(0, np.int64), {"count": 0, "of": 0, "longest_ns": 0, "ns": 0}
    order = np.argsort(-ns, kind="stable")
    lost = ns[order[count:]]
    told = {
        "count": len(lost),
        "of": len(ns),
        "longest_ns": int(lost.max(initial=0)),
        "ns": int(lost.sum()),
    }
    return np.sort(order[:count]), told


def _device_rows(
    timeline: Timeline, ledger: Ledger | None, low: int, high: int
) -> tuple[I64, list[int], int]:
    """Device events of the step, the streams to draw (busiest first), how many others there are."""
    device = timeline.device
    if ledger is None:
        return np.empty(0, np.int64), [], 0
    inside = (device.device == ledger.device) & (device.end > low) & (device.start < high)
    rows = np.flatnonzero(inside)
    ns = np.minimum(device.end[rows], high) - np.maximum(device.start[rows], low)
    streams, place = np.unique(device.stream[rows], return_inverse=True)
    busy = np.bincount(place, weights=ns, minlength=len(streams))
    order = np.argsort(-busy, kind="stable")
    kept = order[:_MAX_STREAMS]
    drawn = np.isin(place, kept)
    return rows[drawn], [int(streams[i]) for i in kept], len(order) - len(kept)


def _lane(tables: _Tables, lane: Lane, drawn: Any, low: int) -> dict[str, Any]:
    host = tables.timeline.host
    events = lane.events[drawn[lane.events]]
    depth = tables.nesting.depth[events] - len(lane.outer)
    return {
        "title": plain(lane.title, 100),
        "outer": [tables.name(int(host.name[e])) for e in lane.outer],
        "start": (host.start[events] - low).tolist(),
        "ns": (host.end[events] - host.start[events]).tolist(),
        "name": [tables.name(n) for n in host.name[events].tolist()],
        "depth": depth.tolist(),
        "kind": host.kind[events].tolist(),
    }


def _gap_columns(tables: _Tables, gaps: Gaps, kept: I64, low: int) -> dict[str, Any]:
    """Idle blocks. ``did`` lists [chain, ns] of what the host did, longest first; ``more`` is
    how many other host events the list leaves out."""
    device, host = tables.timeline.device, tables.timeline.host
    chosen = kept.tolist()
    ended = [int(gaps.activity[i]) for i in chosen]
    launch = [int(gaps.launch[i]) for i in chosen]
    return {
        "start": (gaps.start[kept] - low).tolist(),
        "ns": (gaps.end[kept] - gaps.start[kept]).tolist(),
        "account": gaps.account[kept].tolist(),
        "did": [[[tables.chain(e), ns] for e, ns in gaps.did[i]] for i in chosen],
        "more": [gaps.more[i] for i in chosen],
        "ended": [tables.name(int(device.name[e])) if e >= 0 else -1 for e in ended],
        "launch": [tables.name(int(host.name[e])) if e >= 0 else -1 for e in launch],
        "after_sync": gaps.after_sync[kept].tolist(),
    }


def _stream_columns(
    tables: _Tables, rows: I64, streams: list[int], low: int
) -> list[dict[str, Any]]:
    """One block of columns a stream. ``lead`` is the ns from the launch call's start to the
    activity's; null where no call was recorded."""
    device, host = tables.timeline.device, tables.timeline.host
    account = busy_accounts(device, tables.timeline.names)
    columns = []
    for stream in streams:
        own = rows[device.stream[rows] == stream]
        launch = device.launch[own].tolist()
        start = device.start[own].tolist()
        columns.append(
            {
                "title": f"stream {stream}",
                "start": (device.start[own] - low).tolist(),
                "ns": (device.end[own] - device.start[own]).tolist(),
                "name": [tables.name(n) for n in device.name[own].tolist()],
                "account": account[own].tolist(),
                "chain": [tables.chain(e) for e in launch],
                "lead": [
                    int(s - host.start[e]) if e >= 0 else None
                    for s, e in zip(start, launch, strict=True)
                ],
            }
        )
    return columns
