"""The HTML face: one file, its numbers the report's, hostile names inert, honest about bounds."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import TraceBuilder
from picture_builders import LOADER, SHOWN, builder, hostile_report, picture, with_picture
from report_builders import MS, STEP, device, many, report
from whyidle.ledger.accounts import ACCOUNTS
from whyidle.reports.html import picture as picture_module
from whyidle.reports.html import render_html, write_html
from whyidle.reports.html.content import MAX_COLUMNS, MAX_DEVICES
from whyidle.reports.html.picture import allot, choose_steps, picture_data
from whyidle.reports.model import Verdict

MAX_BYTES = 5_000_000


class Page(HTMLParser):
    """Elements in order, and the text of each script, style and heading."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style", "h1", "title"):
            self._open = tag
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open][-1] += data

    def data(self) -> dict[str, Any]:
        tree: dict[str, Any] = json.loads(self.texts["script"][0])
        return tree


def test_is_one_file_that_asks_for_nothing() -> None:
    page = Page(render_html(with_picture()))
    links = [attrs.get(key) for _, attrs in page.elements for key in ("src", "href", "srcset")]
    assert {link for link in links if link} == {"data:,", "#findings"}
    assert not {"iframe", "object", "embed", "form", "base"} & {tag for tag, _ in page.elements}
    assert all("@import" not in s and "url(" not in s for s in page.texts["style"])
    assert ("html", {"lang": "en"}) in page.elements


