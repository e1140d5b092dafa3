"""Faults planted with known nanoseconds: the ledger must return them exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builders import TraceBuilder
from whyidle.ledger.accounts import ACCOUNTS
from whyidle.ledger.build import build_ledgers
from whyidle.ledger.model import Ledger
from whyidle.timeline.columns import DeviceKind, HostKind
from whyidle.timeline.nesting import nest

STEP = 100_000  # ns of each synthetic step
STEPS = 4


def ledgers(builder: TraceBuilder) -> tuple[Ledger, ...]:
    timeline = builder.build()
    return build_ledgers(timeline, nest(timeline.host, len(timeline.threads)))


def accounts(ledger: Ledger) -> dict[str, int]:
    return {a.name: int(n) for a, n in zip(ACCOUNTS, ledger.by_account(), strict=True) if n}


def training(fault: Callable[[TraceBuilder, int, int], None]) -> dict[str, int]:
    """Four steps; in each the GPU computes 40 us, waits for ``fault`` 50 us, computes 10 us.

    The first kernel runs [0, 40) of the step. The host is in the fault during [40, 90) and then
    launches the second kernel, which runs [90, 100) and is launched by a call that ends at 90.
    """
    builder = TraceBuilder()
    builder.properties()
    for i in range(STEPS):
        t = i * STEP
        builder.step(i, t, t + STEP)
        # Launched in the step before, except for the first, so that no idle time precedes it.
        builder.launch("sgemm", max(t - 500, 0), max(t - 400, 0), t, t + 40_000)
        fault(builder, t + 40_000, t + 90_000)
        builder.launch("sgemm", t + 89_000, t + 90_000, t + 90_000, t + 100_000)
    (ledger,) = ledgers(builder)
    assert ledger.window_ns == STEPS * STEP
    return accounts(ledger)


def _loader(b: TraceBuilder, start: int, end: int) -> None:
    b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, end - 5_000)
    b.op("aten::stack", start + 1_000, start + 9_000)  # collate inside the loader is input too


def _sync(b: TraceBuilder, start: int, end: int) -> None:
    b.op("aten::item", start - 10_000, end - 5_000)
    b.sync(start - 9_000, end - 6_000)


def _explicit_sync(b: TraceBuilder, start: int, end: int) -> None:
    b.sync(start - 20_000, end - 5_000, "cudaDeviceSynchronize")


def _allocator(b: TraceBuilder, start: int, end: int) -> None:
    b.op("aten::empty", start, end - 4_000)
    b.sync(start, end - 5_000, "cudaMalloc")


def _checkpoint(b: TraceBuilder, start: int, end: int) -> None:
    b.annotation("save_checkpoint", start, end - 5_000)
    b.op("aten::copy_", start + 100, end - 6_000)


def _validation(b: TraceBuilder, start: int, end: int) -> None:
    b.annotation("validation", start, end - 5_000)
    # Validation's loader is not training input.
    b.annotation(
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, end - 9_000
    )


def _gc(b: TraceBuilder, start: int, end: int) -> None:
    b.host("Python GC", start, end - 5_000, HostKind.GC)


def _compile(b: TraceBuilder, start: int, end: int) -> None:
    b.op("_compile.compile_inner (dynamo_timed)", start, end - 5_000)


def _logging(b: TraceBuilder, start: int, end: int) -> None:
    b.annotation("wandb.log", start, end - 5_000)


def _pageable_copy(b: TraceBuilder, start: int, end: int) -> None:
    b.op("aten::copy_", start, end - 4_500)
    # The call blocks 45 us; the copy itself takes 1 us of them on the device.
    b.memcpy(start, end - 5_000, start + 20_000, start + 21_000)


@pytest.mark.parametrize(
    ("fault", "account", "ns"),
    [
        (_loader, "idle.input", 45_000),
        (_sync, "idle.sync", 45_000),
        (_explicit_sync, "idle.sync", 45_000),
        (_allocator, "idle.allocator", 45_000),
        (_checkpoint, "idle.checkpoint", 45_000),
        (_validation, "idle.evaluation", 45_000),
        (_gc, "idle.gc", 45_000),
        (_compile, "idle.compile", 45_000),
        (_logging, "idle.logging", 45_000),
    ],
)
def test_a_planted_fault_is_returned_to_the_nanosecond(
    fault: Callable[[TraceBuilder, int, int], None], account: str, ns: int
) -> None:
    got = training(fault)
    assert got[account] == STEPS * ns
    assert got["compute.matmul"] == STEPS * 50_000
    # The rest of each gap: Python up to the launch, and the launch call itself.
    rest = {k: v for k, v in got.items() if k not in (account, "compute.matmul")}
    assert sum(rest.values()) == STEPS * (50_000 - ns)
    assert set(rest) <= {"idle.python", "idle.dispatch"}


def test_a_blocking_copy_is_transfer_and_its_device_part_is_a_copy() -> None:
    got = training(_pageable_copy)
    assert got["copy.h2d"] == STEPS * 1_000
    # 20 us before the copy and 24 us after it, in the copy call and the operator around it.
    assert got["idle.transfer"] == STEPS * (20_000 + 24_500)
    assert got["idle.python"] + got["idle.dispatch"] == STEPS * 4_500


def test_tiny_kernels_are_dispatch() -> None:
    builder = TraceBuilder()
    for i in range(100):
        t = 10_000 * i
        builder.op("aten::add", t, t + 9_000)
        builder.launch("add_kernel", t + 6_000, t + 8_000, t + 8_000, t + 9_500)
    (ledger,) = ledgers(builder)
    got = accounts(ledger)
    assert got["compute.other"] == 100 * 1_500
    # Between kernels: [9.5, 10) Python between operators, [0, 8) the next operator.
    assert got["idle.python"] == 99 * 500
    assert got["idle.dispatch"] == 99 * 8_000
    assert ledger.window_ns == sum(got.values())


def test_exposed_collective_copies_and_overlap() -> None:
    builder = TraceBuilder()
    builder.launch("sgemm", 0, 1, 10, 100)
    builder.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 2, 3, 60, 180, stream=20)
    builder.memcpy(4, 5, 150, 250, name="Memcpy DtoH (Device -> Pinned)", stream=21)
    builder.launch(
        "Memset (Device)", 6, 7, 240, 260, kind=DeviceKind.MEMSET, runtime="cudaMemsetAsync"
    )
    (ledger,) = ledgers(builder)
    assert accounts(ledger) == {
        "compute.matmul": 90,
        "comm.exposed": 80,  # [100, 180): the first 40 ns are hidden behind the kernel
        "copy.d2h": 70,  # [180, 250)
        "memset": 10,
    }


def test_work_already_queued_is_queue_not_the_host() -> None:
    builder = TraceBuilder()
    builder.launch("sgemm", 0, 10, 20, 100)
    builder.launch("sgemm", 11, 20, 300, 400, stream=8)  # launched long before, started late
    (ledger,) = ledgers(builder)
    assert accounts(ledger) == {"compute.matmul": 180, "idle.queue": 200}


def test_launch_latency_after_the_call_returned_is_queue() -> None:
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 10)
    builder.launch("sgemm", 0, 10, 20, 100)
    builder.op("aten::mm", 120, 160)
    builder.launch("sgemm", 130, 150, 170, 200)
    (ledger,) = ledgers(builder)
    assert accounts(ledger) == {
        "compute.matmul": 110,
        "idle.python": 20,  # [100, 120)
        "idle.dispatch": 30,  # [120, 150)
        "idle.queue": 20,  # [150, 170)
    }


def test_a_kernel_without_a_launch_leaves_its_gap_unattributed() -> None:
    builder = TraceBuilder()
    builder.launch("sgemm", 0, 10, 20, 100)
    builder.orphan("sgemm", 150, 200)
    (ledger,) = ledgers(builder)
    assert accounts(ledger) == {"compute.matmul": 130, "idle.unattributed": 50}


def test_a_kernel_launched_before_the_recording_was_queued() -> None:
    builder = TraceBuilder()
    builder.orphan("sgemm", 0, 50)  # the builder numbers calls as the profiler does
    builder.orphan("sgemm", 80, 100)
    builder.op("aten::mm", 100, 130)
    builder.launch("sgemm", 110, 120, 120, 200)
    builder.orphan("sgemm", 260, 300)  # its call should be there, and is not
    (ledger,) = ledgers(builder)
    assert accounts(ledger) == {
        "compute.matmul": 50 + 20 + 80 + 40,
        "idle.queue": 30,
        "idle.dispatch": 20,
        "idle.unattributed": 60,
    }


def test_backward_thread_waits_for_the_main_thread_then_runs_its_engine() -> None:
    builder = TraceBuilder()
    backward = builder.thread("pt_autograd_0")
    builder.launch("sgemm", 0, 10, 10, 100)
    builder.launch("sgemm", 30, 40, 100, 110, thread=backward)  # an earlier life of the thread
    # Main: an operator until 300, then blocked in backward (no event).
    builder.op("aten::nll_loss", 120, 300)
    builder.op("MmBackward0", 340, 380, thread=backward)
    builder.launch("sgemm", 350, 360, 360, 380, thread=backward)
    builder.op("AddBackward0", 400, 440, thread=backward)
    builder.launch("sgemm", 410, 420, 420, 430, thread=backward)
    builder.op("aten::zero_", 500, 510)
    (ledger,) = ledgers(builder)
    assert accounts(ledger) == {
        "compute.matmul": 90 + 10 + 20 + 10,
        # [110, 120) main between operators, [300, 340) main after the loss, before the engine
        "idle.python": 10 + 40,
        # [120, 300) the loss operator; [340, 360) the node; [380, 400) the engine between nodes;
        # [400, 420) the next node
        "idle.dispatch": 180 + 20 + 20 + 20,
    }


def test_optimizer_holds_its_operators_but_not_a_synchronize_in_it() -> None:
    builder = TraceBuilder()
    builder.launch("sgemm", 0, 10, 10, 100)
    builder.annotation("Optimizer.step#Adam.step", 100, 300)
    builder.op("aten::_foreach_add_", 110, 180)
    builder.op("aten::item", 200, 250)
    builder.sync(205, 245)
    builder.launch("multi_tensor_apply_kernel", 280, 290, 290, 400)
    (ledger,) = ledgers(builder)
    got = accounts(ledger)
    assert got["idle.sync"] == 50
    assert got["idle.optimizer"] == 140
    after = ledger.segments.after_sync
    assert int(ledger.segments.ns[after].sum()) == 45  # [245, 290): what follows the sync


def test_profiler_overhead_is_its_own_account() -> None:
    builder = TraceBuilder()
    overhead = builder.thread("overhead", pid="-1")
    builder.launch("sgemm", 0, 10, 10, 100)
    builder.op("aten::mm", 100, 300)
    builder.host("Buffer Flush", 150, 230, HostKind.OVERHEAD, thread=overhead)
    builder.launch("sgemm", 280, 290, 290, 400)
    (ledger,) = ledgers(builder)
    got = accounts(ledger)
    assert got["idle.profiler"] == 80
    assert got["idle.dispatch"] == 110


def test_each_device_has_its_own_window_and_gaps() -> None:
    builder = TraceBuilder()
    builder.launch("sgemm", 0, 10, 10, 100, device=0)
    builder.launch("sgemm", 20, 30, 50, 90, device=1)
    builder.op("aten::mm", 105, 121)
    builder.launch("sgemm", 110, 120, 120, 200, device=1)
    first, second = ledgers(builder)
    assert accounts(first) == {"compute.matmul": 90}
    assert (second.device, second.window) == (1, (50, 200))
    assert accounts(second) == {"compute.matmul": 120, "idle.python": 15, "idle.dispatch": 15}


def test_by_step_splits_every_account_at_the_step_edges() -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.step(1, 100, 200)
    builder.launch("sgemm", 10, 20, 20, 130)  # crosses the edge
    builder.launch("sgemm", 150, 160, 160, 210)
    (ledger,) = ledgers(builder)
    table = ledger.by_step()
    assert table.sum() == ledger.window_ns == 210
    assert table.sum(axis=1).tolist() == [100, 110]
    matmul = [a.name for a in ACCOUNTS].index("compute.matmul")
    assert table[:, matmul].tolist() == [80, 30 + 50]
