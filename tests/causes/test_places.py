from __future__ import annotations

import numpy as np

from builders import TraceBuilder, evidence_of
from whyidle.causes import places, wording


def _lookup(evidence, *names: str):
    host = evidence.timeline.host
    found = [
        int(np.flatnonzero(host.name == evidence.timeline.names.index(name))[0]) for name in names
    ]
    return np.array(found, np.int32)


def test_code_lines_add_up_time_by_line() -> None:
    b = TraceBuilder()
    b.python("train.py(9): main", 0, 100)
    b.python("torch/nn/functional.py(5): relu", 10, 40)
    b.op("aten::relu", 15, 30)
    b.op("aten::add", 50, 60)
    b.op("aten::mul", 110, 120)
    b.launch("k", 112, 118, 119, 130)
    evidence = evidence_of(b)
    at = _lookup(evidence, "aten::relu", "aten::add", "aten::mul")
    ns = np.array([100, 20, 5])
    assert places.code_lines(evidence, at, ns) == [places.Place("train.py:9 (main)", 120, 2)]
    assert [p.text for p in places.operators(evidence, at, ns)] == [
        "aten::relu",
        "aten::add",
        "aten::mul",
    ]
    assert places.python_functions(evidence, at, ns)[0] == places.Place(
        "torch/nn/functional.py:5 (relu)", 100, 1
    )


def test_stacks_that_share_their_user_line_are_one_place() -> None:
    b = TraceBuilder()
    for k, inner in enumerate(("a", "b")):
        stack = f"/x/site-packages/torch/{inner}.py(1): f;run.py(7): loop"
        b.op(f"aten::{inner}", 10 * k, 10 * k + 5, stack=stack)
    b.launch("k", 30, 31, 40, 50)
    evidence = evidence_of(b)
    at = _lookup(evidence, "aten::a", "aten::b")
    assert places.code_lines(evidence, at, np.array([3, 4])) == [
        places.Place("run.py:7 (loop)", 7, 2)
    ]


def test_nothing_known_gives_no_place() -> None:
    b = TraceBuilder()
    b.orphan("k", 0, 10)
    evidence = evidence_of(b)
    none = np.full(1, -1, np.int32)
    assert places.best(evidence, none, np.array([5])) == []


def test_phases_leave_the_step_out() -> None:
    b = TraceBuilder()
    b.step(0, 0, 100)
    b.annotation("## forward ##", 0, 50)
    b.op("aten::add", 10, 20)
    b.op("aten::mul", 60, 70)
    b.launch("k", 62, 68, 69, 100)
    evidence = evidence_of(b)
    at = _lookup(evidence, "aten::add", "aten::mul")
    found = places.phases(evidence, at, np.array([8, 9]))
    assert found == [places.Place("## forward ##", 8, 1)]


def test_wording() -> None:
    assert wording.ns(999) == "999 ns"
    assert wording.ns(1_234) == "1.23 us"
    assert wording.ns(45_600_000) == "45.6 ms"
    assert wording.ns(999_960) == "1.00 ms"
    assert wording.percent(0.1234) == "12.3 %"
    assert wording.number(12_345.4) == "12,345"
    assert wording.number(1.5) == "1.5"
    assert wording.size(3 << 20) == "3.0 MiB"
    assert wording.listed(["a", "b", "c"]) == "a, b and c"
