from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder, evidence_of
from findings import FAULT, STEP, STEPS, check, loop
from whyidle.causes.communication import (
    RULES,
    r63_exposed_communication,
    r64_sync_every_micro_batch,
    r66_data_parallel,
    r76_small_collectives,
)
from whyidle.causes.evidence import Evidence
from whyidle.causes.rules import find
from whyidle.ledger.build import build_ledgers
from whyidle.readers import open_trace
from whyidle.timeline.nesting import nest

_NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def collective(
    b: TraceBuilder, call: int, start: int, end: int, size: int = 998_000, name: str = _NCCL
) -> None:
    b.annotation("nccl:all_reduce", call - 500, call + 1_500)
    b.launch(name, call, call + 1_000, start, end, stream=20, bytes=size)


def exposed(b: TraceBuilder, i: int, start: int, end: int) -> None:
    collective(b, start - 3_000, start, end)


def silent(evidence: Evidence) -> bool:
    return all(rule(evidence) is None for rule in RULES)


def test_a_collective_that_nothing_hides() -> None:
    evidence = evidence_of(loop(exposed))
    finding = check(evidence, r63_exposed_communication(evidence), "R63", STEPS * FAULT)
    assert finding.accounts == {"comm.exposed": STEPS * FAULT}
    assert "high by XProf's grades" in finding.evidence[0]
    # 998,000 bytes in 499 us are 2 GB/s.
    assert (
        "1 all_reduce a step (499 us in the median, 974.6 KiB each on average, 2.0 GB/s)"
        in (finding.evidence[2])
    )
    assert "record all ranks" in finding.notes[0]


def test_a_collective_beside_a_kernel_costs_nothing() -> None:
    assert silent(evidence_of(loop(exposed, hidden=True)))


def test_exposed_time_below_the_threshold_is_not_told() -> None:
    evidence = evidence_of(loop(lambda b, i, s, e: collective(b, s - 3_000, s, s + 59_000)))
    assert evidence.ledger.ns("comm.exposed") == STEPS * 59_000  # 5.9 % of the window
    assert silent(evidence)


def test_overlap_is_told() -> None:
    evidence = evidence_of(
        loop(lambda b, i, s, e: collective(b, s - 303_000, s - 100_000, s + 100_000))
    )
    finding = check(evidence, r63_exposed_communication(evidence), "R63", STEPS * 100_000)
    assert "200 us a step in all; 50.0 % of that beside kernels" in finding.evidence[1]


@pytest.mark.parametrize(("pause", "claimed"), [(20_000, True), (200_000, False)])
def test_work_queued_behind_a_collective(pause: int, claimed: bool) -> None:
    """Work that was launched in time starts ``pause`` after the collective has ended."""
    b = TraceBuilder()
    for i in range(4):
        t = i * STEP
        b.step(i, t, t + STEP)
        b.launch("gemm", max(t - 500, 0), max(t - 400, 0), t, t + 400_000)
        collective(b, t + 300_000, t + 400_000, t + 700_000)
        b.launch("gemm", t + 310_000, t + 311_000, t + 700_000 + pause, t + STEP)
    evidence = evidence_of(b)
    lost = 4 * (300_000 + (pause if claimed else 0))
    check(evidence, r63_exposed_communication(evidence), "R63", lost)


