"""The Perfetto face: the original kept, our tracks added, always whole and readable JSON."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from builders import TraceBuilder
from whyidle.errors import WhyidleError
from whyidle.ledger.build import build_ledgers
from whyidle.readers import open_trace
from whyidle.reports.model import Picture
from whyidle.reports.perfetto import _unit, write_perfetto
from whyidle.timeline.nesting import nest

SHARED = Path(__file__).parents[3] / "shared" / "traces"
REAL = [
    "hta/a100_ddp_rank0of2.json.gz",
    "hta/v100_dlrm_ns_rank0.json.gz",
    "hta/mi250_toy_train.json.gz",
    "tracelens/h100_bert_small_infer.json.gz",
]


def trace() -> TraceBuilder:
    """Two steps of 1 ms and more, with a loader wait and a dispatch gap, at odd nanoseconds."""
    builder = TraceBuilder(rank=3, world_size=8)
    builder.properties(0)
    for step in range(2):
        t = 1_000_007 + step * 1_000_000
        builder.step(step, t, t + 1_000_000)
        builder.annotation("enumerate(DataLoader)#_Next.__next__", t + 10, t + 300_123)
        builder.op("aten::mm", t + 300_200, t + 400_000)
        builder.launch("sgemm", t + 350_000, t + 360_001, t + 365_003, t + 600_005)
        builder.op("aten::add", t + 400_100, t + 800_000)
        builder.launch("vectorized_add", t + 790_000, t + 795_000, t + 796_000, t + 950_333)
    return builder


def picture_of(path: Path) -> Picture:
    timeline = open_trace(path)
    nesting = nest(timeline.host, len(timeline.threads))
    return Picture(timeline, nesting, build_ledgers(timeline, nesting))


def load(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    tree: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return tree


def split(tree: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The original events and ours."""
    ours = [e for e in tree["traceEvents"] if isinstance(e["pid"], int) and e["pid"] >= 10**9]
    kept = (
        [e for e in tree["traceEvents"] if e not in ours]
        if len(ours) < 500
        else [
            e for e in tree["traceEvents"] if not (isinstance(e["pid"], int) and e["pid"] >= 10**9)
        ]
    )
    return kept, ours


def gap_ns(ours: list[Any], per_unit: int = 1000) -> int:
    tracks = {
        e["tid"] for e in ours if e["name"] == "thread_name" and e["args"]["name"] == "idle gaps"
    }
    return sum(round(e["dur"] * per_unit) for e in ours if e["ph"] == "X" and e["tid"] in tracks)


@pytest.mark.parametrize("name", ["in.json", "in.json.gz"])
@pytest.mark.parametrize("out", ["out.json", "out.json.gz"])
def test_keeps_the_original_and_adds_gaps_that_sum_to_the_idle(
    tmp_path: Path, name: str, out: str
) -> None:
    source = trace().write_kineto(tmp_path / name)
    picture = picture_of(source)
    write_perfetto(picture, tmp_path / out)
    tree, before = load(tmp_path / out), load(source)
    kept, ours = split(tree)
    assert kept == before["traceEvents"]
    assert tree.pop("whyidle") == "perfetto"
    assert {k: v for k, v in tree.items() if k != "traceEvents"} == {
        k: v for k, v in before.items() if k != "traceEvents"
    }
    (ledger,) = picture.ledgers
    assert ledger.idle_ns > 0
    assert gap_ns(ours) == ledger.idle_ns
    assert sum(e["args"]["ns"] for e in ours if e["name"].startswith("idle.")) == ledger.idle_ns


def test_gap_says_what_the_host_did_and_lies_where_the_gpu_was_idle(tmp_path: Path) -> None:
    source = trace().write_kineto(tmp_path / "in.json")
    picture = picture_of(source)
    write_perfetto(picture, tmp_path / "out.json")
    _, ours = split(load(tmp_path / "out.json"))
    waits = [e for e in ours if e["name"] == "idle.input"]
    assert len(waits) == 2
    assert waits[0]["args"]["host did"].startswith("enumerate(DataLoader)#_Next.__next__ (300")
    assert waits[0]["args"]["ended by"] == "sgemm"
    assert waits[0]["args"]["launched by"] == "cudaLaunchKernel"
    starts = {round(e["ts"] * 1000) for e in waits}
    assert 1_000_017 in starts  # the loader's start in ns, in the input's own base


