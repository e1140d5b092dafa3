from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders import TraceBuilder, evidence_of
from whyidle.causes.evidence import Evidence, Finding
from whyidle.causes.parallelism import (
    RULES,
    r01_host_bound,
    r02_scalar_read,
    r03_data_dependent_shape,
    r04_explicit_synchronize,
    r06_unfused_optimizer,
    r11_small_grid,
    r14_metrics_each_step,
    x01_queued_work_waits,
)

STEP = 1_000_000
STEPS = 4


def waiting_loop(
    wait: str, blocked: tuple[int, int] = (30_000, 420_000), hidden: bool = False
) -> TraceBuilder:
    """Four steps of 1 ms, each with one wait of the host.

    The device runs [10k, 400k) and, launched after the wait, [500k, next step + 10k). The wait
    holds the host for ``blocked``; Python follows to 450k, an operator launches until 490k. So the
    gap [402k or 400k, 500k) is the wait's. ``hidden``: another stream works throughout.
    """
    b = TraceBuilder()
    if hidden:
        b.launch("long_gemm", 0, 1_000, 1_000, STEPS * STEP + 10_000, stream=9)
    for i in range(STEPS):
        t = i * STEP
        b.step(i, t, t + STEP)
        b.python("train.py(12): train", t, t + STEP - 1)
        b.op("aten::mm", t, t + 20_000)
        b.launch("gemm", t, t + 10_000, t + 10_000, t + 400_000)
        start, end = t + blocked[0], t + blocked[1]
        copied = max(t + 400_000, start + 3_000)
        if wait == "sync":
            b.sync(start, end, "cudaDeviceSynchronize")
        else:
            b.op(wait, start, end)
            back = "Memcpy DtoH (Device -> Pageable)"
            b.memcpy(start + 1_000, start + 3_000, copied, copied + 2_000, back)
            b.sync(start + 5_000, end - 5_000)
        b.op("aten::add", t + 450_000, t + 495_000)
        b.launch("add", t + 480_000, t + 490_000, t + 500_000, t + STEP + 10_000)
    return b


def check(evidence: Evidence, finding: Finding | None, lost_ns: int) -> Finding:
    """Every finding must keep these promises."""
    assert finding is not None
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


class TestScalarRead:
    def test_claims_the_wait_and_the_restart_behind_it(self) -> None:
        evidence = evidence_of(waiting_loop("aten::item"))
        finding = check(evidence, r02_scalar_read(evidence), STEPS * 98_000)
        assert finding.accounts == {
            "idle.sync": STEPS * 18_000,
            "idle.dispatch": STEPS * 40_000,
            "idle.python": STEPS * 30_000,
            "idle.queue": STEPS * 10_000,
        }
        assert "1 times a step: 390 us a step blocked, 390 us in the median" in finding.evidence[0]
        assert "train.py:12 (train)" in finding.evidence[-1]

    def test_reads_through_a_copy_count_too(self) -> None:
        evidence = evidence_of(waiting_loop("aten::to"))
        finding = check(evidence, r02_scalar_read(evidence), STEPS * 98_000)
        assert finding.accounts["idle.transfer"] == STEPS * 18_000

    def test_a_read_on_a_busy_gpu_costs_nothing(self) -> None:
        assert r02_scalar_read(evidence_of(waiting_loop("aten::item", hidden=True))) is None

    def test_costs_no_more_than_the_host_was_blocked(self) -> None:
        """The device is dry already when the read begins: the host was late by itself."""
        evidence = evidence_of(waiting_loop("aten::item", blocked=(405_000, 445_000)))
        # 3k before the copy and 35k after it; of what follows, only 2k are left to claim.
        finding = check(evidence, r02_scalar_read(evidence), STEPS * 38_000)
        assert finding.accounts == {"idle.sync": STEPS * 38_000}
        rest = replace(evidence, free=evidence.free & ~finding.claims)
        # The other 60k of each step, and the 10k before the first kernel, are the host's own.
        assert check(rest, r01_host_bound(rest), STEPS * 60_000 + 10_000).rule == "R01"

    def test_leaves_claimed_time_alone(self) -> None:
        evidence = evidence_of(waiting_loop("aten::item"))
        taken = replace(evidence, free=np.zeros(len(evidence.free), np.bool_))
        assert r02_scalar_read(taken) is None


