"""Real traces of ../shared: what the issue says must come out of them."""

from __future__ import annotations

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from whyidle.diagnosis import diagnose
from whyidle.reports.model import Report

ACTIVITY = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
RESNET = "kineto/resnet50_v100_workers{}.pt.trace.json.gz"

Interval = tuple[int, int]


def exact_events(path: Path) -> list[dict[str, Any]]:
    """The events with ts and dur as exact decimals, by the standard library alone."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def span(event: dict[str, Any]) -> Interval:
    start = Decimal(event["ts"]) * 1000
    return int(start), int(start + Decimal(event["dur"]) * 1000)


def merged(rows: list[Interval]) -> list[Interval]:
    result: list[Interval] = []
    for start, end in sorted(rows):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def length(rows: list[Interval]) -> int:
    return sum(end - start for start, end in rows)


def activity_by_device(events: list[dict[str, Any]]) -> dict[str, list[Interval]]:
    found: dict[str, list[Interval]] = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in ACTIVITY:
            device = str(event.get("args", {}).get("device", event["pid"]))
            found.setdefault(device, []).append(span(event))
    return found


def kineto_rows(traces: Path) -> list[tuple[str, dict[str, Any]]]:
    rows = []
    with (traces / "INDEX.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            facts = row["facts (us, exact union over the whole device span)"]
            if facts.startswith("{"):
                rows.append((row["path"], json.loads(facts.partition(" steps=")[0])))
    return rows


def test_every_trace_answers_adds_up_and_equals_an_independent_union(traces: Path) -> None:
    rows = kineto_rows(traces)
    assert len(rows) == 23
    for name, facts in rows:
        report = diagnose([traces / name])
        events = exact_events(traces / name)
        own = activity_by_device(events)
        got = {str(d.device): d for d in report.devices}
        assert set(got) == set(own) == set(facts), name
        # The index was computed in doubles of us: each end is off by up to their step at ts.
        step_us = 2.0 ** (max(int(e["ts"]) for e in events if "dur" in e).bit_length() - 53)
        for device, found in got.items():
            assert found.activity_busy_ns == length(merged(own[device])), name
            slack_ns = 1000 * step_us * facts[device]["activities"] + 1
            assert abs(found.activity_busy_ns - 1000 * facts[device]["busy_us"]) <= slack_ns, name
            span_ns = found.activity_span[1] - found.activity_span[0]
            assert abs(span_ns - 1000 * facts[device]["span_us"]) <= 2000 * step_us + 1, name
            window = found.window[1] - found.window[0]
            assert sum(line.ns for line in found.accounts) == window, name
            assert found.busy_ns + found.idle_ns == window
            assert sum(found.step_ns) == window
            assert abs(sum(line.share for line in found.accounts) - 1) < 1e-9
            assert all(0 < line.share <= 1 for line in found.accounts)
        for finding in report.findings:
            assert 0 < finding.share <= 1
            assert 0 <= finding.gain_upper_bound <= 1
        assert sum(finding.share for finding in report.findings) <= 1 + 1e-9, name


def verdict(traces: Path, name: str) -> tuple[str, str | None, Report]:
    report = diagnose([traces / name])
    return report.verdict.kind, report.verdict.cause, report


def account(report: Report, name: str) -> int:
    (device,) = report.devices
    return next((line.ns for line in device.accounts if line.account == name), 0)


@pytest.mark.parametrize("workers", [0, 4])
def test_resnet_loaders_share_of_the_idle(traces: Path, workers: int) -> None:
    _, _, report = verdict(traces, RESNET.format(workers))
    (device,) = report.devices
    events = exact_events(traces / RESNET.format(workers))
    (activity,) = activity_by_device(events).values()
    busy = merged(activity)
    loader = merged([span(e) for e in events if e.get("name", "").startswith("enumerate(DataL")])
    low, high = device.window
    gaps = [
        (max(a, low), min(b, high))
        for a, b in zip([low] + [e for _, e in busy], [s for s, _ in busy] + [high], strict=True)
        if min(b, high) > max(a, low)
    ]
    idle_in_loader = sum(
        max(min(b, d) - max(a, c), 0) for a, b in gaps for c, d in loader
    )  # fmt: skip
    got = account(report, "idle.input")
    assert abs(got - idle_in_loader) / device.idle_ns < 0.01
    assert abs(got / device.idle_ns - idle_in_loader / length(gaps)) < 0.01


def test_resnet_before_agrees_with_the_tensorboard_plugin(traces: Path) -> None:
    """The plugin said: DataLoader 33.37 % of steps of 177,592 us (INDEX.tsv)."""
    _, _, report = verdict(traces, RESNET.format(0))
    per_step_us = account(report, "idle.input") / 6 / 1000
    assert abs(per_step_us - 0.3337 * 177_592) / (0.3337 * 177_592) < 0.02


def test_resnet_without_workers_is_input(traces: Path) -> None:
    kind, cause, report = verdict(traces, RESNET.format(0))
    assert (kind, cause) == ("finding", "input")
    first = next(f for f in report.findings if f.cause == "input")
    assert first.rule == "R17"
    assert 0.32 < first.share < 0.35


def test_resnet_with_workers_is_not_input(traces: Path) -> None:
    _, cause, report = verdict(traces, RESNET.format(4))
    assert cause != "input"
    assert not any(f.cause == "input" for f in report.findings)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("tracelens/h100_owlv2_infer.json.gz", "input"),
        ("tracelens/h100_bert_small_infer.json.gz", "parallelism"),
        ("hta/a100_ddp_rank0of2.json.gz", "parallelism"),
        ("tracelens/mi300_resnet_ddp_checkpoint_rank.json.gz", "communication"),
    ],
)
def test_verdicts(traces: Path, name: str, cause: str) -> None:
    kind, got, report = verdict(traces, name)
    assert (kind, got) == ("finding", cause)
    assert report.findings
    assert all(f.evidence and f.remedies and f.disproof for f in report.findings)


@pytest.mark.parametrize(
    "name", ["hta/v100_dlrm_ns_rank0.json.gz", "tracelens/h100_qwen05b_infer.json.gz"]
)
def test_gpu_bound_traces_have_nothing_to_gain_outside_the_model(traces: Path, name: str) -> None:
    kind, cause, report = verdict(traces, name)
    assert kind == "healthy" or (kind, cause) == ("finding", "model")
    assert all(f.cause == "model" for f in report.findings)


@pytest.mark.parametrize("name", ["hta/cpu_only_rank34of300.json.gz", "hta/no_gpu_events.json.gz"])
def test_no_gpu_rows_is_no_gpu_activity_recorded(traces: Path, name: str) -> None:
    kind, cause, report = verdict(traces, name)
    assert (kind, cause) == ("no_gpu_activity", None)
    assert report.devices == ()
    assert report.findings == ()
    assert "No GPU activity recorded" in report.verdict.sentence


def test_dlrm_names_the_copies_and_synchronizations_that_block_the_host(traces: Path) -> None:
    kind, _, report = verdict(traces, "hta/a100_dlrm_rank0of16.json.gz")
    assert kind == "finding"
    told = " ".join(e for f in report.findings for e in f.evidence)
    assert "cudaMemcpyAsync" in told
    assert "Synchronize" in told
    assert "aten::copy_" in told or "aten::to" in told


def test_many_ranks_make_one_report(traces: Path) -> None:
    report = diagnose([traces / "hta" / "two_ranks_sampled"])
    assert [s.rank for s in report.sources] == [0, 1]
    assert [d.rank for d in report.devices] == [0, 1]
    # INDEX.tsv: "events were sampled: launches and kernels may lack partners".
    assert report.verdict.kind == "cannot_tell"
    assert "sampled or filtered" in report.verdict.sentence
    assert report.findings == ()


def test_another_profilers_json_gets_one_line(traces: Path) -> None:
    from whyidle.errors import WhyidleError

    with pytest.raises(WhyidleError, match="not a PyTorch profiler"):
        diagnose([traces / "tracelens/rocprof_908_results.json.gz"])


def test_reader_agrees_with_itself_on_every_thread_and_launch(traces: Path) -> None:
    """Launch links of a whole trace, against a plain dictionary of correlation ids."""
    from whyidle.readers import open_trace

    path = traces / "hta/a100_ddp_rank0of2.json.gz"
    timeline = open_trace(path)
    calls = {
        e["args"]["correlation"]: span(e)
        for e in exact_events(path)
        if e.get("cat") == "cuda_runtime" and e["args"].get("correlation", 0) > 0
    }
    launched = timeline.device.launch >= 0
    assert launched.sum() == sum(int(c) in calls for c in timeline.device.correlation)
    for i in range(len(timeline.device)):
        if launched[i]:
            launch = timeline.device.launch[i]
            got = int(timeline.host.start[launch]), int(timeline.host.end[launch])
            assert got == calls[int(timeline.device.correlation[i])]
    assert timeline.resolution_ns == 1
