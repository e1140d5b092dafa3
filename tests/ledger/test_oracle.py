"""The ledger against a second, plain implementation, piece by piece and to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from whyidle.ledger.accounts import ACCOUNTS
from whyidle.ledger.build import build_ledgers
from whyidle.ledger.model import Ledger
from whyidle.readers import open_trace
from whyidle.timeline.columns import DeviceKind, HostKind, Timeline
from whyidle.timeline.nesting import nest

from .oracle import Oracle, Piece
from .oracle_trace import from_kineto, from_timeline
from .oracle_window import window

REAL = (
    "kineto/resnet50_v100_workers0.pt.trace.json.gz",
    "kineto/resnet50_v100_workers4.pt.trace.json.gz",
    "hta/a100_ddp_rank0of2.json.gz",
    "hta/v100_dlrm_ns_rank0.json.gz",
    "hta/a100_dlrm_rank0of16.json.gz",
    "hta/two_ranks_sampled/sampled_rank-0.json.gz",
    "hta/two_ranks_sampled/sampled_rank-1.json.gz",
    "hta/a100_event_sync.json.gz",
    "hta/a100_event_sync_multi_stream.json.gz",
    "hta/a100_alexnet.json.gz",
    "hta/mi250_toy_train.json.gz",
    "tracelens/h100_bert_small_infer.json.gz",
    "tracelens/h100_qwen05b_infer.json.gz",
    "tracelens/mi300_resnet_ddp_checkpoint_rank.json.gz",
    "tracelens/mi300_compile_triton.json.gz",
    "tracelens/mi210_gpu_only.json.gz",
)


class What(NamedTuple):
    """All that a piece says but its time; of busy pieces only the account."""

    account: str
    ender: int
    host: int
    after_sync: bool


def _joined(pieces: Iterable[tuple[int, int, What]]) -> list[tuple[int, int, What]]:
    """Pieces with equal neighbours made one, each with its begin and end."""
    joined = []
    for what, group in groupby(pieces, key=lambda piece: piece[2]):
        members = list(group)
        assert all(a[1] == b[0] for a, b in pairwise(members))
        joined.append((members[0][0], members[-1][1], what))
    return joined


def _of_ledger(ledger: Ledger) -> list[tuple[int, int, What]]:
    s = ledger.segments
    rows = zip(
        *(column.tolist() for column in (s.start, s.end, s.account, s.activity, s.host)),
        s.after_sync.tolist(),
        strict=True,
    )
    return _joined(
        (a, b, _what(ACCOUNTS[account].name, activity, host, after))
        for a, b, account, activity, host, after in rows
    )


def _of_oracle(pieces: list[Piece]) -> list[tuple[int, int, What]]:
    return _joined(
        (p.start, p.end, _what(p.account, p.ender, p.host, p.after_sync)) for p in pieces
    )


def _what(account: str, ender: int, host: int, after_sync: bool) -> What:
    idle = account.startswith("idle.")
    return What(account, ender, host, after_sync) if idle else What(account, -1, -1, False)


def _compare(timeline: Timeline, oracle: Oracle) -> None:
    ledgers = build_ledgers(timeline, nest(timeline.host, len(timeline.threads)))
    assert [x.device for x in ledgers] == sorted({w.device for w in oracle.trace.works})
    for ledger in ledgers:
        assert ledger.window == window(oracle.trace, ledger.device)
        assert _of_ledger(ledger) == _of_oracle(oracle.pieces(ledger.device))


@pytest.mark.parametrize("name", REAL)
def test_real_traces(traces: Path, name: str) -> None:
    oracle = Oracle(from_kineto(traces / name))
    timeline = open_trace(traces / name)
    assert timeline.main_thread == oracle.trace.main
    _compare(timeline, oracle)


HOST = (
    ("aten::mm", HostKind.OPERATOR),
    ("aten::item", HostKind.OPERATOR),
    ("aten::copy_", HostKind.OPERATOR),
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", HostKind.ANNOTATION),
    ("Optimizer.step#SGD.step", HostKind.ANNOTATION),
    ("my phase", HostKind.ANNOTATION),
    ("validation", HostKind.ANNOTATION),
    ("train.py(3): main", HostKind.PYTHON),
    ("<built-in method run_backward of torch._C._EngineBase object at 0x7f>", HostKind.PYTHON),
    ("cudaStreamSynchronize", HostKind.RUNTIME),
    ("cudaMalloc", HostKind.RUNTIME),
    ("gc", HostKind.GC),
    ("Buffer Flush", HostKind.OVERHEAD),
    ("Lazy Function Loading", HostKind.OVERHEAD),
)
WORKS = (
    ("sgemm", DeviceKind.KERNEL, "cudaLaunchKernel"),
    ("elementwise_kernel", DeviceKind.KERNEL, "cudaLaunchKernel"),
    ("ncclDevKernel_AllReduce", DeviceKind.KERNEL, "cudaLaunchKernelExC"),
    ("Memcpy HtoD (Pageable -> Device)", DeviceKind.MEMCPY, "cudaMemcpyAsync"),
    ("Memcpy DtoH (Device -> Pinned)", DeviceKind.MEMCPY, "cudaMemcpyAsync"),
    ("Memcpy DtoH (Device -> Pinned)", DeviceKind.MEMCPY, "cudaMemcpy"),
    ("Memset (Device)", DeviceKind.MEMSET, "cudaMemsetAsync"),
)
TIME = 400


@st.composite
def nested(
    draw: st.DrawFn, low: int, high: int, depth: int = 0
) -> list[tuple[str, HostKind, int, int]]:
    """Properly nested host events in [low, high], some of them without length."""
    rows = []
    at = low
    while at < high and draw(st.booleans()):
        start = draw(st.integers(at, high))
        end = draw(st.integers(start, high))
        rows.append((*draw(st.sampled_from(HOST)), start, end))
        if depth < 3 and end - start > 2:
            rows += draw(nested(start, end, depth + 1))
        at = end
    return rows


loose = st.lists(  # host events that may overlap in part
    st.tuples(st.sampled_from(HOST), st.integers(0, TIME), st.integers(0, TIME // 4)).map(
        lambda e: (*e[0], e[1], e[1] + e[2])
    ),
    max_size=8,
)


@st.composite
def traces_of_anything(draw: st.DrawFn) -> TraceBuilder:
    builder = TraceBuilder()
    count = draw(st.integers(1, 3))
    for _ in range(count - 1):
        builder.thread()
    for thread in range(count):
        rows = draw(nested(0, TIME) if draw(st.booleans()) else loose)
        for name, kind, start, end in rows:
            builder.host(name, start, end, kind, thread)
    for _ in range(draw(st.integers(1, 10))):
        name, kind, runtime = draw(st.sampled_from(WORKS))
        call, length = draw(st.integers(0, TIME)), draw(st.integers(0, 30))
        start = call + draw(st.integers(0, 80))
        end = start + draw(st.integers(0, 60))
        stream, device = draw(st.integers(0, 2)), draw(st.sampled_from((0, 0, 1)))
        if draw(st.integers(0, 5)) == 0:
            builder.orphan(name, start, end, stream, device, kind)
        else:
            thread = draw(st.integers(0, count - 1))
            builder.launch(
                name,
                call,
                call + length,
                start,
                end,
                stream,
                device,
                kind,
                runtime,
                thread=thread,
            )
    step = draw(st.integers(0, TIME // 2))
    for i in range(draw(st.integers(0, 3))):
        length = draw(st.integers(1, TIME // 2))
        builder.step(i, step, step + length)
        step += length + draw(st.integers(0, 5))
    return builder


@given(traces_of_anything())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_traces(builder: TraceBuilder) -> None:
    timeline = builder.build()
    _compare(timeline, Oracle(from_timeline(timeline)))


@given(traces_of_anything())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_files(tmp_path_factory: pytest.TempPathFactory, builder: TraceBuilder) -> None:
    """The same through a file, which each side reads for itself."""
    path = builder.write_kineto(tmp_path_factory.mktemp("random") / "trace.json")
    timeline, oracle = open_trace(path), Oracle(from_kineto(path))
    assert timeline.main_thread == oracle.trace.main
    _compare(timeline, oracle)


@pytest.mark.parametrize("repeats", [4, 5, 8])
@pytest.mark.parametrize("prologue", [0, 1, 2])
def test_steps_found_by_repeated_kernels(repeats: int, prologue: int) -> None:
    builder = TraceBuilder()
    at = 1000
    for i in range(-prologue, repeats * 4):
        name = f"prologue{i}" if i < 0 else ("gemm", "relu", "softmax", "adam")[i % 4]
        at += (50, 400, 20, 30)[i % 4]
        builder.orphan(name, at, at + 100)
        at += 100
    timeline = builder.build()
    oracle = Oracle(from_timeline(timeline))
    assert build_ledgers(timeline, nest(timeline.host, 1))[0].steps.source == "repetition"
    _compare(timeline, oracle)
