"""Where the main thread's time went: what is left to tell of a trace without GPU activity.

This is host time, not GPU time, and no ledger: nothing in it says that a GPU was idle. It uses
the host labels of the ledger (``whyidle.ledger.host``), so that "input" means the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.ledger.accounts import ACCOUNTS, INDEX
from whyidle.ledger.host import HostLabels, label_host
from whyidle.ledger.model import sums
from whyidle.timeline import intervals
from whyidle.timeline.columns import HostKind, Timeline
from whyidle.timeline.intervals import Intervals
from whyidle.timeline.nesting import Nesting
from whyidle.timeline.steps import find_steps

_PREFIX = "idle."
_PYTHON, _OPERATORS = INDEX["idle.python"], INDEX["idle.dispatch"]
_SMALLEST_SHARE_TOLD = 0.01  # ours: a sentence is no table

# The ledger's words say what the host did while the GPU waited; here no GPU waited.
_DOING = {
    "input": "getting the next batch",
    "dispatch": "in operators",
    "python": "in Python between operators",
    "optimizer": "in the optimizer",
    "transfer": "in host-device copies",
    "sync": "in synchronize calls and .item()",
    "allocator": "allocating memory",
    "compile": "compiling",
    "comm": "waiting in collectives",
    "checkpoint": "writing checkpoints",
    "evaluation": "in validation",
    "logging": "logging",
    "startup": "starting up",
    "gc": "in garbage collection",
    "profiler": "in the profiler itself",
    "unattributed": "without any record",
}


@dataclass(frozen=True)
class HostAccount:
    """The main thread's time over the steps.

    ``window`` is [start, end) in ns, from the first step's start to the last step's end, or the
    thread's recorded span where no step is known (``steps`` is 0 then). ``ns`` maps what the
    thread did (the ledger's idle accounts without "idle.") to nanoseconds, largest first; the
    values add up to the window.
    """

    window: tuple[int, int]
    steps: int
    how: str
    ns: dict[str, int]

    @property
    def window_ns(self) -> int:
        """Length of the window."""
        return self.window[1] - self.window[0]

    def share(self, doing: str) -> float:
        """Share of the window spent ``doing`` one thing, in [0, 1]."""
        return self.ns.get(doing, 0) / self.window_ns if self.window_ns else 0.0


def host_account(
    timeline: Timeline, nesting: Nesting, labels: HostLabels | None = None
) -> HostAccount | None:
    """Account for the main thread's time, or None where the trace holds no time of it.

    Each instant goes to the label of the innermost event. Where the main thread runs no operator
    and another thread does (autograd's, which it waits for), the instant goes to operators.
    """
    main = timeline.main_thread
    if main < 0 or not len(nesting.threads[main].event):
        return None
    labels = labels or label_host(timeline, nesting)
    window, steps, how = _window(timeline, nesting)
    if window[1] <= window[0]:
        return None
    segments = nesting.threads[main]
    account = np.full(len(segments.event), _PYTHON, np.uint8)
    known = segments.event >= 0
    account[known] = labels.account[segments.event[known]]
    start, end = np.clip(segments.bounds[:-1], *window), np.clip(segments.bounds[1:], *window)
    totals = sums(account, end - start)
    python = intervals.union(start[account == _PYTHON], end[account == _PYTHON])
    waited = intervals.total(intervals.intersect(python, _other_operators(timeline)))
    totals[_PYTHON] -= waited
    totals[_OPERATORS] += waited
    totals[INDEX["idle.unattributed"]] += window[1] - window[0] - int(totals.sum())
    ns = {ACCOUNTS[i].name.removeprefix(_PREFIX): int(totals[i]) for i in np.flatnonzero(totals)}
    return HostAccount(window, steps, how, dict(sorted(ns.items(), key=lambda item: -item[1])))


def sentence(account: HostAccount) -> str:
    """The account in one sentence, which says that it is not GPU time."""
    told = [
        f"{100 * account.share(doing):.0f} % {_DOING[doing]}"
        for doing in account.ns
        if account.share(doing) >= _SMALLEST_SHARE_TOLD
    ]
    over = f"over {account.steps} steps" if account.steps else "over its recorded span"
    if account.steps == 1:
        over = "over 1 step"
    return f"host time, not GPU time: {over} the main thread was {', '.join(told)}"


def _window(timeline: Timeline, nesting: Nesting) -> tuple[tuple[int, int], int, str]:
    marks = find_steps(timeline, -1)
    if marks is not None:
        return (int(marks.start[0]), int(marks.end[-1])), len(marks.start), marks.how
    bounds = nesting.threads[timeline.main_thread].bounds
    return (int(bounds[0]), int(bounds[-1])), 0, "no step found: the main thread's recorded span"


def _other_operators(timeline: Timeline) -> Intervals:
    """When threads other than the main one ran operators."""
    host = timeline.host
    other = (host.kind == HostKind.OPERATOR) & (host.thread != timeline.main_thread)
    return intervals.union(host.start[other], host.end[other])
