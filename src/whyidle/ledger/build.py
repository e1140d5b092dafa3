"""Timeline -> Ledgers: one for each device that has activity."""

from __future__ import annotations

import numpy as np

from whyidle.ledger.busy import busy_pieces
from whyidle.ledger.host import HostLabels, label_host
from whyidle.ledger.idle import HostActivity, idle_pieces
from whyidle.ledger.kinds import busy_accounts
from whyidle.ledger.model import Ledger, Segments
from whyidle.ledger.window import window_of
from whyidle.timeline import intervals
from whyidle.timeline.columns import I32, I64, Bool, Timeline
from whyidle.timeline.nesting import Nesting


def build_ledgers(
    timeline: Timeline, nesting: Nesting, labels: HostLabels | None = None
) -> tuple[Ledger, ...]:
    """The ledger of every device, each checked to account for its whole window."""
    labels = labels or label_host(timeline, nesting)
    activity = HostActivity(timeline, nesting, labels)
    devices = intervals.distinct(timeline.device.device)
    return tuple(_device_ledger(timeline, activity, int(d)) for d in devices)


def _device_ledger(timeline: Timeline, activity: HostActivity, device: int) -> Ledger:
    window, steps, warnings = window_of(timeline, device)
    events = timeline.device
    rows = np.flatnonzero(events.device == device).astype(np.int32)
    start, end = events.start[rows], events.end[rows]
    union = intervals.union(start, end)
    account = busy_accounts(events, timeline.names)[rows]
    low, high = np.clip(start, *window), np.clip(end, *window)
    busy = busy_pieces(low, high, account, rows)
    gap_start, gap_end = intervals.complement(union, *window)
    ender, trailing = _enders(start, gap_end, rows)
    launch = np.where(ender >= 0, events.launch[ender], -1).astype(np.int32)
    earlier = _launched_before(timeline)[ender] & ~trailing
    idle = idle_pieces(activity, gap_start, gap_end, launch, earlier, trailing)
    none = np.full(len(busy.start), -1, np.int32)
    parts = Segments(
        np.concatenate([busy.start, idle.start]),
        np.concatenate([busy.end, idle.end]),
        np.concatenate([busy.account, idle.account]),
        np.concatenate([busy.activity, ender[idle.gap]]),
        np.concatenate([events.launch[busy.activity], launch[idle.gap]]),
        np.concatenate([none, idle.host]),
        np.concatenate([none, idle.gap]),
        np.concatenate([np.zeros(len(none), np.bool_), idle.after_sync]),
    )
    ledger = Ledger(
        timeline.source.rank,
        device,
        window,
        steps,
        _in_order(parts),
        (int(start.min()), int(end.max())),
        intervals.total(union),
        warnings,
    )
    ledger.check()
    return ledger


def _enders(start: I64, gap_end: I64, rows: I32) -> tuple[I32, Bool]:
    """The activity that ends each gap (the next one, if the window does), -1 if none follows."""
    at = np.searchsorted(start, gap_end, side="left")
    trailing = at >= len(start)
    ender = rows[np.minimum(at, len(start) - 1)]
    return np.where(trailing, -1, ender).astype(np.int32), trailing


def _launched_before(timeline: Timeline) -> Bool:
    """Device events launched before the recording began, shape (device events,).

    CUPTI and roctracer number the calls as they are made: an id below that of every recorded call
    belongs to an earlier one.
    """
    host, events = timeline.host, timeline.device
    ids = host.correlation[host.correlation > 0]
    if not len(ids):
        return np.zeros(len(events), np.bool_)
    before: Bool = (
        (events.launch < 0) & (events.correlation > 0) & (events.correlation < int(ids.min()))
    )
    return before


def _in_order(s: Segments) -> Segments:
    order = np.argsort(s.start, kind="stable")
    return Segments(
        s.start[order],
        s.end[order],
        s.account[order],
        s.activity[order],
        s.launch[order],
        s.host[order],
        s.gap[order],
        s.after_sync[order],
    )