def test_policy_allows_only_our_own_script_and_style() -> None:
    page = Page(render_html(with_picture()))
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "content" in a
                  and a.get("http-equiv") == "Content-Security-Policy")  # fmt: skip
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for text in (page.texts["script"][1], page.texts["style"][0]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_verdict_is_readable_without_javascript() -> None:
    made = report()
    page = Page(render_html(made))
    assert page.texts["h1"] == [made.verdict.sentence]
    assert any(tag == "noscript" for tag, _ in page.elements)


def test_embedded_numbers_are_the_reports() -> None:
    made = with_picture()
    data = Page(render_html(made)).data()
    shown, own = data["devices"][0], made.devices[0]
    assert shown["busy_ns"] == own.busy_ns
    assert shown["idle_ns"] == own.idle_ns
    assert shown["window_ns"] == own.window[1] - own.window[0]
    assert [(a["account"], a["ns"]) for a in shown["accounts"]] == [
        (a.account, a.ns) for a in own.accounts
    ]
    assert [a["share"] for a in shown["accounts"]] == [a.share for a in own.accounts]
    chart = shown["chart"]
    steps = [dict(zip(chart["accounts"], c[4], strict=True)) for c in chart["columns"]]
    assert steps == list(own.by_step)
    assert data["findings"][0]["lost_ns_per_step"] == made.findings[0].lost_ns_per_step
    assert data["findings"][0]["gain_upper_bound"] == made.findings[0].gain_upper_bound
    assert [r["numerics"] for r in data["findings"][0]["remedies"]] == [
        r.numerics for r in made.findings[0].remedies
    ]
    assert [k["ns"] for k in data["kernels"]] == [k.ns for k in made.kernels]


def test_hostile_names_are_inert() -> None:
    text = render_html(hostile_report())
    page = Page(text)
    tags = [tag for tag, _ in page.elements]
    assert "img" not in tags
    assert tags.count("script") == 2
    assert not any(key.startswith("on") for _, attrs in page.elements for key in attrs)
    assert "<!--" not in text
    data = page.data()
    assert data["kernels"][0]["name"] == SHOWN
    assert data["findings"][0]["evidence"] == [SHOWN]
    assert data["warnings"] == [SHOWN]
    assert f"{SHOWN}.py(7): collate" in data["picture"]["names"]
    assert page.texts["h1"] == [SHOWN]


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    made = with_picture(warnings=("größe \ud800",))
    write_html(made, tmp_path / "a.html")
    write_html(made, tmp_path / "b.html")
    data = (tmp_path / "a.html").read_bytes()
    assert data == (tmp_path / "b.html").read_bytes()
    assert Page(data.decode("utf-8")).data()["warnings"] == ["größe \\ud800"]


def test_many_ranks_show_those_that_idle_most_and_count_the_rest() -> None:
    text = render_html(many(1000))
    data = Page(text).data()
    assert data["devices_total"] == 1000
    assert len(data["devices"]) == MAX_DEVICES
    assert [d["title"] for d in data["devices"][:2]] == ["rank 999 GPU 0", "rank 998 GPU 0"]
    assert data["overall"]["busy_ns"] == sum(d.busy_ns for d in many(1000).devices)
    assert len(text) < MAX_BYTES


def test_many_steps_are_summed_in_equal_runs_without_loss() -> None:
    steps = [{**STEP, "idle.input": (30 + i % 7) * MS} for i in range(1001)]
    steps[500]["idle.checkpoint"] = 900 * MS
    made = report(devices=(device(steps),))
    chart = Page(render_html(made)).data()["devices"][0]["chart"]
    columns = chart["columns"]
    assert chart["size"] == 6
    assert len(columns) == 167 <= MAX_COLUMNS
    assert sum(c[1] for c in columns) == 1001
    totals = np.array([c[4] for c in columns]).sum(axis=0).tolist()
    shown = dict(zip(chart["accounts"], totals, strict=True))
    assert shown == {a.account: a.ns for a in made.devices[0].accounts}
    assert columns[500 // 6][2:4] == [500, made.devices[0].step_ns[500]]


def test_two_hundred_steps_are_drawn_one_by_one() -> None:
    chart = Page(render_html(report(devices=(device([dict(STEP)] * 200),)))).data()["devices"][0]
    assert chart["chart"]["size"] == 1


def test_without_devices_it_is_still_a_page() -> None:
    verdict = Verdict("no_gpu_activity", None, "No GPU activity recorded.")
    page = Page(render_html(report((), (), verdict, ())))
    assert page.texts["h1"] == ["No GPU activity recorded."]
    assert page.data()["devices"] == []
    assert page.data()["picture"] is None


def test_steps_chosen_are_the_median_then_the_extremes() -> None:
    assert choose_steps(np.array([5, 9, 1, 7])) == [
        (0, "median, first"), (1, "longest"), (2, "shortest"), (3, "last")
    ]  # fmt: skip
    assert choose_steps(np.array([5])) == [(0, "the only one")]


def test_picture_shows_the_median_step_with_all_its_idle_time() -> None:
    drawn = picture()
    data = picture_data(drawn)
    assert data is not None
    step = data["steps"][0]
    ledger = drawn.ledgers[0]
    table = ledger.by_step()
    lengths = np.diff(ledger.step_edges())
    assert step["ns"] == int(np.median(lengths)) == int(lengths[step["index"]])
    idle = np.zeros(len(ACCOUNTS), np.int64)
    np.add.at(idle, step["gaps"]["account"], step["gaps"]["ns"])
    busy = [a.busy for a in ACCOUNTS]
    assert idle.tolist() == np.where(busy, 0, table[step["index"]]).tolist()
    assert step["left_out"]["host"]["count"] == 0


def test_gap_tells_the_innermost_host_event_and_its_ancestors() -> None:
    data = picture_data(picture())
    assert data is not None
    gaps = data["steps"][0]["gaps"]
    longest = int(np.argmax(gaps["ns"]))
    assert ACCOUNTS[gaps["account"][longest]].name == "idle.input"
    chain, ns = gaps["did"][longest][0]
    names = [data["names"][i] for i in data["chains"][chain]]
    assert names[:2] == ["load.py(7): collate", LOADER]
    assert names[2].startswith("ProfilerStep#")
    assert 0 < ns <= gaps["ns"][longest]
    assert data["names"][gaps["ended"][longest]] == "sgemm load"


def test_kernel_tells_its_stream_account_and_launch() -> None:
    data = picture_data(picture())
    assert data is not None
    streams = {s["title"]: s for s in data["steps"][0]["streams"]}
    assert set(streams) == {"stream 7", "stream 9"}
    add = streams["stream 9"]
    assert add["ns"] == [99_997]
    assert add["lead"] == [20_003]
    links = [data["names"][i] for i in data["chains"][add["chain"][0]]]
    assert links[:2] == ["cudaLaunchKernel", "aten::add"]


def test_events_left_out_are_the_shortest_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = builder(steps=1)
    for i in range(500):
        trace.op(f"aten::tiny{i}", 5_640_000 + 100 * i, 5_640_000 + 100 * i + 10 + i % 50)
    monkeypatch.setattr(picture_module, "MAX_EVENTS", 60)
    data = picture_data(picture(trace))
    assert data is not None
    step = data["steps"][0]
    lane, left = step["lanes"][0], step["left_out"]["host"]
    assert len(lane["start"]) + left["count"] == left["of"]
    assert left["count"] > 400
    assert min(lane["ns"]) >= left["longest_ns"]
    drawn = [data["names"][i] for i in lane["name"]]
    assert "load.py(7): collate" in drawn
    total = sum(len(s["start"]) for s in step["streams"]) + len(step["gaps"]["start"])
    assert total + len(lane["start"]) <= 60


def test_tens_of_thousands_of_long_names_stay_below_the_bound() -> None:
    trace = builder(steps=1)
    for i in range(40_000):
        trace.op(f"{i} " + "\u4e2d" * 400, 5_431_000 + 4 * i, 5_431_003 + 4 * i)
    text = render_html(dataclasses.replace(report(), picture=picture(trace)))
    assert len(text.encode()) < MAX_BYTES
    names = Page(text).data()["picture"]["names"]
    assert "load.py(7): collate" in names
    assert "(name left out: too many long names)" in names


def test_room_is_shared_and_none_is_wasted() -> None:
    assert allot([10, 20, 30], 100) == [10, 20, 30]
    assert allot([1, 500, 2], 100) == [1, 97, 2]
    assert allot([50, 50, 50], 90) == [30, 30, 30]
    assert sum(allot([7, 1000, 1000], 101)) == 101


def test_host_is_drawn_where_no_gpu_was_recorded() -> None:
    trace = TraceBuilder()
    for i in range(3):
        trace.step(i, 1_000 * i, 1_000 * i + 900)
        trace.op("aten::mm", 1_000 * i + 100, 1_000 * i + 500)
    data = picture_data(picture(trace))
    assert data is not None
    assert data["device"] is None
    assert data["steps"][0]["gaps"] is None
    assert data["steps"][0]["ns"] == 900


@pytest.mark.parametrize(
    "name", ["kineto/resnet50_v100_workers0.pt.trace.json.gz", "tracelens/h100_owlv2_infer.json.gz"]
)
def test_real_trace_fits_and_draws_every_idle_nanosecond(traces: Path, name: str) -> None:
    from whyidle.diagnosis import diagnose

    made = diagnose([traces / name], picture=True)
    text = render_html(made)
    assert len(text.encode()) < MAX_BYTES
    data = Page(text).data()
    assert data["devices"][0]["idle_ns"] == made.devices[0].idle_ns
    step = data["picture"]["steps"][0]
    own = made.devices[0].by_step[step["index"]]
    idle = sum(ns for account, ns in own.items() if account.startswith("idle."))
    assert sum(step["gaps"]["ns"]) + step["left_out"]["gaps"]["ns"] == idle
    assert step["ns"] == made.devices[0].step_ns[step["index"]]
