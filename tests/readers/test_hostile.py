"""Values and paths that no profiler should give: the rest of the trace is read as if they were not
there, and they are told."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from builders import TraceBuilder
from whyidle.diagnosis import diagnose
from whyidle.errors import WhyidleError
from whyidle.readers import open_trace
from whyidle.readers.paths import trace_files

_KERNEL = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "name": "k", "dur": 5}


def _write(folder: Path, kernels: list[dict[str, Any]]) -> Path:
    path = folder / "t.json"
    events = [{**_KERNEL, "args": {"device": 0, "stream": 7}, **kernel} for kernel in kernels]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.mark.parametrize("ts", ["abc", 1e30, -(10**40), [1], {"a": 1}, "", "NaN", "Infinity"])
def test_event_without_a_time_does_not_move_the_others(ts: Any, tmp_path: Path) -> None:
    good = [{"ts": 1_700_000_000_000_000 + 10 * i} for i in range(20)]
    timeline = open_trace(_write(tmp_path, [*good, {"ts": ts}]))
    assert timeline.device.start.tolist() == [1000 * kernel["ts"] for kernel in good]
    assert (timeline.device.end - timeline.device.start == 5000).all()
    assert any("1 events without a time" in warning for warning in timeline.warnings)


def test_nanoseconds_among_microseconds_change_only_their_own_length(tmp_path: Path) -> None:
    events = [{"ts": 1_700_000_000_000_000}, {"ts": 1_700_000_000_000_100_000}]
    device = open_trace(_write(tmp_path, events)).device
    assert (device.end - device.start).tolist() == [5000, 5]


def test_device_numbers_beyond_32_bits_are_not_another_device(tmp_path: Path) -> None:
    devices = [0, 2**31, 2**32, -(2**40), 2**63]
    events = [{"ts": 10 * i, "args": {"device": d, "stream": 7}} for i, d in enumerate(devices)]
    timeline = open_trace(_write(tmp_path, events))
    assert sorted(timeline.device.device.tolist()) == [-1, -1, -1, -1, 0]
    assert any("4 values" in warning for warning in timeline.warnings)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\udc00 \ud83d\ud83d\ude00", "\ufffd \ufffd\U0001f600"),
        (r"\\ud83d \q", r"\ud83d \q"),
    ],
)
def test_half_characters_in_names_cost_no_event(written: str, read: str, tmp_path: Path) -> None:
    path = _write(tmp_path, [{"ts": 1}, {"ts": 10, "name": "NAME"}])
    path.write_text(path.read_text().replace("NAME", written))
    timeline = open_trace(path)
    assert len(timeline.device) == 2
    assert read in timeline.names


@pytest.mark.parametrize("packed", [False, True])
def test_reads_a_pipe(packed: bool, tmp_path: Path) -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.launch("sgemm", 0, 10, 20, 500)
    name = "t.json.gz" if packed else "t.json"
    content = builder.write_kineto(tmp_path / name).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True)
    writer.start()
    report = diagnose([pipe])
    writer.join(5)
    assert report.devices[0].busy_ns == 480


def test_one_file_is_one_rank_however_often_it_is_named(tmp_path: Path) -> None:
    trace = _write(tmp_path, [{"ts": 1}])
    (tmp_path / "link.json").symlink_to(trace)
    (tmp_path / "sub").mkdir()
    files, named = trace_files([tmp_path, tmp_path / "sub" / ".." / "t.json"])
    assert len(files) == 1
    assert named == set(files)


@pytest.mark.parametrize("path", ["x" * 5000, ""])
def test_impossible_paths_are_one_error(path: str) -> None:
    with pytest.raises(WhyidleError, match="check the"):
        trace_files([path])
