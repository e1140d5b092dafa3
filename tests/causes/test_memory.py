from __future__ import annotations

from dataclasses import replace

import pytest

from builders import TraceBuilder, evidence_of
from findings import FAULT, STEPS, check, loop
from whyidle.causes.evidence import Evidence
from whyidle.causes.memory import (
    RULES,
    r54_pageable_copy,
    r55_blocking_pinned_copy,
    r56_allocates_in_steady_state,
    r57_empties_cache,
    r58_needless_checkpointing,
)

_PINNED = "Memcpy HtoD (Pinned -> Device)"
_EMPTY = "torch/cuda/memory.py(150): empty_cache"


def pageable(b: TraceBuilder, i: int, start: int, end: int) -> None:
    """The call blocks all the while; the copy runs 50 us of it."""
    b.python("train.py(9): to_gpu", start, end)
    b.op("aten::copy_", start, end)
    b.memcpy(start, end, end - 100_000, end - 50_000, bytes=200_000)


def pinned(b: TraceBuilder, i: int, start: int, end: int) -> None:
    """A copy of 50 us from pinned memory, then a synchronize until the end."""
    b.op("aten::copy_", start, end)
    b.memcpy(start, start + 1_000, start + 2_000, start + 52_000, _PINNED)
    b.sync(start + 1_000, end)


