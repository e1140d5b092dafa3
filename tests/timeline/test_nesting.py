"""Nesting against a plain search for the innermost event."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from whyidle.timeline.columns import HostKind
from whyidle.timeline.nesting import nest


@st.composite
def nested(draw: st.DrawFn, low: int = 0, high: int = 60, depth: int = 0) -> list[tuple[int, int]]:
    """Properly nested events, with instants, shared edges and twins among them."""
    events: list[tuple[int, int]] = []
    at = low
    while at < high and draw(st.booleans()):
        start = draw(st.integers(at, high))
        end = draw(st.integers(start, high))
        events.append((start, end))
        if depth < 3 and end > start:
            events += draw(nested(start, end, depth + 1))
        at = max(end, at + 1)
    return events


@given(nested())
@settings(max_examples=200)
def test_innermost_and_ancestors(events: list[tuple[int, int]]) -> None:
    builder = TraceBuilder()
    for i, (start, end) in enumerate(events):
        builder.op(f"op{i}", start, end)
    timeline = builder.build()
    nesting = nest(timeline.host, 1)
    assert not nesting.left_out.any()
    start, end, parent = timeline.host.start, timeline.host.end, nesting.parent
    segments = nesting.threads[0]
    for t in range(60):
        around = [i for i in range(len(events)) if start[i] <= t < end[i]]
        place = int(np.searchsorted(segments.bounds, t, side="right")) - 1
        got = int(segments.event[place]) if 0 <= place < len(segments.event) else -1
        chain = set()
        while got >= 0:
            chain.add(got)
            assert parent[got] < 0 or nesting.depth[got] == nesting.depth[parent[got]] + 1
            got = int(parent[got])
        assert chain == set(around)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), max_size=25))
@settings(max_examples=200)
def test_any_overlap_still_gives_one_owner_to_each_instant(rows: list[tuple[int, int]]) -> None:
    builder = TraceBuilder()
    for i, (start, length) in enumerate(rows):
        builder.op(f"op{i}", start, start + length)
    timeline = builder.build()
    nesting = nest(timeline.host, 1)
    segments = nesting.threads[0]
    if len(segments.bounds):
        assert (np.diff(segments.bounds) > 0).all()
        assert len(segments.event) == len(segments.bounds) - 1
    assert (nesting.parent != np.arange(len(rows))).all()
    assert (nesting.parent < len(rows)).all()


def test_twins_nest_by_kind_and_a_child_is_cut_at_its_parents_end() -> None:
    builder = TraceBuilder()
    builder.host("aten::mm", 0, 100, HostKind.OPERATOR)
    builder.host("loop", 0, 100, HostKind.ANNOTATION)
    builder.host("cudaLaunchKernel", 60, 101, HostKind.RUNTIME)  # 1 ns past its operator
    timeline = builder.build()
    nesting = nest(timeline.host, 1)
    names = [timeline.names[i] for i in timeline.host.name]
    assert names == ["loop", "aten::mm", "cudaLaunchKernel"]
    assert nesting.parent.tolist() == [-1, 0, 1]
    assert nesting.threads[0].bounds.tolist() == [0, 60, 100]


def _innermost(builder: TraceBuilder) -> list[tuple[int, str]]:
    """When the innermost event of the main thread changes, and to which."""
    timeline = builder.build()
    segments = nest(timeline.host, 1).threads[0]
    names = [timeline.names[timeline.host.name[i]] if i >= 0 else "" for i in segments.event]
    return list(zip(segments.bounds.tolist(), names, strict=False))


def test_what_follows_a_partial_overlap_is_kept() -> None:
    builder = TraceBuilder()
    builder.op("a", 0, 10)
    builder.op("b", 5, 15)
    builder.op("c", 12, 20)
    assert _innermost(builder) == [(0, "a"), (5, "b"), (10, ""), (12, "c")]


def test_an_annotation_outlives_the_python_calls_that_opened_it() -> None:
    """As every trace with stacks has it: the annotation starts within ``enter`` and ends within
    ``__exit__``."""
    builder = TraceBuilder()
    builder.python("train.py(3): loop", 0, 1000)
    builder.python("torch/autograd/profiler.py(751): __enter__", 10, 40)
    builder.python("<built-in method _record_function_enter_new>", 20, 35)
    builder.annotation("enumerate(DataLoader)#__next__", 30, 500)
    builder.python("torch/utils/data/dataloader.py(762): _next_data", 100, 400)
    builder.python("torch/autograd/profiler.py(757): __exit__", 490, 520)
    assert _innermost(builder) == [
        (0, "train.py(3): loop"),
        (10, "torch/autograd/profiler.py(751): __enter__"),
        (20, "<built-in method _record_function_enter_new>"),
        (30, "enumerate(DataLoader)#__next__"),
        (100, "torch/utils/data/dataloader.py(762): _next_data"),
        (400, "enumerate(DataLoader)#__next__"),
        (490, "torch/autograd/profiler.py(757): __exit__"),
        (500, "train.py(3): loop"),
    ]


def test_a_function_is_kept_that_a_last_step_outlives_by_little() -> None:
    builder = TraceBuilder()
    builder.python("train.py(3): epoch", 0, 1000)
    builder.annotation("ProfilerStep#9", 600, 1010)
    builder.op("aten::mm", 700, 800)
    timeline = builder.build()
    assert nest(timeline.host, 1).parent.tolist() == [-1, 0, 1]
    assert nest(timeline.host, 1).threads[0].bounds.tolist() == [0, 600, 700, 800, 1000]
