"""The ledger against a second, plain implementation, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from whyidle.ledger.accounts import ACCOUNTS
from whyidle.ledger.build import build_ledgers
from whyidle.readers import open_trace
from whyidle.timeline.columns import DeviceKind, HostKind, Timeline
from whyidle.timeline.nesting import nest

from .oracle import Oracle

NAMES = (
    "kineto/resnet50_v100_workers0.pt.trace.json.gz",
    "kineto/resnet50_v100_workers4.pt.trace.json.gz",
    "hta/a100_ddp_rank0of2.json.gz",
    "hta/v100_dlrm_ns_rank0.json.gz",
    "hta/a100_dlrm_rank0of16.json.gz",
    "hta/a100_dlrm_rank3of8.json.gz",
    "hta/two_ranks_sampled/sampled_rank-0.json.gz",
    "hta/a100_event_sync.json.gz",
    "hta/a100_event_sync_multi_stream.json.gz",
    "hta/mi250_toy_train.json.gz",
    "hta/a100_alexnet.json.gz",
    "tracelens/mi210_gpu_only.json.gz",
)


def _compare(timeline: Timeline) -> None:
    oracle = Oracle(timeline)
    for ledger in build_ledgers(timeline, nest(timeline.host, len(timeline.threads))):
        totals = ledger.by_account()
        got = {ACCOUNTS[i].name: int(totals[i]) for i in np.flatnonzero(totals)}
        assert got == oracle.accounts(ledger.device, ledger.window)


@pytest.mark.parametrize("name", NAMES)
def test_real_traces(traces: Path, name: str) -> None:
    _compare(open_trace(traces / name))


HOST_NAMES = (
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
    ("Buffer Flush", HostKind.OVERHEAD),
)


@st.composite
def nested(
    draw: st.DrawFn, low: int, high: int, depth: int = 0
) -> list[tuple[str, HostKind, int, int]]:
    rows = []
    at = low
    while at < high and draw(st.booleans()):
        start = draw(st.integers(at, high - 1))
        end = draw(st.integers(start + 1, high))
        name, kind = draw(st.sampled_from(HOST_NAMES))
        rows.append((name, kind, start, end))
        if depth < 2 and end - start > 2:
            rows += draw(nested(start + 1, end - 1, depth + 1))
        at = end + 1
    return rows


works = st.lists(
    st.tuples(
        st.sampled_from(("sgemm", "ncclDevKernel", "Memcpy HtoD (Pageable -> Device)", "relu")),
        st.integers(1, 20),  # pause of the host before the call
        st.integers(1, 9),  # length of the call
        st.integers(0, 60),  # delay from the call's start to the work
        st.integers(1, 40),  # length of the work
        st.integers(0, 2),  # stream
    ),
    min_size=1,
    max_size=8,
)


@given(
    st.lists(nested(0, 200), min_size=3, max_size=3),
    works,
    st.integers(0, 2),
    st.booleans(),
    st.lists(st.integers(20, 90), max_size=3),
)
@settings(max_examples=250, deadline=None)
def test_random_traces(
    threads: list[list[tuple[str, HostKind, int, int]]],
    work: list[tuple[str, int, int, int, int, int]],
    launcher: int,
    orphans: bool,
    steps: list[int],
) -> None:
    builder = TraceBuilder()
    for _ in range(3):
        builder.thread()
    for thread, rows in enumerate(threads):
        for name, kind, start, end in rows:
            # Launches have thread 3 or the time behind 200 for themselves: proper nesting.
            builder.host(name, start, end, kind, thread)
    at = 0 if launcher == 2 else 201
    for i, (name, pause, length, delay, run, stream) in enumerate(work):
        at += pause
        copy = DeviceKind.MEMCPY if name.startswith("Memcpy") else DeviceKind.KERNEL
        if orphans and i % 3 == 0:
            builder.orphan(name, at + delay, at + delay + run, stream, kind=copy)
        else:
            builder.launch(
                name,
                at,
                at + length,
                at + delay,
                at + delay + run,
                stream,
                kind=copy,
                runtime="cudaMemcpyAsync" if copy == DeviceKind.MEMCPY else "cudaLaunchKernel",
                thread=3 if launcher == 2 else launcher,
            )
        at += length
    begin = 300
    for i, length in enumerate(steps):
        builder.step(i, begin + 1000, begin + 1000 + length)
        begin += length
    _compare(builder.build())
