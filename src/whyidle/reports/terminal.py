"""The report on one terminal screen: verdict, ledger, findings, warnings.

It reads the same without colour: every coloured cell also has a letter or a label. Nothing that
comes from a trace is read as markup, and what the stream cannot encode is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from whyidle.ledger.accounts import INDEX
from whyidle.reports.bar import Glyphs, Part, glyphs_for, ledger_bar, parts_of, style_of
from whyidle.reports.json import median_ns, p95_ns
from whyidle.reports.model import DeviceReport, FindingReport, Report
from whyidle.reports.words import MEANING, count, device_title, duration, percent, plain

MAX_DEVICES = 4  # beyond this, one summary with the spread instead of a ledger each
_EXPLAINED_DEVICES = 2  # beyond this, accounts are named but not explained
_MIN_WIDTH, _MAX_WIDTH = 40, 110  # narrower, numbers would be cut; COLUMNS=0 means nothing
_MAX_ROWS = 8  # accounts over all ledgers shown; the rest of each in one row
_MAX_FINDINGS = 4
_MAX_EVIDENCE = (3, 1)  # sentences of the first finding, of each later one
_MAX_REMEDIES = (2, 1)
_MAX_WARNINGS = 5
_TEXT_LIMIT = 300  # characters of one sentence of evidence: kernel names can fill a screen
_VERDICT_STYLE = {"finding": "bold red", "healthy": "bold green"}


def write_terminal(report: Report, stream: TextIO) -> None:
    """Print the report to ``stream``; raises only what writing to the stream raises."""
    stream.write(render(report, console_for(stream)))
    stream.flush()


def console_for(stream: TextIO, width: int | None = None) -> Console:
    """A console that never reads markup; colour and width as the stream and NO_COLOR say."""
    file = cast(IO[str], _Looks(stream))
    console = Console(file=file, width=width, markup=False, highlight=False, emoji=False)
    console.width = min(max(console.width, _MIN_WIDTH), _MAX_WIDTH)
    return console


class _Looks:
    """What rich asks a stream for (terminal, encoding), without its writing: rendering must not
    meet the stream's errors, which are for the one who writes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def render(report: Report, console: Console) -> str:
    """The report as text for the console's stream, colour codes included where it has colour."""
    glyphs = glyphs_for(console.encoding)
    blocks: list[RenderableType] = [_verdict(report)]
    if len(report.devices) > MAX_DEVICES:
        blocks.append(_summary(report.devices, console.width, glyphs))
    else:
        rows = _MAX_ROWS // max(len(report.devices), 1)
        told = len(report.devices) <= _EXPLAINED_DEVICES
        blocks += [_device(d, rows, told, console.width, glyphs) for d in report.devices]
    if report.findings:
        blocks.append(_findings(report, glyphs))
    if report.warnings:
        blocks.append(_warnings(report.warnings))
    return printed(console, blocks)


def printed(console: Console, blocks: Sequence[RenderableType]) -> str:
    """The blocks with an empty line between them, every character one the stream can encode."""
    with console.capture() as capture:
        for i, block in enumerate(blocks):
            if i:
                console.print()
            console.print(block)
    lines = [line.rstrip() for line in capture.get().split("\n")]
    encoding = console.encoding
    return "\n".join(lines).encode(encoding, "replace").decode(encoding)


def _verdict(report: Report) -> Text:
    style = _VERDICT_STYLE.get(report.verdict.kind, "bold yellow")
    return Text(plain(report.verdict.sentence), style=style)


def _device(device: DeviceReport, rows: int, explained: bool, width: int, glyphs: Glyphs) -> Group:
    window = device.window[1] - device.window[0]
    lines: list[RenderableType] = [_heading(device)]
    if device.window_source != "steps":
        lines.append(Text(f"window: {plain(device.window_how)}", style="dim"))
    totals = {line.account: line.ns for line in device.accounts}
    if window > 0:
        parts = parts_of(totals, window)
        lines.append(ledger_bar(parts, width, glyphs))
        steps = max(len(device.step_ns), 1)
        lines.append(_accounts(_rows(parts, rows), steps, explained, glyphs))
    return Group(*lines)


def _heading(device: DeviceReport) -> Text:
    window = device.window[1] - device.window[0]
    text = Text(device_title(device.rank, device.device), style="bold")
    if device.name:
        text.append(f" ({plain(device.name)})", style="not bold")
    if window > 0:
        busy = percent(device.busy_ns / window)
        idle = percent(device.idle_ns / window)
        text.append(f": busy {busy}, idle {idle} of {duration(window)}", style="not bold")
    median, p95 = median_ns(device.step_ns), p95_ns(device.step_ns)
    if device.window_source != "span" and median is not None and p95 is not None:
        steps = count(len(device.step_ns), "step")
        text.append(f"; {steps}, median {duration(median)}, p95 {duration(p95)}", style="not bold")
    return text


