"""The verdict: a finding, healthy, cannot tell or no GPU activity, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders import TraceBuilder
from whyidle.diagnosis import analyse, combine, diagnose
from whyidle.errors import WhyidleError
from whyidle.reports.model import Report
from whyidle.timeline.columns import Timeline

GEMM = "ampere_bf16_s16816gemm"  # with tensor cores: no rule asks for another one


def loop(busy: int, loader: int, steps: int = 8) -> TraceBuilder:
    """Steps of 100 us: the loader, then 90 small pieces of work that keep the GPU ``busy`` us."""
    builder = TraceBuilder(rank=0)
    builder.properties()
    for i in range(steps):
        t = i * 100_000
        builder.step(i, t, t + 100_000)
        if loader:
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            builder.annotation(name, t, t + loader * 1000)
        start = t + 100_000 - busy * 1000
        builder.op("aten::mm", start - 200, start)
        builder.launch(GEMM, start - 150, start, start, t + 100_000, blocks=1000)
    return builder


def report(*timelines: Timeline) -> Report:
    return combine([analyse(timeline) for timeline in timelines])


def test_a_loader_that_the_gpu_waits_for() -> None:
    found = report(loop(busy=60, loader=39).build())
    assert (found.verdict.kind, found.verdict.cause) == ("finding", "input")
    # The first step begins with the window; all eight gaps are whole.
    assert found.findings[0].lost_ns == 8 * 39_000
    assert "39.0 us of every 100 us" in found.verdict.sentence
    assert "39.0 %" in found.verdict.sentence


def test_a_busy_gpu_is_healthy() -> None:
    found = report(loop(busy=99, loader=0).build())
    assert found.verdict.kind == "healthy"
    assert found.findings == ()
    assert "nothing to gain" in found.verdict.sentence


def test_one_step_is_told_and_two_are_not() -> None:
    def warned(steps: int) -> bool:
        found = report(loop(busy=60, loader=39, steps=steps).build())
        return any("only one step" in warning for warning in found.warnings)

    assert warned(1)
    assert not warned(2)


def test_no_device_row_is_no_gpu_activity_and_tells_the_hosts_time() -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.op("aten::mm", 0, 60)
    found = report(builder.build())
    assert found.verdict.kind == "no_gpu_activity"
    assert "60 % in operators" in found.verdict.sentence


def test_idle_without_evidence_cannot_be_told() -> None:
    builder = TraceBuilder()
    for i in range(10):
        builder.orphan("sgemm", 100 * i, 100 * i + 40)
    found = report(builder.build())
    assert found.verdict.kind == "cannot_tell"
    assert "launch calls" in found.verdict.sentence
    assert found.findings == ()


def test_a_sampled_or_cut_off_trace_cannot_be_told() -> None:
    whole = loop(busy=60, loader=39).build()
    for change, words in (({"recorded_share": 0.01}, "sampled"), ({"cut_off": True}, "cut off")):
        found = report(replace(whole, **change))
        assert found.verdict.kind == "cannot_tell"
        assert words in found.verdict.sentence
        assert found.findings == ()
    assert found.devices[0].busy_ns == report(whole).devices[0].busy_ns


def test_ranks_are_merged_and_the_worst_one_tells() -> None:
    first, second = loop(busy=60, loader=39), loop(busy=80, loader=19)
    two = report(first.build(), second.build())
    (finding,) = [f for f in two.findings if f.cause == "input"]
    assert finding.lost_ns == 8 * (39_000 + 19_000)
    assert finding.lost_ns_per_step == (39_000 + 19_000) // 2
    assert finding.share == pytest.approx((0.39 + 0.19) / 2)
    assert len(finding.devices) == 2
    assert finding.evidence[0].startswith("rank 0 GPU 0: ")


def test_bad_files_in_a_folder_are_left_out_and_told(tmp_path: Path) -> None:
    loop(busy=60, loader=39).write_kineto(tmp_path / "rank0.json.gz")
    (tmp_path / "notes.json").write_text('{"a": 1}')
    found = diagnose([tmp_path])
    assert len(found.sources) == 1
    assert any("notes.json" in w and "left out" in w for w in found.warnings)
    with pytest.raises(WhyidleError, match=r"notes\.json"):
        diagnose([tmp_path / "notes.json"])
    (tmp_path / "rank0.json.gz").unlink()
    with pytest.raises(WhyidleError, match=r"notes\.json"):
        diagnose([tmp_path])


def test_the_picture_is_of_the_rank_that_idles_most(tmp_path: Path) -> None:
    loop(busy=95, loader=0).write_kineto(tmp_path / "rank0.json")
    loop(busy=40, loader=50).write_kineto(tmp_path / "rank1.json")
    found = diagnose([tmp_path], picture=True)
    assert found.picture is not None
    assert found.picture.timeline.source.path.endswith("rank1.json")
    assert diagnose([tmp_path]).picture is None


def test_certain_losses_come_before_what_kernels_could_save() -> None:
    """fp32 products could save more here than the loader loses, but nobody knows how much."""
    builder = TraceBuilder()
    builder.properties()
    for i in range(8):
        t = i * 100_000
        builder.step(i, t, t + 100_000)
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        builder.annotation(name, t, t + 19_000)
        builder.op("aten::mm", t + 19_800, t + 20_000)
        builder.launch("sgemm", t + 19_850, t + 20_000, t + 20_000, t + 100_000, blocks=1000)
    found = report(builder.build())
    assert [f.cause for f in found.findings] == ["input", "model"]
    assert found.findings[0].lost_ns < found.findings[1].lost_ns
    assert found.verdict.cause == "input"


def test_one_rank_in_two_files_is_told(tmp_path: Path) -> None:
    loop(busy=60, loader=39).write_kineto(tmp_path / "monday.json")
    loop(busy=60, loader=39).write_kineto(tmp_path / "tuesday.json")
    assert any("rank 0 is in 2 files" in w for w in diagnose([tmp_path]).warnings)


def test_a_file_cut_in_half_is_not_judged(tmp_path: Path) -> None:
    whole = loop(busy=99, loader=0).write_kineto(tmp_path / "whole.json").read_bytes()
    (tmp_path / "half.json").write_bytes(whole[: len(whole) // 2])
    found = diagnose([tmp_path / "half.json"])
    assert found.verdict.kind == "cannot_tell"
    assert "cut off" in found.verdict.sentence
    assert found.findings == ()
