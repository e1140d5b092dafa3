from __future__ import annotations

import pytest

from builders import TraceBuilder, evidence_of
from whyidle.causes.visibility import r96_profiler_left_on
from whyidle.timeline.columns import HostKind


def profiled(busy_until: int) -> TraceBuilder:
    """One step of 1 ms; the profiler flushes its buffer for 300 us, on a thread of its own."""
    b = TraceBuilder()
    b.step(0, 0, 1_000_000)
    b.op("aten::mm", 100, 400)
    b.launch("gemm", 100, 200, 0, busy_until)
    b.host("Buffer Flush", 200_000, 500_000, HostKind.OVERHEAD, b.thread("CUPTI"))
    b.op("aten::add", 190_000, 510_000)
    if busy_until < 500_000:
        b.launch("add", 500_000, 500_000, 500_000, 1_000_000)
    return b


def test_claims_the_profilers_own_work() -> None:
    evidence = evidence_of(profiled(busy_until=200_000))
    finding = r96_profiler_left_on(evidence)
    assert finding is not None
    assert finding.lost_ns == 300_000
    assert finding.accounts == {"idle.profiler": 300_000}
    assert finding.gain_upper_bound == pytest.approx(0.3)
    assert "Buffer Flush 300 us" in finding.evidence[0]


def test_a_flush_beside_a_busy_gpu_costs_nothing() -> None:
    assert r96_profiler_left_on(evidence_of(profiled(busy_until=1_000_000))) is None
