from __future__ import annotations

import numpy as np

from builders import TraceBuilder
from whyidle.timeline.columns import HostKind
from whyidle.timeline.nesting import nest
from whyidle.timeline.select import events_named, location, name_mask, of_host, under, user_code


def _trace() -> TraceBuilder:
    b = TraceBuilder()
    b.python("train.py(7): main", 0, 1000)
    b.python("torch/_tensor.py(3): item", 100, 300)
    b.op("aten::item", 110, 290)
    b.op("aten::_local_scalar_dense", 120, 280)
    b.sync(130, 270)
    b.op("aten::add", 400, 500)
    return b


def _index(timeline, name: str) -> int:
    return int(np.flatnonzero(timeline.host.name == timeline.names.index(name))[0])


def test_name_mask_searches_anywhere_in_the_name() -> None:
    assert name_mask(["aten::item", "item", "aten::add"], r"::item$").tolist() == [
        True,
        False,
        False,
    ]


def test_events_named_keeps_only_the_wanted_kinds() -> None:
    t = _trace().build()
    assert int(events_named(t, "item").sum()) == 2
    assert int(events_named(t, "item", (HostKind.OPERATOR,)).sum()) == 1


def test_under_reaches_all_depths_and_not_the_siblings() -> None:
    t = _trace().build()
    nesting = nest(t.host, len(t.threads))
    inside = under(nesting, events_named(t, "^aten::item$"))
    assert sorted(t.names[i] for i in t.host.name[inside]) == [
        "aten::_local_scalar_dense",
        "aten::item",
        "cudaStreamSynchronize",
    ]
    assert not under(nesting, np.zeros(len(t.host), np.bool_)).any()


def test_under_does_not_leak_across_threads() -> None:
    b = _trace()
    other = b.thread()
    b.op("aten::mul", 110, 290, thread=other)
    t = b.build()
    nesting = nest(t.host, len(t.threads))
    assert not under(nesting, events_named(t, "^aten::item$"))[_index(t, "aten::mul")]


def test_of_host_gives_false_for_no_event() -> None:
    mask = np.array([True, False, True])
    assert of_host(mask, np.array([-1, 0, 1, 2], np.int32)).tolist() == [False, True, False, True]
    assert of_host(np.zeros(0, np.bool_), np.array([-1], np.int32)).tolist() == [False]


def test_location_prefers_user_code_over_the_library() -> None:
    t = _trace().build()
    nesting = nest(t.host, len(t.threads))
    assert location(t, nesting, _index(t, "cudaStreamSynchronize")) == "train.py:7 (main)"


def test_location_falls_back_to_the_library_and_to_none() -> None:
    b = TraceBuilder()
    b.python("torch/nn/modules/linear.py(114): forward", 0, 50)
    b.op("aten::mm", 10, 20)
    b.op("aten::add", 60, 70)
    t = b.build()
    nesting = nest(t.host, len(t.threads))
    place = location(t, nesting, _index(t, "aten::mm"))
    assert place == "torch/nn/modules/linear.py:114 (forward)"
    assert not user_code(place)
    assert location(t, nesting, _index(t, "aten::add")) is None


def test_location_reads_the_old_profilers_call_stack() -> None:
    b = TraceBuilder()
    stack = (
        "/opt/conda/lib/python3.7/site-packages/torch/_tensor.py(20): item;"
        "/home/me/run.py(54): train_loop;/home/me/run.py(90): <module>"
    )
    b.op("aten::item", 0, 50, stack=stack)
    b.op("aten::_local_scalar_dense", 10, 20)
    t = b.build()
    nesting = nest(t.host, len(t.threads))
    place = location(t, nesting, _index(t, "aten::_local_scalar_dense"))
    assert place == "/home/me/run.py:54 (train_loop)"
    assert user_code(place)