class TestDataDependentShape:
    def test_claims_the_wait_and_the_restart_behind_it(self) -> None:
        evidence = evidence_of(waiting_loop("aten::nonzero"))
        finding = check(evidence, r03_data_dependent_shape(evidence), STEPS * 98_000)
        # nonzero's own host work after its wait, [415k, 420k), is dispatch and follows the wait.
        assert finding.accounts == {
            "idle.sync": STEPS * 13_000,
            "idle.dispatch": STEPS * 45_000,
            "idle.python": STEPS * 30_000,
            "idle.queue": STEPS * 10_000,
        }
        assert "aten::nonzero" in finding.evidence[0]

    def test_is_not_taken_for_a_scalar_read(self) -> None:
        assert r02_scalar_read(evidence_of(waiting_loop("aten::nonzero"))) is None

    def test_on_a_busy_gpu_it_costs_nothing(self) -> None:
        hidden = evidence_of(waiting_loop("aten::nonzero", hidden=True))
        assert r03_data_dependent_shape(hidden) is None


class TestExplicitSynchronize:
    def test_claims_the_wait_and_the_restart_behind_it(self) -> None:
        evidence = evidence_of(waiting_loop("sync"))
        finding = check(evidence, r04_explicit_synchronize(evidence), STEPS * 100_000)
        assert finding.accounts["idle.sync"] == STEPS * 20_000
        assert "cudaDeviceSynchronize" in finding.evidence[0]
        assert "train.py:12 (train)" in finding.evidence[-1]

    def test_on_a_busy_gpu_it_costs_nothing(self) -> None:
        assert r04_explicit_synchronize(evidence_of(waiting_loop("sync", hidden=True))) is None

    def test_a_synchronize_inside_an_operator_is_not_explicit(self) -> None:
        assert r04_explicit_synchronize(evidence_of(waiting_loop("aten::item"))) is None


def launch_loop(kernel_ns: int, launches: int = 100, host_ns: int = 10_000) -> TraceBuilder:
    """One operator after the other, each 10 us on the host, launching one kernel."""
    b = TraceBuilder()
    free_at = 0
    for i in range(launches):
        t = i * host_ns
        b.op("aten::add", t, t + host_ns - 1_000)
        start = max(t + 9_000, free_at)
        b.launch("add", t + 4_000, t + 8_000, start, start + kernel_ns, blocks=400)
        free_at = start + kernel_ns
    return b


class TestHostBound:
    def test_claims_all_that_the_device_waits_for_launches(self) -> None:
        evidence = evidence_of(launch_loop(kernel_ns=2_000))
        # 99 gaps of 8 us: 7 us until the launch call returns, 1 us of launch latency.
        finding = check(evidence, r01_host_bound(evidence), 99 * 8_000)
        assert finding.lost_ns == evidence.ledger.idle_ns
        assert finding.accounts == {"idle.dispatch": 99 * 7_000, "idle.queue": 99 * 1_000}
        assert "100 kernels in the trace, the median one runs 2.00 us" in finding.evidence[1]
        assert "10.0 us from launch to launch" in finding.evidence[1]
        assert "aten::add" in finding.evidence[-1]

    def test_a_busy_gpu_gives_nothing(self) -> None:
        assert r01_host_bound(evidence_of(launch_loop(kernel_ns=10_000))) is None
        assert r01_host_bound(evidence_of(launch_loop(kernel_ns=50_000))) is None

    def test_a_single_long_call_is_not_launch_overhead(self) -> None:
        b = launch_loop(kernel_ns=9_900)
        b.op("aten::conv2d", 2_000_000, 32_000_000)
        b.launch("conv", 31_990_000, 31_999_000, 32_000_000, 35_000_000)
        evidence = evidence_of(b)
        assert evidence.ledger.idle_ns > 0.5 * evidence.ledger.window_ns
        assert r01_host_bound(evidence) is None

    def test_names_python_lines_where_python_holds_the_host(self) -> None:
        b = TraceBuilder()
        for i in range(50):
            t = i * 100_000
            b.python("train.py(40): step", t, t + 99_000)
            b.python("train.py(77): slow", t + 1_000, t + 90_000)
            b.op("aten::add", t + 91_000, t + 98_000)
            b.launch("add", t + 92_000, t + 95_000, t + 96_000, t + 106_000)
        evidence = evidence_of(b)
        finding = check(evidence, r01_host_bound(evidence), evidence.ledger.idle_ns)
        assert finding.title == "The GPU waits for Python between operators"
        assert "train.py:77 (slow)" in " ".join(finding.evidence)
        assert "with_stack=True" in finding.notes[0]


