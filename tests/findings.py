"""A training loop with a fault of known nanoseconds, and what every finding must keep."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builders import TraceBuilder
from whyidle.causes.evidence import Evidence, Finding

STEP = 1_000_000
STEPS = 6
FAULT = 499_000  # ns of each step that are the fault's, and idle unless it puts work on the device

Fault = Callable[[TraceBuilder, int, int, int], None]


def loop(
    fault: Fault, steps: int = STEPS, hidden: bool = False, first: str = "gemm", last: str = "gemm"
) -> TraceBuilder:
    """Steps of 1 ms in which the device computes, waits for the fault, and computes again.

    In the step that starts at t, kernel ``first`` runs [t, t + 400k), launched in time. The host
    is in ``fault(builder, index, t + 400k, t + 899k)``; then it launches ``last``, by a call
    [t + 899k, t + 900k), which runs until the step's end. ``hidden``: another stream computes all
    the while, so that nothing is lost.
    """
    b = TraceBuilder()
    b.properties(memory_bytes=80_000_000_000)
    if hidden:
        b.launch("long_gemm", 0, 0, 0, steps * STEP, stream=99)
    for i in range(steps):
        t = i * STEP
        b.step(i, t, t + STEP)
        b.op("aten::mm", max(t - 600, 0), max(t - 300, 0))
        b.launch(first, max(t - 500, 0), max(t - 400, 0), t, t + 400_000)
        fault(b, i, t + 400_000, t + 899_000)
        b.launch(last, t + 899_000, t + 900_000, t + 900_000, t + STEP)
    return b


def check(evidence: Evidence, finding: Finding | None, rule: str, lost_ns: int) -> Finding:
    """The finding, which is there, of the rule and loss expected, and keeps all promises."""
    assert finding is not None
    assert finding.rule == rule
    assert finding.lost_ns == lost_ns
    claimed = int(evidence.ledger.segments.ns[finding.claims].sum())
    assert finding.lost_ns <= claimed == sum(finding.accounts.values())
    assert not (finding.claims & ~evidence.free).any()
    assert finding.gain_upper_bound == pytest.approx(lost_ns / evidence.ledger.window_ns)
    assert finding.evidence
    assert finding.remedies
    assert finding.disproof
    allowed = {"exact", "approximate", "changes training", "config"}
    assert {r.numerics for r in finding.remedies} <= allowed
    return finding
