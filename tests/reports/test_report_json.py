"""The JSON face: stable names, the shipped schema, exact and repeatable numbers."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from report_builders import MS, STEP, device, finding, report
from whyidle import __version__
from whyidle.reports.json import dumps, median_ns, p95_ns, schema, to_dict, write_json
from whyidle.reports.model import Verdict

VALIDATOR = jsonschema.Draft202012Validator(schema())


def test_schema_is_valid_draft_2020_12() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_holds_every_stable_name() -> None:
    tree = to_dict(report())
    top = {"schema", "whyidle", "sources", "devices", "findings", "verdict", "warnings"}
    assert top <= set(tree)
    assert tree["schema"] == "whyidle.report/1"
    assert tree["whyidle"] == __version__
    assert set(tree["sources"][0]) == {"path", "format", "rank", "world_size", "device_name"}
    assert {
        "rank", "device", "window_ns", "window_source", "busy_ns", "idle_ns",
        "activity_span_ns", "activity_busy_ns", "steps", "accounts",
    } <= set(tree["devices"][0])  # fmt: skip
    assert {"count", "median_ns", "p95_ns"} <= set(tree["devices"][0]["steps"])
    assert set(tree["devices"][0]["accounts"][0]) == {"account", "cause", "ns", "share"}
    assert {
        "rule", "cause", "title", "lost_ns_per_step", "share", "gain_upper_bound", "accounts",
        "evidence", "remedies",
    } <= set(tree["findings"][0])  # fmt: skip
    assert set(tree["findings"][0]["remedies"][0]) == {"id", "numerics", "text"}
    assert set(tree["verdict"]) == {"kind", "cause", "sentence"}


def test_validates_against_the_schema() -> None:
    VALIDATOR.validate(to_dict(report()))
    nothing = report((), (), Verdict("no_gpu_activity", None, "No GPU activity recorded."), ())
    VALIDATOR.validate(to_dict(nothing))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("devices", 0, "accounts", 0, "share"), 1.5),
        (("devices", 0, "window_source"), "guess"),
        (("devices", 0, "busy_ns"), 1.5),
        (("findings", 0, "remedies", 0, "numerics"), "harmless"),
        (("verdict", "kind"), "perhaps"),
        (("schema",), "whyidle.report/2"),
    ],
)
def test_schema_refuses_wrong_values(place: tuple[Any, ...], value: object) -> None:
    tree = copy.deepcopy(to_dict(report()))
    target: Any = tree
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    assert not VALIDATOR.is_valid(tree)


@pytest.mark.parametrize("name", ["devices", "verdict", "schema", "warnings"])
def test_schema_requires_the_stable_names(name: str) -> None:
    tree = to_dict(report())
    del tree[name]
    assert not VALIDATOR.is_valid(tree)


def test_accounts_sum_to_the_window() -> None:
    shown = to_dict(report())["devices"][0]
    low, high = shown["window_ns"]
    assert sum(line["ns"] for line in shown["accounts"]) == high - low
    assert sum(sum(step.values()) for step in shown["by_step"]) == high - low


def test_written_file_is_the_same_bytes_each_time_and_ascii(tmp_path: Path) -> None:
    named = report(warnings=("größe \ud800 \x1b[31m",))
    write_json(named, tmp_path / "a.json")
    write_json(named, tmp_path / "b.json")
    data = (tmp_path / "a.json").read_bytes()
    assert data == (tmp_path / "b.json").read_bytes()
    assert data.isascii()
    assert json.loads(data)["warnings"] == ["größe \ud800 \x1b[31m"]


def test_never_writes_nan() -> None:
    broken = dataclasses.replace(finding(), share=float("nan"))
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(to_dict(report(findings=(broken,))))


def test_p95_is_the_nearest_rank() -> None:
    assert p95_ns(()) is None
    assert p95_ns((7,)) == 7
    assert p95_ns(tuple(range(1, 20))) == 19  # ceil(0.95 * 19) = 19
    assert p95_ns(tuple(range(1, 21))) == 19  # ceil(0.95 * 20) = 19
    assert p95_ns(tuple(range(100, 0, -1))) == 95


def test_median() -> None:
    assert median_ns(()) is None
    assert median_ns((3, 1, 2)) == 2
    assert median_ns((4, 1, 2, 3)) == 2  # (2 + 3) // 2


def test_steps_are_described() -> None:
    steps = [dict(STEP), {**STEP, "idle.input": 40 * MS}]
    shown = to_dict(report(devices=(device(steps),)))["devices"][0]["steps"]
    assert shown == {
        "count": 2, "median_ns": 105 * MS, "p95_ns": 110 * MS, "ns": [100 * MS, 110 * MS]
    }  # fmt: skip
