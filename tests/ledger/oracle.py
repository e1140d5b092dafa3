"""The ledger once more, slowly and plainly: stacks, dictionaries and instants instead of arrays.

Shares with the product only its tables (``own_label``, ``busy_account``, the order of accounts) and
takes the window as given. Everything else is written a second time from the definition.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from itertools import pairwise

from whyidle.ledger.accounts import INDEX
from whyidle.ledger.host import own_label
from whyidle.ledger.kinds import busy_account
from whyidle.timeline.columns import DeviceKind, HostKind, Timeline

SYNC, TRANSFER, COPY = 40, 38, 41  # strengths of labels, as in the table of host labels
WAITS_IN = re.compile(r"run_backward|autograd/(__init__|graph)\.py|_tensor\.py\(\d+\): backward")

Label = tuple[str, int]


class Oracle:
    """One timeline's accounts by brute force."""

    def __init__(self, timeline: Timeline) -> None:
        self.names = timeline.names
        self.main = timeline.main_thread
        self.evidence = timeline.has_operators or timeline.has_python
        host, device = timeline.host, timeline.device
        self.host = list(
            zip(
                host.start.tolist(),
                host.end.tolist(),
                [timeline.names[i] for i in host.name],
                host.kind.tolist(),
                host.thread.tolist(),
                host.correlation.tolist(),
                strict=True,
            )
        )
        self.device = list(
            zip(
                device.start.tolist(),
                device.end.tolist(),
                [timeline.names[i] for i in device.name],
                device.kind.tolist(),
                device.device.tolist(),
                device.launch.tolist(),
                device.correlation.tolist(),
                strict=True,
            )
        )
        self.parent = self._parents()
        self.label = self._labels()
        self.edges: dict[int, list[int]] = {}
        self.inner: dict[int, list[int]] = {}
        for thread in {e[4] for e in self.host} | {self.main}:
            self._innermost(thread)
        ids = [e[5] for e in self.host if e[5] > 0]
        self.first_id = min(ids, default=0)
        self.overhead = [
            (e[0], e[1])
            for i, e in enumerate(self.host)
            if e[3] == HostKind.OVERHEAD and self.label[i][0] == "idle.profiler"
        ]

    def _parents(self) -> list[int]:
        """Parents of properly nested events by a stack (rows come outer first)."""
        parent = [-1] * len(self.host)
        stack: list[int] = []
        for i, (start, end, _, _, thread, _) in enumerate(self.host):
            while stack and (self.host[stack[-1]][4] != thread or self.host[stack[-1]][1] <= start):
                stack.pop()
            if stack:
                parent[i] = stack[-1]
                assert end <= self.host[stack[-1]][1], "the oracle wants proper nesting"
            if end > start:
                stack.append(i)
        return parent

    def _labels(self) -> list[Label]:
        own = [own_label(e[2], e[3]) for e in self.host]
        copies: dict[int, str] = {}
        for _, _, name, kind, _, launch, _ in self.device:
            if kind == DeviceKind.MEMCPY and launch >= 0 and re.search("HtoD|DtoH", name):
                copies.setdefault(launch, name)
        copying = set()
        for call, name in copies.items():
            api = self.host[call][2]
            plain = re.search(r"Memcpy(?!.*Async)|MemcpyWithStream", api, re.IGNORECASE)
            if "pageable" in name.lower() or plain:
                own[call] = ("idle.transfer", TRANSFER)
                copying.add(self.parent[call])
        with_copy = {self.parent[call] for call in copies}
        for i, e in enumerate(self.host):
            waits = e[3] == HostKind.RUNTIME and own[i] == ("idle.sync", SYNC)
            if waits and self.parent[i] in with_copy:
                copying.add(self.parent[i])
        for i in copying - {-1}:
            if re.match(r"aten::(copy_|_copy_from|_to_copy|to)$", self.host[i][2]):
                own[i] = ("idle.transfer", COPY)
        for i, parent in enumerate(self.parent):  # parents come before their children
            if parent >= 0 and own[i][1] < own[parent][1]:
                own[i] = own[parent]
        return own

    def _innermost(self, thread: int) -> None:
        """Edges of a thread and the innermost event behind each."""
        rows = [i for i, e in enumerate(self.host) if e[4] == thread and e[1] > e[0]]
        edges = sorted({t for i in rows for t in self.host[i][:2]})
        inner = [-1] * len(edges)
        for i in rows:  # outer ones first, so the innermost stays
            low = bisect.bisect_left(edges, self.host[i][0])
            high = bisect.bisect_left(edges, self.host[i][1])
            inner[low:high] = [i] * (high - low)
        self.edges[thread], self.inner[thread] = edges, inner

    def _at(self, thread: int, instant: int) -> tuple[int, int]:
        """Place among the thread's edges and the innermost event at an instant."""
        place = bisect.bisect_right(self.edges[thread], instant) - 1
        return place, self.inner[thread][place] if place >= 0 else -1

    def _only_waits(self, event: int) -> bool:
        if event < 0:
            return True
        _, _, name, kind, _, _ = self.host[event]
        if self.label[event][0] != "idle.python":
            return False
        return kind == HostKind.ANNOTATION or (
            kind == HostKind.PYTHON and WAITS_IN.search(name) is not None
        )

    def _alive(self, thread: int, instant: int) -> bool:
        edges = self.edges[thread]
        return bool(edges) and edges[0] <= instant < edges[-1]

    def _own_account(self, thread: int, instant: int) -> str:
        _, event = self._at(thread, instant)
        if event >= 0:
            return self.label[event][0]
        return "idle.python" if self._alive(thread, instant) and self.evidence else UNKNOWN

    def doing(self, thread: int, instant: int) -> str:
        """The account of what the thread, or whom it waits for, did at an instant."""
        place, event = self._at(thread, instant)
        if thread == self.main or not self._only_waits(event):
            return self._own_account(thread, instant)
        _, of_main = self._at(self.main, instant)
        if self._only_waits(of_main) and self._alive(thread, instant):
            # Does the main thread only wait during the whole hole?
            edges = self.edges[thread]
            low, high = edges[place], edges[place + 1]
            first = max(bisect.bisect_right(self.edges[self.main], low) - 1, 0)
            last = bisect.bisect_left(self.edges[self.main], high)
            around = [
                self.inner[self.main][k]
                for k in range(first, last)
                if self.edges[self.main][k] < high
                and (k + 1 >= len(self.edges[self.main]) or self.edges[self.main][k + 1] > low)
            ]
            if all(self._only_waits(k) for k in around):
                return "idle.dispatch"
        return self._own_account(self.main, instant)

    def accounts(self, device: int, window: tuple[int, int]) -> dict[str, int]:
        """Nanoseconds of the window by account."""
        rows = [d for d in self.device if d[4] == device]
        total: Counter[str] = Counter()
        low, high = window
        edges = sorted({min(max(t, low), high) for d in rows for t in d[:2]} | {low, high})
        kinds = {(d[2], d[3]): busy_account(d[2], d[3]) for d in rows}
        running: Counter[str] = Counter()
        starts = sorted((d[0], kinds[d[2], d[3]]) for d in rows if d[1] > d[0])
        ends = sorted((d[1], kinds[d[2], d[3]]) for d in rows if d[1] > d[0])
        by_start = sorted(rows, key=lambda d: (d[0], d[1]))
        begin = [d[0] for d in by_start]
        a = b = 0
        gap = None
        for left, right in pairwise(edges):
            while a < len(starts) and starts[a][0] <= left:
                running[starts[a][1]] += 1
                a += 1
            while b < len(ends) and ends[b][0] <= left:
                running[ends[b][1]] -= 1
                b += 1
            active = [k for k, n in running.items() if n > 0]
            if active:
                if gap is not None:
                    self._gap(total, gap, left, by_start, begin)
                    gap = None
                total[min(active, key=INDEX.__getitem__)] += right - left
            elif gap is None:
                gap = left
        if gap is not None:
            self._gap(total, gap, high, by_start, begin)
        return {k: n for k, n in total.items() if n}

    def _gap(
        self, total: Counter[str], a: int, b: int, rows: list[tuple[int, ...]], begin: list[int]
    ) -> None:
        at = bisect.bisect_left(begin, b)
        if at == len(rows):  # nothing follows: the main thread has it all
            if self.main < 0:
                self._book(total, UNKNOWN, a, b)
            else:
                self._host_part(total, self.main, a, b)
            return
        launch, identity = rows[at][5], rows[at][6]
        if launch < 0:
            earlier = 0 < identity < self.first_id
            self._book(total, "idle.queue" if earlier else UNKNOWN, a, b)
            return
        reached = min(max(self.host[launch][1], a), b)
        self._host_part(total, self.host[launch][4], a, reached)
        total["idle.queue"] += b - reached

    def _host_part(self, total: Counter[str], thread: int, a: int, b: int) -> None:
        """Instant by instant: between two edges of anybody concerned nothing changes."""
        cuts = {a, b}
        for edges in (self.edges[thread], self.edges[self.main]):
            cuts.update(edges[bisect.bisect_right(edges, a) : bisect.bisect_left(edges, b)])
        for left, right in pairwise(sorted(cuts)):
            self._book(total, self.doing(thread, left), left, right)

    def _book(self, total: Counter[str], account: str, a: int, b: int) -> None:
        """Add [a, b) to an account, except what the profiler's own work explains of it."""
        inside = {t for row in self.overhead for t in row if a < t < b}
        for left, right in pairwise(sorted({a, b} | inside)):
            busy = any(low <= left < high for low, high in self.overhead)
            open_to = account in ("idle.python", "idle.dispatch", UNKNOWN)
            total["idle.profiler" if busy and open_to else account] += right - left


UNKNOWN = "idle.unattributed"
