"""Steps from annotations, from optimizer steps, from repeated kernels, or none."""

from __future__ import annotations

from builders import TraceBuilder
from whyidle.ledger.window import window_of
from whyidle.timeline.steps import find_steps


def _kernels(builder: TraceBuilder, at: int, names: str) -> None:
    for i, name in enumerate(names):
        start = at + 10 * i
        builder.launch(f"kernel_{name}", start - 5, start - 2, start, start + 8)


def test_profiler_steps_and_the_window_of_the_last_steps_device_work() -> None:
    builder = TraceBuilder()
    for i in range(3):
        builder.step(i, 1000 * i, 1000 * (i + 1))
        builder.launch("gemm", 1000 * i + 900, 1000 * i + 910, 1000 * i + 950, 1000 * i + 1300)
    timeline = builder.build()
    window, steps, warnings = window_of(timeline, 0)
    assert window == (0, 3300)  # the last kernel ends 300 ns after its step's annotation
    assert steps.start.tolist() == [0, 1000, 2000]
    assert steps.source == "steps"
    assert warnings == ()


def test_steps_named_by_the_user() -> None:
    builder = TraceBuilder()
    for i in range(4):
        builder.annotation(f"train_step {i}", 100 * i, 100 * i + 90)
    marks = find_steps(builder.build(), 0)
    assert marks is not None
    assert marks.source == "steps"
    assert marks.start.tolist() == [0, 100, 200, 300]


def test_steps_end_with_the_optimizer_where_nobody_marked_them() -> None:
    builder = TraceBuilder()
    for i in range(3):
        builder.op("aten::mm", 100 * i, 100 * i + 50)
        builder.annotation("Optimizer.step#SGD.step", 100 * i + 60, 100 * i + 90)
    marks = find_steps(builder.build(), 0)
    assert marks is not None
    assert marks.source == "repetition"
    assert marks.start.tolist() == [0, 90, 190]


def test_repeated_kernels_start_after_the_longest_pause() -> None:
    builder = TraceBuilder()
    for i in range(5):
        _kernels(builder, 1000 * i, "abcabdx")
    marks = find_steps(builder.build(), 0)
    assert marks is not None
    assert marks.source == "repetition"
    assert "7 kernels" in marks.how
    assert marks.start.tolist() == [0, 1000, 2000, 3000, 4000]


def test_no_repetition_is_no_step() -> None:
    builder = TraceBuilder()
    _kernels(builder, 100, "abcdefghij")
    timeline = builder.build()
    assert find_steps(timeline, 0) is None
    window, steps, _ = window_of(timeline, 0)
    assert (window, steps.source, len(steps)) == ((100, 198), "span", 1)


def test_a_gpu_that_runs_behind_is_told_with_what_it_does_to_the_means() -> None:
    builder = TraceBuilder()
    for i in range(3):
        builder.step(i, 1000 * i, 1000 * (i + 1))
        builder.launch("gemm", 1000 * i + 10, 1000 * i + 20, 1500 * i + 20, 1500 * i + 1500)
    _, _, (told,) = window_of(builder.build(), 0)
    assert "means per step do not suffer" in told
    builder = TraceBuilder()
    builder.orphan("gemm", 0, 1500)  # of a step before the recording
    for i in range(3):
        builder.step(i, 1000 * i, 1000 * (i + 1))
        builder.launch("gemm", 1000 * i + 10, 1000 * i + 20, 1500 * i + 1500, 1500 * i + 3000)
    _, _, (told,) = window_of(builder.build(), 0)
    assert "25 % of the work in the window was launched before its first step" in told


def test_a_last_step_without_device_work_is_kept_and_told() -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.launch("gemm", 10, 20, 30, 60)
    builder.step(1, 100, 150)
    window, steps, warnings = window_of(builder.build(), 0)
    assert window == (0, 150)
    assert len(steps) == 2
    assert "no work was launched in the last step" in warnings[0]
