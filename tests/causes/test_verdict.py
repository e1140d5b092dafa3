"""Verdicts on traces that hold next to nothing: never "healthy" without evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder
from whyidle.diagnosis import diagnose


@pytest.mark.parametrize("times", [1, 40])
def test_activity_without_duration_cannot_tell(times: int, tmp_path: Path) -> None:
    builder = TraceBuilder()
    for _ in range(times):
        builder.launch("sgemm", 1000, 1000, 1000, 1000)
    report = diagnose([builder.write_kineto(tmp_path / "t.json")])
    assert report.verdict.kind == "cannot_tell"
    assert "has a duration" in report.verdict.sentence


def test_a_device_that_is_idle_in_all_steps_is_not_healthy(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for step in range(3):
        builder.step(step, 1000 * step, 1000 * (step + 1))
    builder.launch("sgemm", 5000, 5010, 5020, 9000)
    report = diagnose([builder.write_kineto(tmp_path / "t.json")])
    assert report.verdict.kind == "cannot_tell"
    assert "idle throughout the steps" in report.verdict.sentence


def test_the_end_of_the_last_step_outside_the_window_is_told(tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 100_000_000)
    builder.launch("sgemm", 0, 1000, 2000, 1_000_000)
    report = diagnose([builder.write_kineto(tmp_path / "t.json")])
    assert report.devices[0].window == (0, 1_000_000)
    assert any("the last 99.0 ms of the last step" in warning for warning in report.warnings)
