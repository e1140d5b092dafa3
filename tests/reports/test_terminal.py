"""The terminal face: one screen, readable without colour, safe against names from traces."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest

from report_builders import MS, STEP, device, finding, many, report
from whyidle.reports.bar import cell_counts, glyphs_for, ledger_bar, parts_of
from whyidle.reports.model import Report, Verdict
from whyidle.reports.terminal import console_for, render, write_terminal
from whyidle.reports.words import count, duration, percent, plain, signed


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(what: Report, width: int = 80, stream: io.StringIO | None = None) -> str:
    return render(what, console_for(stream or io.StringIO(), width))


def in_encoding(what: Report, encoding: str) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    write_terminal(what, stream)
    return raw.getvalue().decode(encoding)


def test_starts_with_the_verdict_then_ledger_findings_warnings() -> None:
    text = shown(report())
    assert text.startswith("Input: the GPU waits 30.0 % of the time for batches.\n")
    order = ["rank 0 GPU 0 (Test GPU)", "idle.input", "1. The data loader", "something to know"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_shows_time_per_step_and_share_of_each_account() -> None:
    rows = dict(re.findall(r"^[█░] (\S+) +(.+?%)", shown(report()), re.MULTILINE))
    assert re.sub(" +", " ", rows["compute"]) == "60.0 ms 60.0 %"
    assert re.sub(" +", " ", rows["idle.input"]) == "30.0 ms 30.0 %"
    assert "matmul 40.0 %, elementwise 15.0 %," in shown(report())


def test_finding_tells_loss_bound_evidence_and_remedies() -> None:
    text = shown(report())
    assert "30.0 ms per step, 30.0 % of the time; gain: at most 30.0 %" in text
    assert "third line" in text
    assert "fourth line" not in text
    assert "Set num_workers to the cores that are free. (exact)" in text
    assert "(approximate)" in text
    assert "A third one." not in text


def test_findings_keep_the_reports_order_and_the_rest_is_counted() -> None:
    small = [finding(f"small {i}", lost_ns=i * MS) for i in range(6, 0, -1)]
    text = shown(report(findings=(finding("large"), *small)))
    assert "1. large" in text
    assert text.index("large") < text.index("small 6") < text.index("small 5")
    assert "and 3 smaller findings" in text


def test_span_window_shows_time_not_time_per_step() -> None:
    text = shown(report(devices=(device([dict(STEP)], source="span"),)))
    assert "per step" not in text
    assert "window: made by hand" in text
    assert "lost: 120 ms, 30.0 %" in text


@pytest.mark.parametrize("width", [40, 80, 100, 300])
def test_fits_the_width(width: int) -> None:
    text = shown(report(), width)
    assert max(len(line) for line in text.splitlines()) <= min(width, 110)


def test_no_escape_codes_without_a_terminal_and_with_no_color(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b" not in shown(report())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32m" in shown(report(), stream=Tty())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown(report(), stream=Tty()))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "utf-8"])
def test_any_encoding(encoding: str) -> None:
    hostile = finding("größer → 数据 \ud800", evidence=("\u202eabc 漢字",))
    text = in_encoding(report(findings=(hostile,)), encoding)
    assert "|compute 60%#" in text or "│compute 60%█" in text
    assert ("█" in text) == (encoding == "utf-8")


def test_names_are_never_markup_nor_control_characters() -> None:
    name = "[bold red]kernel[/bold red] :smile: \x1b[2J\x1b]0;title\x07 \u202ereversed\nnext"
    verdict = Verdict("finding", "input", name)
    hostile = report(
        devices=(device([dict(STEP)] * 2, name=name),),
        findings=(finding(name, evidence=(name,)),),
        verdict=verdict,
        warnings=(name,),
    )
    text = shown(hostile, 200)
    assert text.count("[bold red]kernel[/bold red] :smile:") == 5
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "\\x1b[2J" in text


def test_many_ranks_become_one_summary_with_the_spread() -> None:
    text = shown(many(8))
    assert text.count("│compute") == 1
    assert "8 devices: busy 60.9 % on average, from 58.9 % (rank 7 GPU 0)" in text
    row = re.search(r"^░ idle.input (.+)$", text, re.MULTILINE)
    assert row
    assert row.group(1).replace(" ", "") == "32.4%30.0%34.6%rank7GPU0"
    assert shown(many(4)).count("│compute") == 4


@pytest.mark.parametrize("ranks", [1, 2, 4, 64])
def test_one_screen(ranks: int) -> None:
    assert len(shown(many(ranks)).splitlines()) <= 50


def test_long_evidence_is_cut() -> None:
    text = shown(report(findings=(finding(evidence=("void " + "x" * 5000,)),)))
    assert len(text) < 4000


def test_no_devices() -> None:
    verdict = Verdict("no_gpu_activity", None, "No GPU activity recorded.")
    assert shown(report((), (), verdict, ())) == "No GPU activity recorded.\n"


def test_empty_window_is_no_division_by_zero() -> None:
    empty = dataclasses.replace(
        device([dict(STEP)]), window=(5, 5), accounts=(), step_ns=(), busy_ns=0, idle_ns=0
    )
    assert "rank 0 GPU 0" in shown(report(devices=(empty,)))


def test_bar_fills_the_width_exactly() -> None:
    parts = parts_of(STEP, sum(STEP.values()))
    for width in (1, 7, 80, 81):
        assert ledger_bar(parts, width, glyphs_for("utf-8")).cell_len == width


def test_cells_are_shared_by_largest_remainder() -> None:
    assert cell_counts([1, 1, 1], 10) == [4, 3, 3]
    assert cell_counts([999, 1], 10) == [10, 0]
    assert cell_counts([0, 0], 10) == [0, 0]
    assert cell_counts([10**18, 10**18], 4) == [2, 2]


def test_small_accounts_share_a_row() -> None:
    names = ["idle.sync", "idle.dispatch", "idle.python", "idle.optimizer", "idle.allocator",
             "idle.compile", "idle.comm", "idle.gc", "idle.profiler", "idle.queue"]  # fmt: skip
    step = {"compute.matmul": 100 * MS, **{name: (i + 1) * MS for i, name in enumerate(names)}}
    text = shown(report(devices=(device([step] * 2),)))
    row = re.search(r"3 smaller accounts +(\S+ ms)", text)
    assert row
    assert row.group(1) == "6.00 ms"  # the 1, 2 and 3 ms accounts


def test_durations() -> None:
    assert [duration(ns) for ns in (0, 999, 1000, 12_345, 999_960, 1_500_000, 59_100_000)] == [
        "0 ns", "999 ns", "1.00 us", "12.3 us", "1.00 ms", "1.50 ms", "59.1 ms",
    ]  # fmt: skip
    assert duration(1_234_567_890_123) == "1235 s"
    assert signed(-2_000) == "-2.00 us"
    assert signed(2_000) == "+2.00 us"
    assert signed(0) == "0 ns"


def test_words() -> None:
    assert percent(0.00001) == "<0.1 %"
    assert percent(0) == "0.0 %"
    assert count(1, "step") == "1 step"
    assert count(2, "step") == "2 steps"
    assert plain("a\tb\x00\u200bc") == "a b\\x00\\u200bc"
    assert plain("abcdefgh", 6) == "abc..."
