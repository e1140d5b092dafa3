"""The HTML face in a real browser: no console message, no network, usable by hand and by key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chromium import Page, find_chromium
from picture_builders import SHOWN, hostile_report, with_picture
from report_builders import MS, STEP, device, many, report
from whyidle.reports.html import write_html
from whyidle.reports.model import Report, Verdict

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

NOTHING = Verdict("no_gpu_activity", None, "No GPU activity recorded.")
REPORTS = {
    "picture": with_picture(),
    "hostile": hostile_report(),
    "nothing": report((), (), NOTHING, ()),
    "healthy": report(findings=(), verdict=Verdict("healthy", None, "Healthy.")),
    "no steps": report(devices=(device([dict(STEP)], source="span", rank=None),)),
    "ranks": many(100),
    "steps": report(devices=(device([dict(STEP)] * 1001), device([dict(STEP)] * 60, index=1))),
}


@pytest.fixture(scope="module")
def wide() -> Iterator[Page]:
    assert CHROMIUM is not None
    with Page(CHROMIUM) as page:
        yield page


@pytest.fixture(scope="module")
def narrow() -> Iterator[Page]:
    assert CHROMIUM is not None
    with Page(CHROMIUM, width=360, dark=True) as page:
        yield page


def show(page: Page, made: Report, folder: Path) -> None:
    write_html(made, folder / "report.html")
    page.problems.clear()
    page.open(folder / "report.html")


@pytest.mark.parametrize("name", REPORTS)
def test_opens_without_any_message(wide: Page, tmp_path: Path, name: str) -> None:
    show(wide, REPORTS[name], tmp_path)
    assert wide.evaluate("document.body.dataset.errors || ''") == ""
    assert wide.problems == []
    findings = wide.evaluate("document.querySelectorAll('.finding-card').length")
    assert findings == len(REPORTS[name].findings)


@pytest.mark.parametrize("name", REPORTS)
def test_fits_a_phone_in_the_dark(narrow: Page, tmp_path: Path, name: str) -> None:
    show(narrow, REPORTS[name], tmp_path)
    assert narrow.evaluate("innerWidth") == 360
    assert narrow.evaluate("document.documentElement.scrollWidth") == 360
    assert narrow.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 29)"
    assert narrow.problems == []


def test_hostile_names_are_shown_and_do_nothing(wide: Page, tmp_path: Path) -> None:
    show(wide, hostile_report(), tmp_path)
    assert wide.evaluate("document.querySelectorAll('img').length") == 0
    assert wide.evaluate("document.body.dataset.pwned || 'no'") == "no"
    assert wide.evaluate("document.querySelector('h1').textContent") == SHOWN
    assert wide.evaluate("document.querySelector('#kernels td.name').textContent") == SHOWN


def test_policy_stops_what_a_name_could_inject(wide: Page, tmp_path: Path) -> None:
    """Even if a name became an element, the page's policy would not run it."""
    show(wide, with_picture(), tmp_path)
    wide.evaluate(
        "document.body.insertAdjacentHTML('beforeend', "
        "'<button id=evil onclick=\"document.body.dataset.pwned=1\">x</button>')"
    )
    wide.evaluate("document.getElementById('evil').click()")
    assert wide.evaluate("document.body.dataset.pwned || 'no'") == "no"


def view(page: Page) -> tuple[float, float]:
    page.evaluate("viewer.paint()")
    low, high = str(page.evaluate("viewer.canvas.dataset.view")).split()
    return float(low), float(high)


def test_keys_zoom_pan_and_reset(wide: Page, tmp_path: Path) -> None:
    show(wide, with_picture(), tmp_path)
    whole = view(wide)
    assert whole == (0.0, float(wide.evaluate("viewer.step.ns")))
    wide.evaluate("viewer.canvas.focus()")
    wide.key("+")
    zoomed = view(wide)
    assert zoomed[1] - zoomed[0] == pytest.approx(whole[1] / 1.6)
    wide.key("ArrowRight")
    moved = view(wide)
    assert moved[0] > zoomed[0]
    assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0])
    for _ in range(60):
        wide.key("+")
    assert view(wide)[1] - view(wide)[0] == pytest.approx(200)
    wide.key("0")
    assert view(wide) == whole