def barrier(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.op("c10d::barrier", start, end)


def test_the_host_waiting_in_a_barrier() -> None:
    evidence = evidence_of(loop(barrier))
    finding = check(evidence, r63_exposed_communication(evidence), "R63", STEPS * FAULT)
    assert finding.accounts == {"idle.comm": STEPS * FAULT}


def small(count: int, size: int, ns: int = 2_000):
    """``count`` collectives, each launched by a call of 1 us that ends as it starts."""

    def fault(b: TraceBuilder, i: int, start: int, end: int) -> None:
        for k in range(count):
            at = start + k * (ns + 2_000)
            b.op("c10d::allreduce_", at - 1_000, at)
            b.launch(_NCCL, at - 1_000, at, at, at + ns, stream=20, bytes=size)

    return fault


@pytest.mark.parametrize("size", [1_000, -1])
def test_many_small_collectives(size: int) -> None:
    evidence = evidence_of(loop(small(110, size)))
    # 110 run 2 us each; 109 are launched while the GPU idles, 1 us each.
    finding = check(evidence, r76_small_collectives(evidence), "R76", STEPS * (220_000 + 109_000))
    assert finding.accounts == {"comm.exposed": STEPS * 220_000, "idle.dispatch": STEPS * 109_000}
    assert "110 small collectives a step" in finding.evidence[0]
    assert "220 us a step no kernel runs beside them, and 109 us a step" in finding.evidence[0]
    assert bool(finding.notes) == (size < 0)


@pytest.mark.parametrize(
    "builder",
    [
        loop(small(99, 1_000)),  # not many
        loop(small(110, 1_000_000)),  # not small
        loop(small(110, 1_000), hidden=True),
    ],
)
def test_small_collectives_that_do_not_count(builder: TraceBuilder) -> None:
    assert r76_small_collectives(evidence_of(builder)) is None


def test_small_collectives_of_sync_batch_norm() -> None:
    def fault(b: TraceBuilder, i: int, start: int, end: int) -> None:
        b.op("SyncBatchNorm", start - 2_000, end)
        small(110, 1_000)(b, i, start, end)

    finding = r76_small_collectives(evidence_of(loop(fault)))
    assert finding is not None
    assert finding.title.startswith("SyncBatchNorm")


def rounds(sizes: list[list[int]], forward: bool = True):
    """Micro-batches that reduce gradients of the given sizes, 20 us each, then the optimizer."""

    def fault(b: TraceBuilder, i: int, start: int, end: int) -> None:
        at = start
        for micro in sizes:
            if forward:
                b.annotation("DistributedDataParallel.forward", at + 200, at + 1_000)
            for size in micro:
                collective(b, at + 3_000, at + 4_000, at + 24_000, size)
                at += 25_000
        b.annotation("Optimizer.step#SGD.step", end - 10_000, end)

    return fault


@pytest.mark.parametrize("forward", [True, False])
def test_gradients_reduced_in_every_micro_batch(forward: bool) -> None:
    evidence = evidence_of(loop(rounds([[9_000_000, 5_000_000]] * 3, forward)))
    finding = check(evidence, r64_sync_every_micro_batch(evidence), "R64", STEPS * 4 * 20_000)
    assert "reduced 3 times for one optimizer step" in finding.evidence[0]
    assert "4 all_reduce a step" in finding.evidence[1]


@pytest.mark.parametrize(
    "builder",
    [
        loop(rounds([[9_000_000, 5_000_000]])),  # one round
        loop(rounds([[9_000_000], [5_000_000]])),  # two models
        loop(rounds([[9_000_000, 9_000_000]], False)),  # equal buckets are no rounds
        loop(rounds([[9_000_000, 5_000_000]] * 3), hidden=True),
    ],
)
def test_one_reduction_of_each_gradient(builder: TraceBuilder) -> None:
    assert r64_sync_every_micro_batch(evidence_of(builder)) is None


def data_parallel(b: TraceBuilder, i: int, start: int, end: int) -> None:
    """Replicas are broadcast for 300 us, 20 us of that by copies."""
    b.op("Broadcast", start, start + 300_000)
    b.memcpy(
        start, start + 10_000, start + 10_000, start + 30_000, "Memcpy PtoP (Device -> Device)"
    )


def test_data_parallel() -> None:
    evidence = evidence_of(loop(data_parallel))
    finding = check(evidence, r66_data_parallel(evidence), "R66", STEPS * 300_000)
    assert finding.accounts == {"copy.d2d": STEPS * 20_000, "idle.dispatch": STEPS * 280_000}
    assert "1 Broadcast a step" in finding.evidence[1]


def test_data_parallel_behind_a_busy_gpu() -> None:
    assert silent(evidence_of(loop(data_parallel, hidden=True)))


def test_real_traces(traces: Path) -> None:
    found = {}
    for name in (
        "tracelens/mi300_resnet_ddp_checkpoint_rank",
        "hta/v100_ddp_rank1of2",
        "hta/v100_dlrm_ns_rank0",
        "tracelens/h100_qwen05b_infer",
    ):
        timeline = open_trace(traces / f"{name}.json.gz")
        nesting = nest(timeline.host, len(timeline.threads))
        (ledger,) = build_ledgers(timeline, nesting)
        found[name] = {
            f.rule: f.lost_ns / ledger.window_ns
            for f in find(timeline, nesting, ledger)
            if f.cause == "communication"
        }
    mi300, v100, dlrm, qwen = found.values()
    assert mi300 == {"R63": pytest.approx(0.644, abs=0.01)}
    assert v100.keys() == {"R63", "R76"}
    assert sum(v100.values()) > 0.2
    assert not dlrm
    assert not qwen
