from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder, evidence_of
from findings import FAULT, STEPS, check, loop
from whyidle.causes.evidence import Evidence
from whyidle.causes.input import (
    RULES,
    r16_waits_for_batch,
    r17_loads_in_main_process,
    r21_stall_every_few_batches,
    r22_workers_respawn,
    r32_no_device_prefetch,
)
from whyidle.causes.rules import find
from whyidle.ledger.build import build_ledgers
from whyidle.readers import open_trace
from whyidle.timeline.nesting import nest

_SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
_MULTI = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def single(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.python("train.py(7): main", start, end)
    b.annotation(_SINGLE, start, end)


def multi(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.annotation(_MULTI, start, end)


def every_fourth(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.annotation(_MULTI, start, end if i % 4 == 3 else start + 5_000)


def new_epoch_at_3(b: TraceBuilder, i: int, start: int, end: int) -> None:
    """The loader ends an epoch in step 3, and the next batch takes 480 us."""
    b.annotation(_MULTI, start, start + 5_000)
    if i == 3:
        b.annotation(_MULTI, start + 10_000, start + 490_000)


def silent(evidence: Evidence) -> bool:
    return all(rule(evidence) is None for rule in RULES)


def test_loading_in_the_training_process() -> None:
    evidence = evidence_of(loop(single))
    finding = check(evidence, r17_loads_in_main_process(evidence), "R17", STEPS * FAULT)
    assert finding.accounts == {"idle.input": STEPS * FAULT}
    assert "499 us a step" in finding.evidence[0]
    assert "49.9 % of the time (high by XProf's grades)" in finding.evidence[0]
    assert "1 a step, 499 us in the median" in finding.evidence[1]
    assert "train.py:7 (main)" in finding.evidence[-1]


def test_loading_seen_by_frames_alone() -> None:
    def frames(b: TraceBuilder, i: int, start: int, end: int) -> None:
        b.python("torch/utils/data/dataloader.py(630): __next__", start, end)
        b.python("torch/utils/data/_utils/fetch.py(40): fetch", start + 1_000, end - 1_000)

    evidence = evidence_of(loop(frames))
    check(evidence, r17_loads_in_main_process(evidence), "R17", STEPS * FAULT)


@pytest.mark.parametrize("fault", [single, multi, every_fourth, new_epoch_at_3])
def test_a_loader_behind_a_busy_gpu_costs_nothing(fault) -> None:
    assert silent(evidence_of(loop(fault, steps=12, hidden=True)))


def test_a_short_wait_is_not_told() -> None:
    evidence = evidence_of(loop(lambda b, i, s, e: b.annotation(_SINGLE, s, s + 49_000)))
    assert evidence.ledger.ns("idle.input") == STEPS * 49_000  # 4.9 % of the window
    assert silent(evidence)


def test_waiting_for_workers_is_not_the_single_process_rule() -> None:
    evidence = evidence_of(loop(multi))
    assert r17_loads_in_main_process(evidence) is None
    finding = check(evidence, r16_waits_for_batch(evidence), "R16", STEPS * FAULT)
    assert "workers" in finding.title


def test_a_loader_of_another_kind() -> None:
    evidence = evidence_of(loop(lambda b, i, s, e: b.annotation("next_batch", s, e)))
    finding = check(evidence, r16_waits_for_batch(evidence), "R16", STEPS * FAULT)
    assert "workers" not in finding.title
    assert "next_batch" in finding.evidence[-1]


def test_copies_are_not_input() -> None:
    def copy(b: TraceBuilder, i: int, start: int, end: int) -> None:
        b.op("aten::copy_", start, end)
        b.memcpy(start, end, end - 1_000, end - 500)

    assert silent(evidence_of(loop(copy)))


def test_a_stall_every_fourth_batch() -> None:
    evidence = evidence_of(loop(every_fourth, steps=12))
    lost = 3 * FAULT + 9 * 5_000
    finding = check(evidence, r21_stall_every_few_batches(evidence), "R21", lost)
    assert "every 4 batches" in finding.title
    assert "499 us" in finding.evidence[1]


def test_equal_waits_have_no_period() -> None:
    assert r21_stall_every_few_batches(evidence_of(loop(multi, steps=12))) is None


def test_two_periods_are_too_few_to_tell_one() -> None:
    assert r21_stall_every_few_batches(evidence_of(loop(every_fourth, steps=8))) is None


def test_workers_that_start_anew_at_an_epoch() -> None:
    evidence = evidence_of(loop(new_epoch_at_3))
    finding = check(evidence, r22_workers_respawn(evidence), "R22", 480_000)
    assert "1 of 7 calls of next begin an epoch and take 480 us" in finding.evidence[1]
    assert finding.remedies[0].id == "persistent-workers"


def test_workers_that_start_anew_seen_by_frames() -> None:
    def frames(b: TraceBuilder, i: int, start: int, end: int) -> None:
        b.annotation(_MULTI, end - 5_000, end)
        if i == 3:
            b.python("torch/utils/data/dataloader.py(436): __iter__", start, end - 10_000)
            b.python("torch/utils/data/dataloader.py(380): _get_iterator", start, end - 20_000)

    evidence = evidence_of(loop(frames))
    check(evidence, r22_workers_respawn(evidence), "R22", FAULT - 20_000)


def test_a_slow_batch_inside_an_epoch_is_no_respawn() -> None:
    def slow(b: TraceBuilder, i: int, start: int, end: int) -> None:
        b.annotation(_MULTI, start, end if i == 3 else start + 5_000)

    assert r22_workers_respawn(evidence_of(loop(slow))) is None


def copy_on(stream: int, name: str = "Memcpy HtoD (Pinned -> Device)"):
    def fault(b: TraceBuilder, i: int, start: int, end: int) -> None:
        b.op("aten::copy_", start - 3_000, start - 1_000)
        b.memcpy(start - 3_000, start - 1_000, start, end, name, 998_000, stream)

    return fault


def test_a_copy_before_the_kernels_that_wait_for_it() -> None:
    evidence = evidence_of(loop(copy_on(7)))
    finding = check(evidence, r32_no_device_prefetch(evidence), "R32", STEPS * FAULT)
    assert finding.accounts == {"copy.h2d": STEPS * FAULT}
    # 998,000 bytes in 499 us are 2 GB/s.
    assert "1 copies a step, 974.6 KiB a step, at 2.0 GB/s" in finding.evidence[1]


@pytest.mark.parametrize(
    "builder",
    [
        loop(copy_on(21)),  # on a stream of its own: prefetched, if late
        loop(copy_on(7), hidden=True),
        loop(copy_on(7, "Memcpy HtoD (Pageable -> Device)")),  # R54's
        loop(copy_on(7, "Memcpy DtoH (Device -> Pinned)")),
    ],
)
def test_copies_that_prefetching_does_not_help(builder: TraceBuilder) -> None:
    assert r32_no_device_prefetch(evidence_of(builder)) is None


def _rules(path: Path) -> dict[str, float]:
    timeline = open_trace(path)
    nesting = nest(timeline.host, len(timeline.threads))
    (ledger,) = build_ledgers(timeline, nesting)
    return {f.rule: f.lost_ns / ledger.window_ns for f in find(timeline, nesting, ledger)}


def test_real_traces(traces: Path) -> None:
    before = _rules(traces / "kineto/resnet50_v100_workers0.pt.trace.json.gz")
    assert next(iter(before)) == "R17"
    assert before["R17"] == pytest.approx(0.331, abs=0.01)
    after = _rules(traces / "kineto/resnet50_v100_workers4.pt.trace.json.gz")
    assert not after.keys() & {"R16", "R17", "R21", "R22"}
    assert next(iter(_rules(traces / "tracelens/h100_owlv2_infer.json.gz"))) == "R17"
    for healthy in ("hta/v100_dlrm_ns_rank0", "tracelens/h100_qwen05b_infer"):
        found = _rules(traces / f"{healthy}.json.gz").keys()
        assert not found & {"R16", "R17", "R21", "R22", "R32"}
