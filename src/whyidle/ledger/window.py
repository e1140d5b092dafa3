"""The window of a device's ledger, and the steps inside it."""

from __future__ import annotations

import numpy as np

from whyidle.ledger.model import Steps
from whyidle.timeline.columns import Timeline
from whyidle.timeline.steps import StepMarks, find_steps

# ``Steps.how`` of a device that does nothing while the host takes its steps.
IDLE_THROUGHOUT = "idle throughout the steps: the whole activity"
_BEHIND_SHARE = 0.1  # of the window: from here on it is told that steps end late. Ours.
_TAIL_SHARE = 0.05  # a longer end of the last step outside the window is told. Ours.


def window_of(timeline: Timeline, device: int) -> tuple[tuple[int, int], Steps, tuple[str, ...]]:
    """Window [start, end) in ns, steps, and warnings for a device that has activity.

    From the start of the first step to the end of the last device work of the last step (work
    launched during it); without steps, the span of the device's activity.
    """
    rows = timeline.device.device == device
    span = int(timeline.device.start[rows].min()), int(timeline.device.end[rows].max())
    marks = find_steps(timeline, device)
    if marks is None:
        return span, _whole(span), ()
    end, warnings = _end(timeline, device, marks)
    start = int(marks.start[0])
    if end <= start or not _active_within(timeline, device, start, end):
        told = f"device {device} is idle throughout the steps found by {marks.how}"
        whole = _whole(span, IDLE_THROUGHOUT)
        return span, whole, (f"{told}; its whole activity is taken instead",)
    steps = Steps(marks.start[marks.start < end], marks.source, marks.how)
    tail = int(marks.end[-1]) - end if marks.on_host else 0
    if tail > _TAIL_SHARE * (end - start):
        warnings += (
            f"device {device}: the last {tail / 1e6:.1f} ms of the last step, in which no device "
            "work follows, are not in the window",
        )
    if marks.on_host and -tail > _BEHIND_SHARE * (end - start):
        ahead = _launched_before(timeline, device, start, end)
        means = (
            f"{100 * ahead:.0f} % of the work in the window was launched before its first step, so "
            "figures per step are too high; shares are not"
            if ahead > _BEHIND_SHARE
            else "means per step do not suffer"
        )
        warnings += (
            f"device {device}: it finishes {-tail / 1e6:.1f} ms after the last step's mark, which "
            f"the last step's time and the 95th percentile include; {means}",
        )
    if outside := _busy_outside(timeline, device, start, end):
        share = outside / (outside + max(_busy_inside(timeline, device, start, end), 1))
        if share > 0.01:
            warnings += (
                f"device {device}: {outside / 1e6:.1f} ms of device work lies before the first "
                "step or after the last one and is not in the window",
            )
    return (start, end), steps, warnings


def _whole(span: tuple[int, int], how: str = "no step found: the whole activity") -> Steps:
    return Steps(np.array([span[0]], np.int64), "span", how)


def _end(timeline: Timeline, device: int, marks: StepMarks) -> tuple[int, tuple[str, ...]]:
    if not marks.on_host:
        return int(marks.end[-1]), ()
    low, high = int(marks.start[-1]), int(marks.end[-1])
    events = timeline.device
    mine = events.device == device
    launched = mine & (events.launch >= 0)
    if launched.any():
        at = timeline.host.start[events.launch[launched]]
        inside = (at >= low) & (at < high)
        if inside.any():
            return int(events.end[launched][inside].max()), ()
    else:
        inside = mine & (events.start >= low) & (events.start < high)
        if inside.any():
            return int(events.end[inside].max()), ()
    told = f"device {device}: no work was launched in the last step; the window ends with its mark"
    return high, (told,)


def _launched_before(timeline: Timeline, device: int, start: int, end: int) -> float:
    """The part of the device's work in [start, end) that was launched before ``start``."""
    events, host = timeline.device, timeline.host
    known = events.launch >= 0
    before = np.zeros(len(events), np.bool_)
    before[known] = host.start[events.launch[known]] < start
    ids = host.correlation[host.correlation > 0]
    if len(ids):  # calls are numbered as they are made: lower ids are of earlier calls
        before |= ~known & (events.correlation > 0) & (events.correlation < int(ids.min()))
    ns = np.clip(events.end, start, end) - np.clip(events.start, start, end)
    ns = np.where(events.device == device, ns, 0)
    return int(ns[before].sum()) / max(int(ns.sum()), 1)


def _active_within(timeline: Timeline, device: int, start: int, end: int) -> bool:
    events = timeline.device
    return bool(((events.device == device) & (events.end > start) & (events.start < end)).any())


def _busy_inside(timeline: Timeline, device: int, start: int, end: int) -> int:
    events = timeline.device
    mine = events.device == device
    low, high = np.clip(events.start[mine], start, end), np.clip(events.end[mine], start, end)
    return int((high - low).sum())


def _busy_outside(timeline: Timeline, device: int, start: int, end: int) -> int:
    events = timeline.device
    mine = events.device == device
    total = int((events.end[mine] - events.start[mine]).sum())
    return total - _busy_inside(timeline, device, start, end)