def optimizer_loop(kernel_ns: int, kernels: int = 50) -> TraceBuilder:
    """Two steps: a matmul of 1 ms, then an optimizer that launches a kernel every 10 us."""
    b = TraceBuilder()
    for i in range(2):
        t = i * 2_000_000
        b.step(i, t, t + 2_000_000)
        b.op("aten::mm", t, t + 20_000)
        b.launch("gemm", t, t + 10_000, t + 10_000, t + 1_000_000)
        low = t + 1_000_000
        b.annotation("Optimizer.step#Adam.step", low, low + kernels * 10_000)
        free_at = low
        for k in range(kernels):
            at = low + k * 10_000
            b.op("aten::addcdiv_", at, at + 9_000)
            start = max(at + 8_000, free_at)
            b.launch("addcdiv", at + 1_000, at + 7_000, start, start + kernel_ns)
            free_at = start + kernel_ns
        b.launch("gemm", t + 30_000, t + 40_000, free_at, t + 2_010_000)
    return b


class TestOptimizer:
    def test_claims_the_optimizers_host_side(self) -> None:
        evidence = evidence_of(optimizer_loop(kernel_ns=2_000))
        claims = evidence.accounts("idle.optimizer")
        finding = check(evidence, r06_unfused_optimizer(evidence), evidence.ns(claims))
        # First gap [0, 8k): 7k optimizer; each of 49 further gaps of 8k: 7k of them (the rest is
        # launch latency).
        assert finding.lost_ns == 2 * 50 * 7_000
        assert finding.accounts == {"idle.optimizer": 2 * 50 * 7_000}
        assert "500 us a step for 100 us a step of GPU work" in finding.evidence[0]
        assert "50 kernels a step" in finding.evidence[1]
        assert "a loop over parameters" in finding.evidence[1]

    def test_many_kernels_on_a_busy_gpu_cost_nothing(self) -> None:
        assert r06_unfused_optimizer(evidence_of(optimizer_loop(kernel_ns=10_000))) is None


class TestSmallGrid:
    def build(self, blocks: int, sms: int = 100, kernel_ns: int = 90_000) -> TraceBuilder:
        b = TraceBuilder()
        b.properties(sms=sms)
        for i in range(10):
            t = i * 100_000
            b.launch("small", t, t + 5_000, t + 10_000, t + 10_000 + kernel_ns, blocks=blocks)
        return b

    def test_claims_busy_time_and_loses_the_empty_part(self) -> None:
        evidence = evidence_of(self.build(blocks=10))
        finding = check(evidence, r11_small_grid(evidence), 10 * 81_000)
        assert finding.accounts == {"compute.other": 900_000}
        assert "100 multiprocessors" in finding.evidence[0]

    def test_full_grids_and_unknown_devices_give_nothing(self) -> None:
        assert r11_small_grid(evidence_of(self.build(blocks=100))) is None
        assert r11_small_grid(evidence_of(self.build(blocks=10, sms=0))) is None
        assert r11_small_grid(evidence_of(self.build(blocks=-1))) is None

    def test_small_kernels_with_little_time_give_nothing(self) -> None:
        assert r11_small_grid(evidence_of(self.build(blocks=10, kernel_ns=10_000))) is None


