"""Whatever the trace, every nanosecond of the window is in exactly one account."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from whyidle.ledger.accounts import ACCOUNTS, FIRST_IDLE
from whyidle.ledger.build import build_ledgers
from whyidle.timeline.columns import DeviceKind, HostKind
from whyidle.timeline.nesting import nest

HOST_NAMES = (
    "aten::mm",
    "aten::item",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "Optimizer.step#SGD.step",
    "cudaStreamSynchronize",
    "cudaMalloc",
    "validation",
    "train.py(10): main",
)
DEVICE_NAMES = (
    "sgemm",
    "ncclDevKernel_AllReduce",
    "Memcpy HtoD (Pageable -> Device)",
    "Memset (Device)",
    "elementwise_kernel",
)

host_rows = st.lists(
    st.tuples(
        st.sampled_from(HOST_NAMES),
        st.integers(0, 400),
        st.integers(0, 150),
        st.sampled_from(list(HostKind)),
        st.integers(0, 2),
    ),
    max_size=30,
)
device_rows = st.lists(
    st.tuples(
        st.sampled_from(DEVICE_NAMES),
        st.integers(0, 400),  # host start
        st.integers(0, 30),  # host length
        st.integers(-20, 300),  # device start after the host start: clocks may disagree
        st.integers(0, 80),
        st.integers(0, 3),  # stream
        st.integers(0, 1),  # device
        st.integers(0, 2),  # thread
        st.booleans(),  # is its launch recorded?
    ),
    min_size=1,
    max_size=30,
)
marks = st.lists(st.integers(1, 150), max_size=4)


def _kind(name: str) -> DeviceKind:
    if name.startswith("Memcpy"):
        return DeviceKind.MEMCPY
    return DeviceKind.MEMSET if name.startswith("Memset") else DeviceKind.KERNEL


@given(host_rows, device_rows, marks, st.sampled_from([1, 10, 1000]))
@settings(max_examples=300, deadline=None)
def test_conservation(
    hosts: list[tuple[str, int, int, HostKind, int]],
    devices: list[tuple[str, int, int, int, int, int, int, int, bool]],
    steps: list[int],
    resolution: int,
) -> None:
    builder = TraceBuilder()
    for _ in range(2):
        builder.thread()
    for name, start, length, kind, thread in hosts:
        builder.host(name, start * resolution, (start + length) * resolution, kind, thread)
    for name, start, length, delay, run, stream, device, thread, recorded in devices:
        low = (start + delay) * resolution
        high = low + run * resolution
        if recorded:
            builder.launch(
                name,
                start * resolution,
                (start + length) * resolution,
                low,
                high,
                stream,
                device,
                _kind(name),
                thread=thread,
            )
        else:
            builder.orphan(name, low, high, stream, device, _kind(name))
    at = 0
    for i, length in enumerate(steps):
        builder.step(i, at * resolution, (at + length) * resolution)
        at += length
    timeline = builder.build()
    ledgers = build_ledgers(timeline, nest(timeline.host, len(timeline.threads)))
    assert len(ledgers) == len(np.unique(timeline.device.device))
    for ledger in ledgers:
        ledger.check()
        totals = ledger.by_account()
        assert int(totals.sum()) == ledger.window_ns
        assert (totals >= 0).all()
        assert (ledger.by_step().sum(axis=0) == totals).all()
        # Busy time is the plain union of the activities, counted here point by point.
        mine = timeline.device.device == ledger.device
        low, high = ledger.window
        points: set[int] = set()
        for a, b in zip(timeline.device.start[mine], timeline.device.end[mine], strict=True):
            points.update(range(max(a, low), min(b, high), resolution))
        assert int(totals[:FIRST_IDLE].sum()) == len(points) * resolution
        idle = ledger.segments.idle
        assert (ledger.segments.gap[idle] >= 0).all()
        assert (ledger.segments.activity[~idle] >= 0).all()


def test_accounts_are_unique_and_every_idle_account_is_last() -> None:
    names = [a.name for a in ACCOUNTS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("idle.") for name in names[FIRST_IDLE:])
    assert not any(name.startswith("idle.") for name in names[:FIRST_IDLE])