def _table(*headers: str) -> Table:
    """A table without frame: the first column left, the numbers right, the last one left."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for i, header in enumerate(headers):
        last = i == len(headers) - 1
        table.add_column(
            header,
            justify="left" if i == 0 or last else "right",
            no_wrap=not last,
            overflow="fold",
        )
    return table


def _accounts(parts: list[Part], steps: int, explained: bool, glyphs: Glyphs) -> Table:
    time, what = "per step" if steps > 1 else "time", "what it is" if explained else ""
    table = _table("  account", time, "share", what)
    for part in parts:
        table.add_row(
            _name(part, glyphs),
            duration(part.ns / steps),
            percent(part.share),
            _what(part) if explained else Text(),
        )
    return table


def _rows(parts: list[Part], limit: int) -> list[Part]:
    """Busy before idle, each from large to small; those that do not fit as one row."""
    ranked = sorted(parts, key=lambda p: -p.ns)
    kept = ranked[:limit] if len(ranked) > limit + 1 else ranked
    rest = ranked[len(kept) :]
    rows = sorted(kept, key=lambda p: (not p.busy, -p.ns))
    if rest:
        ns, share = sum(p.ns for p in rest), sum(p.share for p in rest)
        made_of = tuple((p.name, p.ns) for p in rest)
        rows.append(Part(f"{len(rest)} smaller accounts", ns, share, False, made_of))
    return rows


def _name(part: Part, glyphs: Glyphs) -> Text:
    mark = glyphs.busy if part.busy else glyphs.idle
    if part.name != "compute" and part.name not in INDEX:  # a sum of unlike accounts
        mark = " "
    return Text.assemble((mark, style_of(part.name, background=False)), " ", part.name)


def _what(part: Part) -> Text:
    """For a sum of accounts what it is made of (shares of the window), else what it means."""
    if len(part.made_of) > 1:
        largest = sorted(part.made_of, key=lambda item: -item[1])
        shown = [
            f"{name.partition('compute.')[2] or name} {percent(part.share * ns / part.ns)}"
            for name, ns in largest[:3]
        ]
        return Text(", ".join(shown) + (", ..." if len(largest) > 3 else ""))
    return Text(MEANING.get(part.name, ""), style="dim")


def _summary(devices: tuple[DeviceReport, ...], width: int, glyphs: Glyphs) -> Group:
    """Many devices: the mean ledger, and for each account the devices with least and most."""
    windows = [max(d.window[1] - d.window[0], 1) for d in devices]
    busy = [d.busy_ns / w for d, w in zip(devices, windows, strict=True)]
    low, high = busy.index(min(busy)), busy.index(max(busy))
    heading = Text(f"{len(devices)} devices", style="bold")
    heading.append(
        f": busy {percent(sum(d.busy_ns for d in devices) / sum(windows))} on average, from "
        f"{percent(busy[low])} ({_title(devices[low])}) to "
        f"{percent(busy[high])} ({_title(devices[high])})",
        style="not bold",
    )
    totals: dict[str, int] = {}
    for device in devices:
        for line in device.accounts:
            totals[line.account] = totals.get(line.account, 0) + line.ns
    ordered = {name: totals[name] for name in sorted(totals, key=lambda n: INDEX.get(n, 99))}
    parts = parts_of(ordered, sum(windows))
    table = _table("  account", "share", "least", "most", "most on")
    for part in _rows(parts, _MAX_ROWS):
        names = {name for name, _ in part.made_of}
        shares = [
            sum(line.ns for line in d.accounts if line.account in names) / w
            for d, w in zip(devices, windows, strict=True)
        ]
        most = shares.index(max(shares))
        table.add_row(
            _name(part, glyphs),
            percent(part.share),
            percent(min(shares)),
            percent(max(shares)),
            Text(_title(devices[most])),
        )
    return Group(heading, ledger_bar(parts, width, glyphs), table)


def _title(device: DeviceReport) -> str:
    return device_title(device.rank, device.device)


def _findings(report: Report, glyphs: Glyphs) -> Group:
    """The largest findings, the first with more of its evidence."""
    ranked = report.findings  # ordered by the diagnosis: what is certain first
    stepped = any(device.window_source != "span" for device in report.devices)
    blocks: list[RenderableType] = []
    for i, finding in enumerate(ranked[:_MAX_FINDINGS]):
        place = min(i, 1)
        marked = [(glyphs.bullet, "", text) for text in finding.evidence[: _MAX_EVIDENCE[place]]]
        if not i:
            marked += [(glyphs.bullet, "dim", f"Note: {note}") for note in finding.notes[:1]]
        marked += [
            (glyphs.arrow, "green", f"{remedy.text} ({remedy.numerics})")
            for remedy in finding.remedies[: _MAX_REMEDIES[place]]
        ]
        title = Text(f"{i + 1}. {plain(finding.title)} ", style="bold")
        title.append(f"[{finding.rule}, {finding.cause}]", style="not bold dim")
        items = [_item(mark, plain(text, _TEXT_LIMIT), style) for mark, style, text in marked]
        body = Group(_lost(finding, stepped), *items)
        blocks += [title, Padding(body, (0, 0, 0, 3))]
    if len(ranked) > _MAX_FINDINGS:
        more = count(len(ranked) - _MAX_FINDINGS, "smaller finding")
        blocks.append(Text(f"and {more}: see --json or --html", style="dim"))
    return Group(*blocks)


def _lost(finding: FindingReport, stepped: bool) -> Text:
    lost = duration(finding.lost_ns)
    if stepped:
        lost = f"{duration(finding.lost_ns_per_step)} per step"
    text = f"lost: {lost}, {percent(finding.share)} of the time"
    text += f"; gain: at most {percent(finding.gain_upper_bound)}"
    if len(finding.devices) > 1:
        text += f"; on {len(finding.devices)} devices"
    return Text(text)


def _item(mark: str, text: str, style: str = "") -> Table:
    """A hanging indent: the mark in a column of its own."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), Text(text, style=style))
    return grid


def _warnings(warnings: tuple[str, ...]) -> Group:
    lines: list[RenderableType] = [
        _item("!", plain(warning, _TEXT_LIMIT), "yellow") for warning in warnings[:_MAX_WARNINGS]
    ]
    if len(warnings) > _MAX_WARNINGS:
        more = count(len(warnings) - _MAX_WARNINGS, "warning")
        lines.append(Text(f"and {more} more: see --json", style="dim"))
    return Group(*lines)