def metrics_loop(hidden: bool) -> TraceBuilder:
    """Ten steps of 1 ms; in each, 100 us of metrics while the device is dry (or is not)."""
    b = TraceBuilder()
    for i in range(10):
        t = i * STEP
        b.step(i, t, t + STEP)
        b.op("aten::mm", t, t + 20_000)
        b.launch("gemm", t, t + 10_000, t + 10_000, t + (STEP if hidden else 800_000))
        b.python("torchmetrics/metric.py(240): forward", t + 800_000, t + 900_000)
        b.python("train.py(30): report", t + 790_000, t + 910_000)
        b.op("aten::add", t + 920_000, t + 950_000)
        b.launch("add", t + 930_000, t + 940_000, t + STEP, t + STEP + 10_000)
    return b


class TestMetrics:
    def test_claims_idle_time_inside_metrics(self) -> None:
        evidence = evidence_of(metrics_loop(hidden=False))
        finding = check(evidence, r14_metrics_each_step(evidence), 10 * 100_000)
        assert finding.accounts == {"idle.python": 1_000_000}
        assert finding.title == "Metrics or logging in every step keep the GPU waiting"
        assert "train.py:30 (report)" in finding.evidence[-1]

    def test_on_a_busy_gpu_they_cost_nothing(self) -> None:
        assert r14_metrics_each_step(evidence_of(metrics_loop(hidden=True))) is None


def queued_loop(gap_ns: int) -> TraceBuilder:
    """Work that was launched 400 us ago waits; the host sits in a copy meanwhile."""
    b = TraceBuilder()
    for i in range(5):
        t = i * STEP
        b.step(i, t, t + STEP)
        b.launch("gemm", t, t + 10_000, t + 10_000, t + STEP - gap_ns + 10_000)
        b.launch("a", t + 20_000, t + 30_000, t + STEP + 10_000, t + STEP + 10_000 + 1)
        b.annotation("## data_dist ##", t + 40_000, t + STEP - 1_000)
        b.op("aten::to", t + 50_000, t + STEP - 5_000)
        back = "Memcpy DtoH (Device -> Pageable)"
        end = t + STEP + 10_002
        b.memcpy(t + 60_000, t + STEP - 10_000, end, end + 1_000, back)
    return b


class TestQueuedWork:
    def test_names_what_blocks_the_host(self) -> None:
        evidence = evidence_of(queued_loop(gap_ns=300_000))
        queued = evidence.ns(evidence.accounts("idle.queue"))
        finding = check(evidence, x01_queued_work_waits(evidence), queued)
        assert queued >= 5 * 300_000
        assert "blocked in copies and synchronizations" in finding.title
        said = " ".join(finding.evidence)
        assert "cudaMemcpyAsync [Memcpy DtoH (Device -> Pageable)]" in said
        assert "## data_dist ##" in said
        assert "aten::to" in said

    def test_short_waits_are_launch_latency(self) -> None:
        assert x01_queued_work_waits(evidence_of(queued_loop(gap_ns=5_000))) is None


def test_rules_never_claim_the_same_time_twice() -> None:
    for builder in (
        waiting_loop("aten::item"),
        waiting_loop("aten::nonzero"),
        waiting_loop("sync"),
        launch_loop(2_000),
        optimizer_loop(2_000),
        metrics_loop(False),
        queued_loop(300_000),
    ):
        evidence = evidence_of(builder)
        claimed = 0
        for rule in RULES:
            finding = rule(evidence)
            if finding is None:
                continue
            check(evidence, finding, finding.lost_ns)
            claimed += int(evidence.ledger.segments.ns[finding.claims].sum())
            evidence = replace(evidence, free=evidence.free & ~finding.claims)
        assert claimed <= evidence.ledger.window_ns
