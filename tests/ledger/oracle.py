"""The ledger once more, slowly and plainly: a stack, loops and instants instead of arrays.

Written from the definition (docs/ledger.md). It shares with the product only its tables: what
label a host event's name has (``own_label``), what account an activity's name has
(``busy_account``), and the order of accounts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise

from whyidle.ledger.accounts import INDEX
from whyidle.ledger.host import own_label
from whyidle.ledger.kinds import busy_account
from whyidle.timeline.columns import DeviceKind, HostKind

from .oracle_trace import Call, Trace, Work
from .oracle_window import window

SYNC, TRANSFER, COPY = 40, 38, 41  # strengths in the table of host labels
RETURNS_LATER = re.compile(
    r"run_backward|autograd/(__init__|graph)\.py|_tensor\.py\(\d+\): backward"
)
CROSSING = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost", re.IGNORECASE)
BLOCKING = re.compile(r"Memcpy(?!.*Async)|MemcpyWithStream", re.IGNORECASE)
COPY_OPERATOR = re.compile(r"aten::(copy_|_copy_from|_to_copy|to)$", re.IGNORECASE)


@dataclass
class Piece:
    """A stretch of time in one account. Numbers are rows of the trace, -1 none."""

    start: int
    end: int
    account: str
    ender: int = -1  # the activity that ends the gap
    host: int = -1  # what the host was in
    after_sync: bool = False


class Thread:
    """Who is innermost when on one thread."""

    def __init__(self, calls: list[Call]) -> None:
        _nest(calls)
        lasting = [c for c in calls if c.stop > c.start]
        self.edges = sorted({t for c in lasting for t in (c.start, c.stop)})
        self.inner: list[Call | None] = [None] * len(self.edges)
        for call in lasting:  # outer ones come first, so the innermost stays
            low, high = bisect_left(self.edges, call.start), bisect_left(self.edges, call.stop)
            self.inner[low:high] = [call] * (high - low)

    def alive(self, instant: int) -> bool:
        return bool(self.edges) and self.edges[0] <= instant < self.edges[-1]

    def at(self, instant: int) -> Call | None:
        place = bisect_right(self.edges, instant) - 1
        return self.inner[place] if place >= 0 else None

    def during(self, low: int, high: int) -> list[Call | None]:
        """Whom it was in, at each of its changes in [low, high)."""
        inside = self.edges[bisect_right(self.edges, low) : bisect_left(self.edges, high)]
        return [self.at(instant) for instant in (low, *inside)]


def _nest(calls: list[Call]) -> None:
    """Parents by a stack. A call that outlives the one around it ends with it; but of an annotation
    and the Python call that opened it (``_record_function_enter``) the one is cut that loses less.
    """
    stack: list[Call] = []
    for call in calls:
        while stack and stack[-1].stop <= call.start:
            stack.pop()
        if call.end > call.start:
            opened = call.kind == HostKind.ANNOTATION
            for other in stack:
                if not (opened and other.kind == HostKind.PYTHON):
                    call.stop = min(call.stop, other.stop)
            while stack and call.stop > stack[-1].stop:
                if stack[-1].stop - call.start <= call.stop - stack[-1].stop:
                    stack.pop().stop = call.start
                else:
                    call.stop = stack[-1].stop
        call.parent = stack[-1] if stack else None
        if call.end > call.start:
            stack.append(call)


class Oracle:
    """Ledgers of a trace by brute force."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        rows: dict[int, list[Call]] = {trace.main: []}
        for call in trace.calls:
            rows.setdefault(call.thread, []).append(call)
        self.threads = {thread: Thread(calls) for thread, calls in rows.items()}
        self.main = self.threads[trace.main]
        self._label()
        kinds = {c.kind for c in trace.calls}
        self.evidence = bool(kinds & {HostKind.OPERATOR, HostKind.PYTHON})
        self.first_id = min((c.correlation for c in trace.calls if c.correlation > 0), default=0)
        self.overhead = [
            c
            for c in trace.calls
            if c.kind == HostKind.OVERHEAD and c.label[0] == "idle.profiler" and c.end > c.start
        ]
        self.engine: dict[tuple[int, int], bool] = {}

    def _label(self) -> None:
        """Strongest label among an event and its ancestors; the innermost of equals."""
        calls = self.trace.calls
        for call in calls:
            call.label = own_label(call.name, call.kind)
        holders_of_copies, copying = set(), set()
        for work in self.trace.works:
            if work.kind != DeviceKind.MEMCPY or not work.launch or not CROSSING.search(work.name):
                continue
            holders_of_copies.add(id(work.launch.parent))
            if "pageable" in work.name.lower() or BLOCKING.search(work.launch.name):
                work.launch.label = ("idle.transfer", TRANSFER)
                copying.add(id(work.launch.parent))
        for call in calls:
            waits = call.kind == HostKind.RUNTIME and call.label[0] == "idle.sync"
            if waits and id(call.parent) in holders_of_copies:
                copying.add(id(call.parent))
        for call in calls:
            if id(call) in copying and COPY_OPERATOR.match(call.name):
                call.label = ("idle.transfer", COPY)
        for call in calls:
            call.waits = call.label[1] in (TRANSFER, COPY) or (
                call.kind == HostKind.RUNTIME and call.label[1] == SYNC
            )
        for call in sorted(calls, key=_depth):
            if call.parent:
                call.waits |= call.parent.waits
                if call.label[1] < call.parent.label[1]:
                    call.label = call.parent.label

    def pieces(self, device: int) -> list[Piece]:
        """The window of a device, cut into pieces."""
        low, high = window(self.trace, device)
        works = [w for w in self.trace.works if w.device == device]
        edges = sorted(
            {min(max(t, low), high) for w in works for t in (w.start, w.end)} | {low, high}
        )
        starting: dict[int, list[Work]] = {}
        for work in works:
            if min(work.end, high) > max(work.start, low):
                starting.setdefault(max(work.start, low), []).append(work)
        found: list[Piece] = []
        running: list[Work] = []
        gap = low
        for left, right in pairwise(edges):
            running = [w for w in running if w.end > left] + starting.get(left, [])
            if not running:
                continue
            if gap < left:
                found += self._gap(works, gap, left)
            accounts = [busy_account(w.name, w.kind) for w in running]
            found.append(Piece(left, right, min(accounts, key=INDEX.__getitem__)))
            gap = right
        return found + (self._gap(works, gap, high) if gap < high else [])

    def _gap(self, works: list[Work], a: int, b: int) -> list[Piece]:
        ender = next((w for w in works if w.start >= b), None)
        if ender is None:
            known = self.trace.main >= 0
            parts = self._host(self.trace.main, a, b) if known else [Piece(a, b, UNKNOWN)]
        elif ender.launch is None:
            before = 0 < ender.correlation < self.first_id
            parts = [Piece(a, b, "idle.queue" if before else UNKNOWN)]
        else:
            reached = min(max(ender.launch.end, a), b)
            parts = self._host(ender.launch.thread, a, reached)
            parts += [Piece(reached, b, "idle.queue")] if reached < b else []
        parts = [cut for part in parts for cut in self._overhead(part)]
        waited = False
        for part in parts:
            part.ender = ender.number if ender else -1
            waits = part.host >= 0 and self.trace.calls[part.host].waits
            part.after_sync = waited and not waits
            waited |= waits
        return parts

    def _host(self, thread: int, a: int, b: int) -> list[Piece]:
        """[a, b) by what a thread did: between two edges of those concerned nothing changes."""
        cuts = {a, b}
        for edges in (self.threads[thread].edges, self.main.edges):
            cuts.update(edges[bisect_right(edges, a) : bisect_left(edges, b)])
        found = []
        for left, right in pairwise(sorted(cuts)):
            account, call = self._doing(thread, left)
            found.append(Piece(left, right, account, host=call.number if call else -1))
        return found

    def _doing(self, thread: int, instant: int) -> tuple[str, Call | None]:
        own, main = self.threads[thread], self.main.at(instant)
        if own is not self.main:
            call = own.at(instant)
            if call and not self._only_waits(call):
                return call.label[0], call
            if own.alive(instant) and self._between_operators(thread, instant):
                return "idle.dispatch", main
        if main:
            return main.label[0], main
        return ("idle.python" if self.main.alive(instant) and self.evidence else UNKNOWN), None

    def _between_operators(self, thread: int, instant: int) -> bool:
        """Whether the main thread only waits while this thread is between two of its events."""
        edges = self.threads[thread].edges
        place = bisect_right(edges, instant) - 1
        if (thread, place) not in self.engine:
            around = self.main.during(edges[place], edges[place + 1])
            self.engine[thread, place] = all(c is None or self._only_waits(c) for c in around)
        return self.engine[thread, place]

    def _only_waits(self, call: Call) -> bool:
        """In an annotation, or in ``backward()``: another thread does the work."""
        if call.label[0] != "idle.python":
            return False
        return call.kind == HostKind.ANNOTATION or (
            call.kind == HostKind.PYTHON and RETURNS_LATER.search(call.name) is not None
        )

    def _overhead(self, piece: Piece) -> list[Piece]:
        """Time that looks like the program's is the profiler's while that works."""
        if piece.account not in ("idle.python", "idle.dispatch", UNKNOWN):
            return [piece]
        rows = [c for c in self.overhead if c.start < piece.end and c.end > piece.start]
        inside = {t for c in rows for t in (c.start, c.end) if piece.start < t < piece.end}
        found = []
        for left, right in pairwise(sorted({piece.start, piece.end} | inside)):
            account = piece.account
            if any(c.start <= left < c.end for c in rows):
                account = "idle.profiler"
            found.append(Piece(left, right, account, host=piece.host))
        return found


def _depth(call: Call) -> int:
    depth = 0
    while call.parent:
        call, depth = call.parent, depth + 1
    return depth


UNKNOWN = "idle.unattributed"
