from __future__ import annotations

import numpy as np
import pytest

from builders import TraceBuilder, evidence_of
from whyidle.causes.evidence import Evidence, Finding
from whyidle.causes.interruption import (
    r72_garbage_collection,
    r97_blocking_checkpoint,
    r98_long_validation,
)
from whyidle.timeline.columns import HostKind

STEP = 1_000_000
STEPS = 10


def training(
    interrupted: dict[int, tuple[str, HostKind, int, int]], hidden: bool = False
) -> TraceBuilder:
    """Ten steps of 1 ms that keep the device busy, but for named interruptions.

    ``interrupted`` maps a step to (name, kind, start, end) of a host event, relative to the step;
    the device idles exactly then, unless ``hidden``.
    """
    b = TraceBuilder()
    for i in range(STEPS):
        t = i * STEP
        b.step(i, t, t + STEP)
        b.python("train.py(50): run", t, t + STEP - 1)
        if i not in interrupted:
            b.launch("gemm", t + 100, t + 200, t, t + STEP)
            continue
        name, kind, start, end = interrupted[i]
        b.launch("gemm", t + 100, t + 200, t, t + (STEP if hidden else start))
        b.host(name, t + start, t + end, kind)
        if not hidden:
            # The next launch returns just as its kernel starts: no latency in the ledger.
            b.launch("gemm", t + end, t + end, t + end, t + STEP)
    return b


def lost_exactly(evidence: Evidence, finding: Finding | None, ns: int, account: str) -> Finding:
    assert finding is not None
    assert finding.lost_ns == ns
    assert finding.accounts == {account: ns}
    assert finding.cause == "interruption"
    assert finding.gain_upper_bound == pytest.approx(ns / evidence.ledger.window_ns)
    assert int(evidence.ledger.segments.ns[finding.claims].sum()) == ns
    return finding


class TestCheckpoint:
    save = ("save_checkpoint", HostKind.ANNOTATION, 200_000, 700_000)

    def test_claims_the_time_of_the_save(self) -> None:
        evidence = evidence_of(training({4: self.save}))
        finding = r97_blocking_checkpoint(evidence)
        finding = lost_exactly(evidence, finding, 500_000, "idle.checkpoint")
        assert finding.evidence[0].startswith("1 checkpoint save in the window, 500 us each")
        # 500 us lost a save at 2 % of 1 ms steps: 25 steps.
        assert "25 or more steps apart" in finding.evidence[1]
        assert "train.py:50 (run)" in finding.evidence[-1]

    def test_copies_of_the_state_to_the_host_count(self) -> None:
        b = training({4: self.save})
        t = 4 * STEP
        back = "Memcpy DtoH (Device -> Pageable)"
        b.memcpy(t + 250_000, t + 360_000, t + 260_000, t + 360_000, back, bytes=1 << 20)
        evidence = evidence_of(b)
        finding = r97_blocking_checkpoint(evidence)
        assert finding is not None
        assert finding.accounts == {"copy.d2h": 100_000, "idle.checkpoint": 400_000}

    def test_a_save_beside_a_busy_gpu_costs_nothing(self) -> None:
        assert r97_blocking_checkpoint(evidence_of(training({4: self.save}, hidden=True))) is None

    def test_a_short_save_is_not_told(self) -> None:
        short = ("save_checkpoint", HostKind.ANNOTATION, 200_000, 300_000)
        assert r97_blocking_checkpoint(evidence_of(training({4: short}))) is None

    def test_a_python_call_to_torch_save_is_a_save(self) -> None:
        save = ("torch/serialization.py(619): save", HostKind.PYTHON, 200_000, 700_000)
        evidence = evidence_of(training({4: save}))
        assert r97_blocking_checkpoint(evidence) is not None


class TestValidation:
    def test_claims_the_idle_part_only(self) -> None:
        b = training({})
        t = STEPS * STEP
        b.step(STEPS, t, t + 2 * STEP)
        b.annotation("validation", t, t + 2 * STEP)
        b.launch("gemm", t + 600_000, t + 600_000, t + 600_000, t + 2 * STEP)
        evidence = evidence_of(b)
        finding = r98_long_validation(evidence)
        finding = lost_exactly(evidence, finding, 600_000, "idle.evaluation")
        assert "16.7 % of the window (1 call, 2.00 ms)" in finding.evidence[0]
        assert "idles 30.0 % of that" in finding.evidence[0]

    def test_short_validation_is_not_told(self) -> None:
        name = ("validation", HostKind.ANNOTATION, 200_000, 700_000)
        assert r98_long_validation(evidence_of(training({4: name}))) is None

    def test_validation_that_keeps_the_gpu_busy_costs_nothing(self) -> None:
        b = training({})
        b.annotation("validation", 3 * STEP, 6 * STEP - 10)
        assert r98_long_validation(evidence_of(b)) is None


class TestGarbageCollection:
    pause = ("Python GC", HostKind.GC, 100_000, 300_000)

    def test_claims_the_pauses(self) -> None:
        evidence = evidence_of(training({2: self.pause, 7: self.pause}))
        finding = r72_garbage_collection(evidence)
        finding = lost_exactly(evidence, finding, 400_000, "idle.gc")
        assert "the longest takes 200 us" in finding.evidence[0]

    def test_pauses_beside_a_busy_gpu_cost_nothing(self) -> None:
        hidden = evidence_of(training({2: self.pause, 7: self.pause}, hidden=True))
        assert r72_garbage_collection(hidden) is None

    def test_collections_that_the_user_asks_for_are_left_to_another_rule(self) -> None:
        asked = ("<built-in function collect>", HostKind.PYTHON, 100_000, 400_000)
        evidence = evidence_of(training({2: asked, 7: asked}))
        assert int(np.count_nonzero(evidence.accounts("idle.gc"))) == 2
        assert r72_garbage_collection(evidence) is None