def test_tracks_are_named_and_sorted_above_the_gpu(tmp_path: Path) -> None:
    source = trace().write_kineto(tmp_path / "in.json")
    write_perfetto(picture_of(source), tmp_path / "out.json")
    _, ours = split(load(tmp_path / "out.json"))
    named = {e["name"]: e["args"] for e in ours if e["ph"] == "M"}
    assert named["process_name"] == {"name": "whyidle: GPU 0 (NVIDIA Test)"}
    assert 4_194_304 < named["process_sort_index"]["sort_index"] < 5_000_000
    threads = [e["args"]["name"] for e in ours if e["name"] == "thread_name"]
    assert threads == ["steps", "idle gaps"]
    steps = [e for e in ours if e["name"].startswith("step ")]
    assert [e["name"] for e in steps] == ["step 0", "step 1"]
    assert steps[0]["args"]["ns"] == 1_000_000
    assert steps[0]["args"]["busy ns"] + sum(steps[0]["args"]["idle ns"].values()) == 1_000_000


def test_slices_of_a_track_do_not_overlap(tmp_path: Path) -> None:
    source = trace().write_kineto(tmp_path / "in.json")
    write_perfetto(picture_of(source), tmp_path / "out.json")
    _, ours = split(load(tmp_path / "out.json"))
    by_track: dict[int, list[tuple[int, int]]] = {}
    for e in ours:
        if e["ph"] == "X":
            start = round(e["ts"] * 1000)
            by_track.setdefault(e["tid"], []).append((start, start + round(e["dur"] * 1000)))
    assert len(by_track) == 2
    for spans in by_track.values():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_bare_array(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    whole = load(trace().write_kineto(source))
    source.write_text(json.dumps(whole["traceEvents"]))
    picture = picture_of(source)
    write_perfetto(picture, tmp_path / "out.json")
    kept, ours = split(load(tmp_path / "out.json"))
    assert kept == whole["traceEvents"]
    assert gap_ns(ours) == picture.ledgers[0].idle_ns


@pytest.mark.parametrize("missing", [1, 30, 200, 700])
@pytest.mark.parametrize("packed", [False, True])
def test_truncated_input_gives_whole_output(tmp_path: Path, missing: int, packed: bool) -> None:
    whole = trace().write_kineto(tmp_path / "whole.json").read_bytes()
    source = tmp_path / ("in.json.gz" if packed else "in.json")
    if packed:
        data = gzip.compress(whole, 0)
        source.write_bytes(data[: -missing - 8])
    else:
        source.write_bytes(whole[:-missing])
    picture = picture_of(source)
    write_perfetto(picture, tmp_path / "out.json")
    kept, ours = split(load(tmp_path / "out.json"))
    original = json.loads(whole)["traceEvents"]
    assert kept == original[: len(kept)]
    assert len(kept) >= len(original) - 5
    assert gap_ns(ours) == sum(ledger.idle_ns for ledger in picture.ledgers)


def test_broken_text_in_the_middle_gives_readable_output(tmp_path: Path) -> None:
    source = trace().write_kineto(tmp_path / "in.json")
    text = source.read_text()
    text = text.replace('"name": "aten::mm"', '"name": "C:\\Users\\x", "v": NaN', 1)
    source.write_text(text)
    write_perfetto(picture_of(source), tmp_path / "out.json")
    kept, _ = split(load(tmp_path / "out.json"))
    assert any(e["name"].startswith("C:") for e in kept)


def test_source_that_has_gone_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    source = trace().write_kineto(tmp_path / "in.json")
    picture = picture_of(source)
    source.unlink()
    with pytest.raises(WhyidleError, match=r"in\.json"):
        write_perfetto(picture, tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_same_bytes_each_time(tmp_path: Path) -> None:
    picture = picture_of(trace().write_kineto(tmp_path / "in.json"))
    write_perfetto(picture, tmp_path / "a.json.gz")
    write_perfetto(picture, tmp_path / "b.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_unit_follows_the_input() -> None:
    assert _unit([b'{"ph":"X","ts":1712170296000000000}'], 1) == -3
    assert _unit([b'{"ph":"X","ts":1712170296000000}'], 1000) == 0
    assert _unit([b'{"ph":"M","ts":0}', b'{"ph":"X","ts":"12.5"}'], 1) == 3


@pytest.mark.parametrize("name", REAL)
def test_real_traces(tmp_path: Path, name: str) -> None:
    source = SHARED / name
    if not source.exists():
        pytest.skip(f"{source} is not here: real traces are not part of the repository")
    picture = picture_of(source)
    write_perfetto(picture, tmp_path / "out.json.gz")
    kept, ours = split(load(tmp_path / "out.json.gz"))
    assert kept == load(source)["traceEvents"]
    assert gap_ns(ours) == sum(ledger.idle_ns for ledger in picture.ledgers)