def non_blocking(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.op("aten::copy_", start, start + 2_000)
    b.memcpy(start, start + 1_000, start + 2_000, start + 52_000, _PINNED)
    b.python("train.py(9): work", start + 2_000, end)


def mallocs(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.op("aten::empty", start, end)
    b.sync(start, start + 100_000, "cudaFree")
    b.sync(start + 100_000, end, "cudaMalloc")


def empties(b: TraceBuilder, i: int, start: int, end: int) -> None:
    """The cache is emptied for 299 us, and 200 us go to allocating anew."""
    b.python(_EMPTY, start, end - 200_000)
    b.sync(start + 1_000, end - 201_000, "cudaFree")
    b.op("aten::empty", end - 200_000, end)
    b.sync(end - 200_000, end, "cudaMalloc")


def silent(evidence: Evidence) -> bool:
    return all(rule(evidence) is None for rule in RULES)


@pytest.mark.parametrize("fault", [pageable, pinned, mallocs, empties])
def test_behind_a_busy_gpu_nothing_is_lost(fault) -> None:
    assert silent(evidence_of(loop(fault, hidden=True)))


def test_pageable_copies() -> None:
    evidence = evidence_of(loop(pageable))
    finding = check(evidence, r54_pageable_copy(evidence), "R54", STEPS * FAULT)
    assert finding.accounts == {"copy.h2d": STEPS * 50_000, "idle.transfer": STEPS * 449_000}
    # 200,000 bytes in 50 us.
    assert "195.3 KiB a step, at 4.0 GB/s on the GPU" in finding.evidence[1]
    assert "the calls hold the host 499 us a step" in finding.evidence[1]
    assert "train.py:9 (to_gpu)" in finding.evidence[2]


def test_small_pageable_copies_are_not_told() -> None:
    def small(b: TraceBuilder, i: int, start: int, end: int) -> None:
        b.op("aten::copy_", start, start + 49_000)
        b.memcpy(start, start + 49_000, start + 10_000, start + 11_000)

    evidence = evidence_of(loop(small))
    assert evidence.ledger.ns("idle.transfer", "copy.h2d") == STEPS * 49_000
    assert silent(evidence)


def test_a_pageable_copy_back_is_not_a_batch() -> None:
    def back(b: TraceBuilder, i: int, start: int, end: int) -> None:
        b.op("aten::copy_", start, end)
        b.memcpy(start, end, end - 2_000, end - 1_000, "Memcpy DtoH (Device -> Pageable)")

    assert silent(evidence_of(loop(back)))


def test_a_wait_behind_a_pinned_copy() -> None:
    evidence = evidence_of(loop(pinned))
    # All but 52 us is the synchronize's, and 1 us of it the copy had not begun: idle.queue.
    finding = check(evidence, r55_blocking_pinned_copy(evidence), "R55", STEPS * (FAULT - 52_000))
    assert "1 synchronize calls a step" in finding.evidence[1]
    assert r54_pageable_copy(evidence) is None


def test_a_non_blocking_copy_is_no_finding() -> None:
    assert silent(evidence_of(loop(non_blocking)))


def test_driver_allocations_in_steady_state() -> None:
    evidence = evidence_of(loop(mallocs))
    assert r57_empties_cache(evidence) is None  # the allocator itself frees, inside an operator
    lost = (STEPS - 1) * FAULT
    finding = check(evidence, r56_allocates_in_steady_state(evidence), "R56", lost)
    assert "5 cudaMalloc (2.00 ms on the host)" in finding.evidence[1]
    assert finding.title.startswith("Device memory")


def test_pinned_allocations_in_steady_state() -> None:
    evidence = evidence_of(loop(lambda b, i, s, e: b.sync(s, e, "cudaHostAlloc")))
    finding = check(evidence, r56_allocates_in_steady_state(evidence), "R56", (STEPS - 1) * FAULT)
    assert finding.title.startswith("Pinned")


def test_allocations_of_the_first_step_are_warm_up() -> None:
    def first(b: TraceBuilder, i: int, start: int, end: int) -> None:
        if i == 0:
            mallocs(b, i, start, end)
        else:
            b.python("train.py(9): work", start, end)

    evidence = evidence_of(loop(first))
    assert evidence.ledger.ns("idle.allocator") == FAULT
    assert silent(evidence)


def test_emptying_the_cache() -> None:
    evidence = evidence_of(loop(empties))
    finding = check(evidence, r57_empties_cache(evidence), "R57", (STEPS - 1) * FAULT)
    assert finding.title.startswith("The allocator's cache")
    mean = (STEPS - 1) / STEPS
    assert f"idles {299 * mean:.0f} us a step" in finding.evidence[0]
    assert f"and {200 * mean:.0f} us a step while it allocates anew" in finding.evidence[0]


def test_emptying_the_cache_seen_by_frees_outside_operators() -> None:
    evidence = evidence_of(loop(lambda b, i, s, e: b.sync(s, e, "cudaFree")))
    check(evidence, r57_empties_cache(evidence), "R57", (STEPS - 1) * FAULT)


def test_collecting_garbage_by_hand() -> None:
    evidence = evidence_of(loop(lambda b, i, s, e: b.python("<built-in function collect>", s, e)))
    finding = check(evidence, r57_empties_cache(evidence), "R57", (STEPS - 1) * FAULT)
    assert finding.accounts == {"idle.gc": (STEPS - 1) * FAULT}
    assert finding.title.startswith("Garbage")


_NODE = "autograd::engine::evaluate_function: "


def reentrant(b: TraceBuilder, i: int, start: int, end: int) -> None:
    """A kernel of 200 us is recomputed; 50 us of idle time belong to it, the rest to backward."""
    b.op(f"{_NODE}CheckpointFunctionBackward", start, end)
    b.op("CheckpointFunctionBackward", start, end)
    b.op("aten::conv2d", start, start + 2_000)
    b.launch("conv", start, start + 1_000, start + 1_000, start + 201_000)
    b.op(f"{_NODE}ConvolutionBackward0", start + 250_000, end)
    b.launch("dgrad", start + 300_000, start + 301_000, start + 301_000, start + 401_000)


def by_hook(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.op(f"{_NODE}ConvolutionBackward0", start, end)
    b.python("torch/utils/checkpoint.py(1111): unpack_hook", start, start + 250_000)
    b.op("aten::conv2d", start, start + 2_000)
    b.launch("conv", start, start + 1_000, start + 1_000, start + 201_000)
    b.launch("dgrad", start + 300_000, start + 301_000, start + 301_000, start + 401_000)


def by_operators(b: TraceBuilder, i: int, start: int, end: int) -> None:
    b.op(f"{_NODE}ConvolutionBackward0", start, end)
    b.op("aten::conv2d", start, start + 250_000)
    b.launch("conv", start, start + 1_000, start + 1_000, start + 201_000)
    b.launch("dgrad", start + 300_000, start + 301_000, start + 301_000, start + 401_000)


def with_peak(builder: TraceBuilder, peak: int | None) -> Evidence:
    evidence = evidence_of(builder)
    known = {} if peak is None else {0: peak}
    return replace(evidence, timeline=replace(evidence.timeline, peak_reserved_bytes=known))


@pytest.mark.parametrize("fault", [reentrant, by_hook, by_operators])
def test_recomputation_with_memory_to_spare(fault) -> None:
    evidence = with_peak(loop(fault), 40_000_000_000)
    finding = check(evidence, r58_needless_checkpointing(evidence), "R58", STEPS * 250_000)
    assert finding.accounts["compute.convolution"] == STEPS * 200_000  # the rest is idle
    assert "peak of reserved memory is 50.0 % of the device's 74.5 GiB" in finding.evidence[1]


@pytest.mark.parametrize("peak", [None, 60_000_000_000])
def test_recomputation_that_may_be_needed_is_not_told(peak: int | None) -> None:
    assert r58_needless_checkpointing(with_peak(loop(reentrant), peak)) is None


def test_a_backward_pass_without_recomputation() -> None:
    def backward(b: TraceBuilder, i: int, start: int, end: int) -> None:
        b.op(f"{_NODE}ConvolutionBackward0", start, end)
        b.launch("dgrad", start, start + 1_000, start + 1_000, start + 401_000)

    assert r58_needless_checkpointing(with_peak(loop(backward), 1)) is None