def at(page: Page, kind: str, share: float) -> tuple[float, float]:
    """Viewport coordinates of a place in the first row of ``kind``."""
    page.evaluate("viewer.canvas.scrollIntoView({block: 'center', behavior: 'instant'})")
    left, top, width, y = page.evaluate(
        "(() => { const box = viewer.canvas.getBoundingClientRect();"
        f"const row = viewer.plan.items.find((item) => item.type === '{kind}');"
        "return [box.left, box.top, box.width, row.y + row.height / 2]; })()"
    )
    return left + width * share, top + y


def test_hover_tells_the_account_and_what_the_host_did(wide: Page, tmp_path: Path) -> None:
    show(wide, with_picture(), tmp_path)
    wide.mouse("mouseMoved", *at(wide, "idle", 0.1))
    told = wide.evaluate("document.getElementById('tip').innerText")
    assert "idle.input" in told
    assert "load.py(7): collate" in told
    assert "ProfilerStep#" in told
    assert "sgemm load" in told  # what ended it
    wide.mouse("mouseMoved", *at(wide, "host", 0.6))
    wide.until("document.querySelector('#tip .tip-title').innerText !== 'GPU idle: idle.input'")
    told = wide.evaluate("document.getElementById('tip').innerText")
    assert "aten::add" in told
    assert "200 us" in told


def test_wheel_zooms_about_the_pointer_and_dragging_pans(wide: Page, tmp_path: Path) -> None:
    show(wide, with_picture(), tmp_path)
    x, y = at(wide, "host", 0.25)
    whole = view(wide)
    wide.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100, modifiers=2)
    wide.until("viewer.view.high - viewer.view.low < viewer.step.ns")
    low, high = view(wide)
    assert low + (high - low) * 0.25 == pytest.approx(whole[1] * 0.25, rel=0.01)
    wide.mouse("mousePressed", x, y, button="left", clickCount=1)
    wide.mouse("mouseMoved", x - 50, y, button="left")
    wide.mouse("mouseReleased", x - 50, y, button="left", clickCount=1)
    assert view(wide)[0] > low
    assert view(wide)[1] - view(wide)[0] == pytest.approx(high - low)


def test_another_step_can_be_drawn(wide: Page, tmp_path: Path) -> None:
    show(wide, with_picture(), tmp_path)
    assert wide.evaluate("document.querySelectorAll('.tools option').length") == 3
    wide.evaluate(
        "(() => { const choice = document.querySelector('.tools select'); choice.value = '1';"
        "choice.dispatchEvent(new Event('change')); })()"
    )
    assert "(longest" in wide.evaluate("viewer.canvas.getAttribute('aria-label')")
    assert view(wide)[1] == float(wide.evaluate("PICTURE.steps[1].ns"))


def test_kernels_sort_by_click(wide: Page, tmp_path: Path) -> None:
    show(wide, with_picture(), tmp_path)
    heads = "[...document.querySelectorAll('#kernels th')]"
    assert wide.evaluate(f"{heads}.map((h) => h.getAttribute('aria-sort')).join()") == (
        "none,descending,none,none,none"
    )
    wide.evaluate(f"{heads}[0].firstChild.click()")
    assert wide.evaluate(f"{heads}[0].getAttribute('aria-sort')") == "ascending"


def test_says_what_it_does_not_show(wide: Page, tmp_path: Path) -> None:
    show(wide, many(100), tmp_path)
    assert "68 devices with less idle time not shown" in wide.evaluate("document.body.innerText")
    assert wide.evaluate("document.querySelectorAll('.device').length") == 32
    show(wide, REPORTS["steps"], tmp_path)
    assert "1,001 steps are too many" in wide.evaluate("document.body.innerText")


def test_bar_is_as_wide_as_the_shares(wide: Page, tmp_path: Path) -> None:
    show(wide, report(), tmp_path)
    share = wide.evaluate(
        "(() => { const bar = document.querySelector('.bar');"
        "const part = bar.querySelector('.part.idle');"
        "return part.getBoundingClientRect().width / bar.getBoundingClientRect().width; })()"
    )
    assert share == pytest.approx(STEP["idle.input"] / sum(STEP.values()), abs=0.002)
    assert sum(STEP.values()) == 100 * MS
