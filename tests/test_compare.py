"""Two runs side by side."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest

from report_builders import MS, STEP, device, many, report
from whyidle.compare import Comparison, compare, load, side_of, to_tree
from whyidle.errors import WhyidleError
from whyidle.reports.comparison import render
from whyidle.reports.json import dumps, to_dict, write_json
from whyidle.reports.model import Verdict
from whyidle.reports.terminal import console_for

SHARED = Path(__file__).parents[2] / "shared" / "traces"


def steps(count: int = 6, **changes: int) -> list[dict[str, int]]:
    """Steps with a spread of 1 ms in dispatch; ``changes`` set accounts, "_" for "."."""
    base = {**STEP, **{name.replace("_", "."): ns for name, ns in changes.items()}}
    return [{**base, "idle.dispatch": base["idle.dispatch"] + i * MS // 5} for i in range(count)]


def tree(*, source: str = "steps", count: int = 6, **changes: int) -> dict[str, Any]:
    return to_dict(report(devices=(device(steps(count, **changes), source=source),)))


def against(a: dict[str, Any], b: dict[str, Any]) -> Comparison:
    return compare(a, b, "before.json", "after.json")


def shown(comparison: Comparison, width: int = 80) -> str:
    return render(comparison, console_for(io.StringIO(), width))


def test_says_what_moved_where() -> None:
    result = against(tree(), tree(idle_input=0, idle_dispatch=16 * MS))
    assert (result.moves[0].account, result.moves[0].difference_ns) == ("idle.input", -30 * MS)
    assert (result.moves[1].account, result.moves[1].difference_ns) == ("idle.dispatch", 10 * MS)
    assert result.moves[0].cause == "input"
    assert sum(move.difference_ns for move in result.moves) == result.difference_ns == -20 * MS
    assert result.shift.answer == "larger"
    assert result.moves[0].shift.answer == "larger"
    assert {m.shift.answer for m in result.moves[2:]} == {"within"}
    assert result.sentence.startswith("A step takes 80.5 ms in B and 100 ms in A: -20.0 ms")
    assert "larger than the step-to-step spread" in result.sentence
    assert "idle.input (-30.0 ms)" in result.sentence
    assert "idle.dispatch" not in result.sentence  # it moved the other way


def test_change_within_the_spread_is_called_that() -> None:
    result = against(tree(), tree(idle_input=30 * MS + 1000))
    assert result.shift.answer == "within"
    assert "within the step-to-step spread" in result.sentence
    assert "moved most" not in result.sentence


def test_a_run_against_itself_has_no_difference() -> None:
    result = against(tree(), tree())
    assert result.difference_ns == 0
    assert all(move.difference_ns == 0 for move in result.moves)
    assert result.shift.answer == "within"


def test_one_step_cannot_tell() -> None:
    result = against(tree(count=1), tree())
    assert result.shift.answer == "cannot_tell"
    assert "Cannot tell" in result.sentence
    assert "one step in A" in result.sentence


def test_a_span_without_steps_cannot_tell() -> None:
    result = against(tree(), tree(count=1, source="span"))
    assert result.shift.why == "no steps were found in B"
    assert any("no steps were found in B" in note for note in result.notes)


def test_no_gpu_activity_cannot_tell() -> None:
    nothing = to_dict(report((), (), Verdict("no_gpu_activity", None, "No GPU activity."), ()))
    result = against(tree(), nothing)
    assert result.sentence == "Cannot tell: B has no GPU activity."
    assert "Cannot tell" in shown(result)
    assert "difference" not in shown(result)  # from nothing there is none


def test_ranks_of_one_step_are_one_observation() -> None:
    side = side_of(to_dict(many(8)), "many")
    assert side.devices == 8
    assert len(side.step_ns) == 4  # not 32
    assert side.accounts["idle.input"] == 33_500_000  # the mean of 30 .. 37 ms
    assert side.mean_ns == 103_500_000
    assert side.step_ns == (103_500_000,) * 4


def test_differing_devices_are_told() -> None:
    other = to_dict(report(devices=(device(steps(), name="Other GPU"),)))
    assert any("Test GPU in A, Other GPU in B" in note for note in against(tree(), other).notes)


def test_one_slow_step_is_told() -> None:
    slow = [*steps(5), {**STEP, "idle.startup": 900 * MS}]
    result = against(tree(), to_dict(report(devices=(device(slow),))))
    assert any("slowest step of B takes 1.00 s" in note for note in result.notes)


def test_terminal_shows_both_ledgers_at_one_scale() -> None:
    text = shown(against(tree(), tree(idle_input=0)))
    bars = [line for line in text.splitlines() if line.startswith("│")]
    assert [len(bar) for bar in bars] == [80, round(80 * 70.5 / 100.5)]
    assert "before.json" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    row = next(line for line in text.splitlines() if "idle.input" in line and "░" in line)
    assert row.split() == ["░", "idle.input", "30.0", "ms", "0", "ns", "-30.0", "ms", "larger"]


def test_hostile_label_is_shown_plain() -> None:
    text = shown(compare(tree(), tree(), "[red]a\x1b[2J", "b"))
    assert "[red]a\\x1b[2J" in text
    assert "\x1b" not in text


def test_json_holds_ledgers_moves_and_the_judgement() -> None:
    result = against(tree(), tree(idle_input=0))
    text = dumps(to_tree(result))
    assert text == dumps(to_tree(result))
    data = json.loads(text)
    assert data["schema"] == "whyidle.compare/1"
    assert data["step"]["difference_ns"] == -30 * MS
    assert data["step"]["answer"] == "larger"
    assert data["step"]["interval_ns"][0] <= -30 * MS <= data["step"]["interval_ns"][1]
    assert "permutation" in data["step"]["method"]
    assert len(data["a"]["by_step"]) == 6
    moved = {line["account"]: line["difference_ns"] for line in data["accounts"]}
    assert moved["idle.input"] == -30 * MS
    assert sum(moved.values()) == data["step"]["difference_ns"]


def test_loads_a_saved_report(tmp_path: Path) -> None:
    write_json(report(), tmp_path / "saved.json")
    assert load(str(tmp_path / "saved.json")) == to_dict(report())
    rewritten = tmp_path / "sorted.json"
    rewritten.write_text(json.dumps(to_dict(report()), sort_keys=True))
    assert load(str(rewritten)) == to_dict(report())


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": "whyidle.report/1", "devices": [',
        '{"schema": "whyidle.report/2", "devices": []}',
        '["whyidle.report/1", "\\"whyidle.report/"]',
    ],
)
def test_broken_or_newer_reports_are_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(text)
    with pytest.raises(WhyidleError, match=r"saved\.json: [^\n]+$"):
        load(str(path))


@pytest.mark.parametrize("lost", ["devices", "steps", "accounts", "ns"])
def test_incomplete_reports_are_one_line(lost: str) -> None:
    broken = copy.deepcopy(tree())
    if lost == "devices":
        del broken["devices"]
    elif lost == "ns":
        del broken["devices"][0]["accounts"][0]["ns"]
    else:
        del broken["devices"][0][lost]
    with pytest.raises(WhyidleError, match="not a whole whyidle report"):
        against(tree(), broken)


@pytest.mark.parametrize(
    ("key", "value"), [("account", None), ("ns", 1e30), ("ns", -5), ("ns", 10**25), ("cause", 5)]
)
def test_saved_values_of_another_type_are_one_line(key: str, value: object, tmp_path: Path) -> None:
    saved = to_dict(report())
    saved["devices"][0]["accounts"][0][key] = value
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(saved))
    with pytest.raises(WhyidleError, match=r"saved\.json: not a whole whyidle report [^\n]+$"):
        load(str(path))


def test_report_without_single_steps_still_compares() -> None:
    bare = tree(idle_input=0)
    for shown_device in bare["devices"]:
        del shown_device["by_step"]
    result = against(tree(), bare)
    assert result.difference_ns == -30 * MS
    assert result.shift.why == "the report of B holds no single steps"


def test_resnet_before_and_after_loader_workers() -> None:
    paths = [SHARED / f"kineto/resnet50_v100_workers{n}.pt.trace.json.gz" for n in (0, 4)]
    if not all(path.exists() for path in paths):
        pytest.skip(f"{SHARED}/kineto is not here: real traces are not part of the repository")
    result = compare(load(str(paths[0])), load(str(paths[1])), "0", "4")
    assert result.moves[0].account == "idle.input"
    assert result.moves[0].difference_ns < -50 * MS
    assert result.shift.answer == "larger"
    # The TensorBoard plugin says 177.6 and 141.1 ms; it extends the last step.
    assert result.a.mean_ns == pytest.approx(177.6 * MS, rel=0.01)
    assert result.b.mean_ns == pytest.approx(141.1 * MS, rel=0.01)
