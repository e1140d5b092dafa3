"""The Kineto reader: every way in which the field's profilers have written traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import TraceBuilder
from whyidle.errors import WhyidleError
from whyidle.readers import open_trace
from whyidle.readers.paths import trace_files
from whyidle.timeline.columns import DeviceKind, HostKind, Timeline


def event(**fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"ph": "X", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "name": "k"}
    return base | fields


KERNEL = event(cat="kernel", args={"device": 0, "stream": 7, "correlation": 3, "grid": [4, 2, 1]})
LAUNCH = event(cat="cuda_runtime", name="cudaLaunchKernel", pid=1, tid=1, ts=2, dur=3,
               args={"correlation": 3})  # fmt: skip


def write(folder: Path, content: Any, name: str = "t.json") -> Path:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(folder: Path, content: Any) -> Timeline:
    return open_trace(write(folder, content))


def builder() -> TraceBuilder:
    b = TraceBuilder(rank=3, world_size=8)
    b.properties(name="NVIDIA A100", sms=108, memory_bytes=40 << 30)
    backward = b.thread("pt_autograd_0")
    t = 1_711_964_646_000_000_001
    for i in range(50):
        b.step(i, t, t + 90_000)
        b.op("aten::mm", t + 1, t + 5_007)
        b.launch("sgemm", t + 11, t + 4_999, t + 6_001, t + 60_003, blocks=64)
        b.launch("relu", t + 60_000, t + 60_001, t + 60_500, t + 61_000, thread=backward)
        b.memcpy(t + 62_000, t + 63_000, t + 63_100, t + 64_000, bytes=4096)
        t += 100_000
    return b


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_reads_what_the_builder_wrote(tmp_path: Path, name: str) -> None:
    b = builder()
    want, got = b.build(), open_trace(b.write_kineto(tmp_path / name))
    assert (got.source.rank, got.source.world_size) == (3, 8)
    assert got.source.device_name == "NVIDIA A100"
    assert got.devices[0].sms == 108
    assert got.warnings == ()
    for column in ("start", "end", "kind", "thread", "correlation"):
        assert (getattr(got.host, column) == getattr(want.host, column)).all(), column
    for column in ("start", "end", "kind", "device", "stream", "bytes", "blocks", "launch"):
        assert (getattr(got.device, column) == getattr(want.device, column)).all(), column
    assert [got.names[i] for i in got.host.name] == [want.names[i] for i in want.host.name]
    assert got.threads[got.main_thread].tid == "1000"
    assert got.resolution_ns == 1


def test_small_chunks_cut_at_any_place_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = builder()
    path = b.write_kineto(tmp_path / "t.json.gz")
    want = open_trace(path)
    for size in (700, 1_013, 5_000):
        monkeypatch.setattr("whyidle.readers.bytestream.CHUNK", size)
        monkeypatch.setattr("whyidle.readers.trace_json.CHUNK", size)
        got = open_trace(path)
        assert (got.host.start == want.host.start).all()
        assert (got.device.end == want.device.end).all()
        assert got.source == want.source
        assert got.warnings == ()


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_other_key_orders(tmp_path: Path, indent: int | None) -> None:
    events = [dict(reversed(KERNEL.items())), dict(sorted(LAUNCH.items()))] * 40
    timeline = read(tmp_path, json.dumps({"traceEvents": events}, indent=indent))
    assert len(timeline.device) == 40
    assert len(timeline.host) == 40
    assert timeline.device.blocks[0] == 8
    assert timeline.host.kind[timeline.device.launch[0]] == HostKind.RUNTIME


def test_bare_array_and_metadata_after_the_events(tmp_path: Path) -> None:
    assert len(read(tmp_path, [KERNEL, LAUNCH]).device) == 1
    after = {
        "traceEvents": [KERNEL, LAUNCH],
        "distributedInfo": {"rank": 5, "world_size": 6},
        "deviceProperties": [{"id": 0, "name": "late", "numSms": 7}],
        "nested": [{"a": 1}, {"b": [{"c": 2}, {"d": 3}]}],
    }
    timeline = read(tmp_path, after)
    assert timeline.source.rank == 5
    assert timeline.devices[0].name == "late"
    assert timeline.warnings == ()


def test_long_metadata_after_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyidle.readers.bytestream.CHUNK", 900)
    monkeypatch.setattr("whyidle.readers.trace_json.CHUNK", 900)
    notes = [{"note": f"line {i}"} for i in range(300)]
    timeline = read(
        tmp_path,
        {"traceEvents": [KERNEL, LAUNCH] * 20, "log": notes, "distributedInfo": {"rank": 2}},
    )
    assert len(timeline.device) == 20
    assert timeline.source.rank == 2
    assert timeline.warnings == ()


def test_old_profilers_names(tmp_path: Path) -> None:
    events = [
        event(cat="Kernel", tid="stream 7", args={"device": 0, "stream": 7, "correlation": 9}),
        event(cat="Memcpy", name="Memcpy HtoD (Pageable -> Device)", ts=20),
        event(cat="Memset", name="Memset (Device)", ts=30),
        event(cat="Runtime", name="cudaLaunchKernel", pid=5, tid="5", ts=1,
              args={"correlation": 9}),
        event(cat="Operator", name="aten::mm", pid=5, tid="5", ts=0,
              args={"Call stack": "train.py(3): main;run.py(1): <module>"}),
        event(cat="Operator", name="ProfilerStep#4", pid="5", tid="5", ts=0, dur=50),
    ]  # fmt: skip
    timeline = read(tmp_path, {"traceEvents": events})
    assert sorted(timeline.device.kind) == [DeviceKind.KERNEL, DeviceKind.MEMCPY, DeviceKind.MEMSET]
    assert len(timeline.threads) == 1, "pid 5 and pid '5' are one process"
    assert sorted(timeline.host.kind) == [HostKind.ANNOTATION, HostKind.OPERATOR, HostKind.RUNTIME]
    assert timeline.stacks == ["train.py(3): main;run.py(1): <module>"]
    kernel = int(np.flatnonzero(timeline.device.kind == DeviceKind.KERNEL)[0])
    assert timeline.device.launch[kernel] >= 0


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("cuda_driver", "cuLaunchKernel"),
        ("hip_runtime", "hipLaunchKernel"),
        ("xpu_runtime", "zeCommandListAppendLaunchKernel"),
        ("mtia_runtime", "launch"),
        ("privateuse1_driver", "launch"),
    ],
)
def test_runtimes_of_other_vendors_launch(tmp_path: Path, category: str, name: str) -> None:
    timeline = read(tmp_path, {"traceEvents": [KERNEL, LAUNCH | {"cat": category, "name": name}]})
    assert timeline.device.launch[0] == 0


def test_hip_streams_by_pointer_and_sizes_as_text(tmp_path: Path) -> None:
    copy = event(cat="gpu_memcpy", args={"device": 2, "stream": "0x7f00", "size": "2560"})
    timeline = read(tmp_path, [copy, event(cat="kernel", args={"device": 2, "stream": "main"})])
    assert timeline.device.bytes.tolist() == [2560, -1]
    assert timeline.device.stream[0] == 0x7F00
    assert timeline.device.device.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("ts", "dur", "want"),
    [
        ("1712195495519689.047", "63.813", (1712195495519689047, 63813)),
        ('"1712195495519689.047"', '"63.813"', (1712195495519689047, 63813)),
        ("1712195495519689", "63", (1712195495519689000, 63000)),
        ("4458676522690.655", "156.777", (4458676522690655, 156777)),
        ("10.5", "0.25", (10500, 250)),
        ("1.712195495519689047e15", "1e0", (1712195495519689047, 1000)),
        ("1712195495519689047", "63813", (1712195495519689047, 63813)),  # given in ns
        ('"17"', "2", (17000, 2000)),
        ("-3.001", "2", (-3001, 2000)),
    ],
)
def test_clocks(tmp_path: Path, ts: str, dur: str, want: tuple[int, int]) -> None:
    head = '[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":'
    text = f'{head}{ts},"dur":{dur}}}]'
    timeline = read(tmp_path, text)
    start, end = int(timeline.device.start[0]), int(timeline.device.end[0])
    if "e" in ts:  # a double written with an exponent holds what a double holds
        assert abs(start - want[0]) <= 250
    else:
        assert start == want[0]
    assert end - start == want[1]


def test_clock_resolution(tmp_path: Path) -> None:
    assert read(tmp_path, [KERNEL, LAUNCH]).resolution_ns == 1000
    assert read(tmp_path, [KERNEL | {"ts": 1.5}, LAUNCH]).resolution_ns == 1


def test_null_names_and_strange_values(tmp_path: Path) -> None:
    events = [
        KERNEL | {"name": None},
        KERNEL | {"name": 17, "tid": None},
        KERNEL | {"args": None},
        KERNEL | {"args": [1, 2]},
        KERNEL | {"args": {"device": "zero", "correlation": "x", "grid": "big"}},
        KERNEL | {"dur": None},
        KERNEL | {"ts": None},
        KERNEL | {"ts": "soon"},
        KERNEL | {"cat": None},
        KERNEL | {"cat": ["kernel"]},
        KERNEL | {"pid": {"a": 1}},
        KERNEL | {"name": ["a", "list"]},
        {"ph": "B", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 5},
        {},
    ]
    timeline = read(tmp_path, events)
    assert "(unnamed)" in timeline.names
    assert len(timeline.device) >= 8
    told = " ".join(timeline.warnings)
    assert "begin/end" in told
    assert "not" in told


def test_invalid_json_that_profilers_write_is_repaired_and_told(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [KERNEL, LAUNCH, KERNEL]})
    text = text.replace('"name": "k"', r'"name": "op\d C:\path \u12"', 1)
    text = text.replace('"correlation": 3', '"correlation": 3, "x": NaN, "y": -Infinity', 1)
    raw = text.encode().replace(b'"cudaLaunchKernel"', b'"cuda\xff\x01Launch"')
    timeline = read(tmp_path, raw)
    assert len(timeline.device) == 2
    assert len(timeline.host) == 1
    assert timeline.device.launch.tolist() == [0, 0]
    assert "repaired" in timeline.warnings[0]
    assert any("op\\d" in name for name in timeline.names)


def test_one_undecodable_event_costs_only_itself(tmp_path: Path) -> None:
    good = json.dumps(KERNEL)
    text = '{"traceEvents": [' + ",".join([good, good, '{"ph": "X" "cat": oops}', good]) + "]}"
    timeline = read(tmp_path, text)
    assert len(timeline.device) == 3
    assert "1 piece(s) of broken text" in " ".join(timeline.warnings)


def test_truncated_text_is_salvaged_and_told(tmp_path: Path) -> None:
    b = builder()
    whole = b.write_kineto(tmp_path / "whole.json").read_bytes()
    full = open_trace(tmp_path / "whole.json")
    for keep in (0.3, 0.77, 0.99):
        cut = open_trace(write(tmp_path, whole[: int(len(whole) * keep)], "cut.json"))
        assert 0 < len(cut.host) + len(cut.device) < len(full.host) + len(full.device)
        assert "incomplete" in cut.warnings[0]
        assert "cut.json" in cut.warnings[0]


def test_truncated_and_corrupt_gzip_is_salvaged_and_told(tmp_path: Path) -> None:
    b = builder()
    data = b.write_kineto(tmp_path / "whole.json.gz").read_bytes()
    cut = open_trace(write(tmp_path, data[: len(data) * 2 // 3], "cut.json.gz"))
    assert len(cut.host) > 0
    assert "incomplete" in cut.warnings[0]
    broken = bytearray(data)
    broken[len(data) * 2 // 3 :] = b"\xa5" * (len(data) - len(data) * 2 // 3)
    got = open_trace(write(tmp_path, bytes(broken), "broken.json.gz"))
    assert len(got.host) > 0
    assert got.warnings


def test_several_gzip_members_and_padding(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [KERNEL, LAUNCH]}).encode()
    data = gzip.compress(text[:40]) + gzip.compress(text[40:]) + b"\0" * 100
    timeline = open_trace(write(tmp_path, data, "t.json.gz"))
    assert len(timeline.device) == 1
    assert timeline.warnings == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b"\x1f\x8b", "early"),
        (gzip.compress(b""), "empty"),
        (b"PK\x03\x04 not a trace", "not a PyTorch profiler"),
        (b'{"schemaVersion": 1}', "traceEvents"),
        (b'"text"', "not a PyTorch profiler"),
        (b"{" * 100_000, "traceEvents"),
        (b"[" * 100_000, "could be decoded"),
        (b'{"traceEvents": [', "no event"),
        (b"[]", "no event"),
        (b"[1, 2, 3]", ""),
    ],
)
def test_what_is_no_trace_gets_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = write(tmp_path, content, "bad.json")
    with pytest.raises(WhyidleError) as told:
        open_trace(path)
    message = str(told.value)
    assert message.startswith(f"{path}: ")
    assert words in message
    assert "\n" not in message


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(WhyidleError, match="No such file"):
        open_trace(tmp_path / "none.json")
    with pytest.raises(WhyidleError, match="Is a directory"):
        open_trace(tmp_path)


def test_cpu_only_trace_has_no_device(tmp_path: Path) -> None:
    timeline = read(tmp_path, [event(cat="cpu_op", name="aten::mm"), event(cat="gloo_thing")])
    assert len(timeline.device) == 0
    assert "gloo_thing (1)" in timeline.warnings[0]


def test_sync_rows_and_device_annotations_are_no_activity(tmp_path: Path) -> None:
    rows = [KERNEL, event(cat="cuda_sync"), event(cat="gpu_user_annotation", dur=1000)]
    timeline = read(tmp_path, rows)
    assert len(timeline.device) == 1
    assert timeline.warnings == ()


def test_collective_bytes(tmp_path: Path) -> None:
    args = {"device": 0, "stream": 3, "In msg nelems": 1000, "dtype": "BFloat16"}
    timeline = read(tmp_path, [event(cat="kernel", name="ncclDevKernel_AllReduce", args=args)])
    assert timeline.device.bytes.tolist() == [2000]


def test_peak_memory(tmp_path: Path) -> None:
    rows = [
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1, "pid": 1, "tid": 1,
         "args": {"Device Type": 1, "Device Id": 0, "Total Reserved": total}}
        for total in (5, 50, 20)
    ]  # fmt: skip
    assert read(tmp_path, [KERNEL, *rows]).peak_reserved_bytes == {0: 50}


@pytest.mark.parametrize("key", ["Ev Idx", "Profiler Event Index"])
def test_share_of_the_profilers_events(tmp_path: Path, key: str) -> None:
    def numbered(numbers: range) -> list[dict[str, Any]]:
        return [event(cat="cpu_op", pid=1, ts=10 * n, args={key: n}) for n in numbers]

    assert read(tmp_path, numbered(range(50))).recorded_share == 1.0
    assert read(tmp_path, numbered(range(0, 991, 10))).recorded_share == 100 / 991
    assert read(tmp_path, [KERNEL, LAUNCH]).recorded_share == 1.0


def test_paths(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "deep").mkdir(parents=True)
    for name in ("rank10.json", "rank2.json.gz", "deep/rank1.json", "notes.txt"):
        (folder / name).write_text("x")
    files, named = trace_files([folder])
    assert {f.name for f in files} == {"rank1.json", "rank2.json.gz", "rank10.json"}
    assert [f.name for f in files if f.parent == folder] == ["rank2.json.gz", "rank10.json"]
    assert named == set()
    globbed, _ = trace_files([str(folder / "rank*.json*")])
    assert [f.name for f in globbed] == ["rank2.json.gz", "rank10.json"]
    again, named = trace_files([folder / "rank10.json", folder])
    assert len(again) == 3
    assert named == {folder / "rank10.json"}
    for bad in (tmp_path / "no.json", folder / "x*.json"):
        with pytest.raises(WhyidleError):
            trace_files([bad])
    (tmp_path / "void").mkdir()
    with pytest.raises(WhyidleError, match="in this directory"):
        trace_files([tmp_path / "void"])


def test_what_whyidle_wrote_is_no_trace_of_a_folder(tmp_path: Path) -> None:
    builder().write_kineto(tmp_path / "rank3.json")
    report = {"schema": "whyidle.report/1", "devices": []}
    (tmp_path / "report.json").write_text(json.dumps(report))
    (tmp_path / "tracks.json.gz").write_bytes(
        gzip.compress(b'{"whyidle":"perfetto",\n"traceEvents":[]}')
    )
    files, _ = trace_files([tmp_path])
    assert [f.name for f in files] == ["rank3.json"]
    named, _ = trace_files([tmp_path / "tracks.json.gz"])
    assert len(named) == 1
    (tmp_path / "rank3.json").unlink()
    with pytest.raises(WhyidleError, match="in this directory"):
        trace_files([tmp_path])


def test_an_endless_name_is_cut(tmp_path: Path) -> None:
    timeline = read(tmp_path, [KERNEL | {"name": "triton" * 100_000}])
    assert max(map(len, timeline.names)) < 20_000
