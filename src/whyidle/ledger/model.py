"""The ledger of one device: a table of segments that tiles the window without gap or overlap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whyidle.ledger.accounts import ACCOUNTS, FIRST_IDLE, INDEX
from whyidle.timeline.columns import I32, I64, U8, Bool


@dataclass(frozen=True, eq=False)
class Segments:
    """Consecutive pieces of the window, each in one account. All arrays have shape (n,).

    Indices are -1 where there is nothing: ``activity`` is the device event that a busy piece is
    charged to, or for an idle piece the one that ended the gap; ``launch`` the host call that
    launched it; ``host`` the innermost host event during an idle piece; ``gap`` numbers the gaps.
    ``after_sync`` marks idle pieces that follow a synchronize within the same gap.
    """

    start: I64
    end: I64
    account: U8
    activity: I32
    launch: I32
    host: I32
    gap: I32
    after_sync: Bool

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def ns(self) -> I64:
        """Length of each segment in ns."""
        return self.end - self.start

    @cached_property
    def idle(self) -> Bool:
        """Whether each segment is idle."""
        return self.account >= FIRST_IDLE


@dataclass(frozen=True, eq=False)
class Steps:
    """Training steps. Step i runs from start[i] to start[i + 1], the last to the window's end.

    ``source`` is "steps" (annotations), "repetition" (found in the trace) or "span" (none found:
    one step, the whole span). ``how`` says in words what they were found by.
    """

    start: I64
    source: str
    how: str

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class Ledger:
    """Where one device's time went.

    ``window`` is [start, end) in ns; ``activity_span`` and ``activity_busy_ns`` cover all of the
    device's recorded activity, whatever the window.
    """

    rank: int | None
    device: int
    window: tuple[int, int]
    steps: Steps
    segments: Segments
    activity_span: tuple[int, int]
    activity_busy_ns: int
    warnings: tuple[str, ...] = ()

    @property
    def window_ns(self) -> int:
        """Length of the window."""
        return self.window[1] - self.window[0]

    def by_account(self) -> I64:
        """Nanoseconds by account, shape (len(ACCOUNTS),)."""
        return self._by_account.copy()

    @cached_property
    def _by_account(self) -> I64:
        return sums(self.segments.account, self.segments.ns)

    def ns(self, *names: str) -> int:
        """Nanoseconds in the named accounts; a name ending in "." takes all below it."""
        totals = self.by_account()
        return sum(
            int(totals[i])
            for name, i in INDEX.items()
            if any(name == n or (n.endswith(".") and name.startswith(n)) for n in names)
        )

    @property
    def busy_ns(self) -> int:
        """Busy nanoseconds of the window."""
        return int(self.by_account()[:FIRST_IDLE].sum())

    @property
    def idle_ns(self) -> int:
        """Idle nanoseconds of the window."""
        return int(self.by_account()[FIRST_IDLE:].sum())

    def step_edges(self) -> I64:
        """Edges of the steps, shape (len(steps) + 1,)."""
        return np.append(self.steps.start, self.window[1])

    def by_step(self) -> I64:
        """Nanoseconds by step and account, shape (len(steps), len(ACCOUNTS))."""
        edges = self.step_edges()
        table = np.zeros((len(self.steps), len(ACCOUNTS)), np.int64)
        seg = self.segments
        first = np.searchsorted(edges, seg.start, side="right") - 1
        last = np.searchsorted(edges, seg.end, side="left") - 1
        inside = first == last
        np.add.at(table, (first[inside], seg.account[inside]), seg.ns[inside])
        for i in np.flatnonzero(~inside):
            for step in range(first[i], last[i] + 1):
                low, high = max(seg.start[i], edges[step]), min(seg.end[i], edges[step + 1])
                table[step, seg.account[i]] += high - low
        return table

    def check(self) -> None:
        """Raise AssertionError unless the segments tile the window exactly (conservation)."""
        seg = self.segments
        wrong = ""
        if not len(seg):
            wrong = "an empty ledger over a window with time in it" if self.window_ns else ""
        elif int(seg.start[0]) != self.window[0]:
            wrong = "the ledger does not start with the window"
        elif int(seg.end[-1]) != self.window[1]:
            wrong = "the ledger does not end with the window"
        elif (seg.end[:-1] != seg.start[1:]).any():
            wrong = "the ledger has a hole or an overlap"
        elif (seg.end <= seg.start).any():
            wrong = "the ledger has an empty or negative segment"
        if wrong:  # no assert statement: it must hold under python -O too
            raise AssertionError(f"device {self.device}: {wrong}")


def sums(account: U8, ns: I64) -> I64:
    """Exact integer sums of ``ns`` by account, shape (len(ACCOUNTS),)."""
    table = np.zeros(len(ACCOUNTS), np.int64)
    np.add.at(table, account, ns)
    return table
