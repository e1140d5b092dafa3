"""A comparison on the terminal: the sentence, both ledgers at one scale, what moved."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from whyidle.compare import Comparison, Side
from whyidle.ledger.accounts import INDEX
from whyidle.reports.bar import Glyphs, glyphs_for, ledger_bar, parts_of, style_of
from whyidle.reports.terminal import console_for, printed
from whyidle.reports.words import count, duration, plain, signed

_MAX_ROWS = 10
_LABEL_LIMIT = 60
_ANSWER = {"larger": "larger", "within": "not larger", "cannot_tell": "?"}


def write_comparison(comparison: Comparison, stream: TextIO) -> None:
    """Print the comparison to ``stream``; raises only what writing to the stream raises."""
    stream.write(render(comparison, console_for(stream)))
    stream.flush()


def render(comparison: Comparison, console: Console) -> str:
    """The comparison as text for the console's stream."""
    glyphs = glyphs_for(console.encoding)
    longest = max(comparison.a.mean_ns, comparison.b.mean_ns)
    style = "bold" if comparison.shift.answer == "cannot_tell" else "bold green"
    if comparison.shift.answer == "larger" and comparison.difference_ns > 0:
        style = "bold red"
    blocks: list[RenderableType] = [Text(plain(comparison.sentence), style=style)]
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        blocks.append(_side(name, side, longest, console.width, glyphs))
    if comparison.moves and comparison.a.devices and comparison.b.devices:
        blocks.append(_moves(comparison, glyphs))
    blocks += [Text(f"! {plain(note)}", style="yellow") for note in comparison.notes]
    return printed(console, blocks)


def _side(name: str, side: Side, longest: int, width: int, glyphs: Glyphs) -> Text:
    label = plain(side.label)
    if len(label) > _LABEL_LIMIT:
        label = "..." + label[3 - _LABEL_LIMIT :]
    text = Text(f"{name}  {label}", style="bold")
    steps = count(len(side.step_ns), "step") if side.stepped else "no steps found"
    text.append(f"  {duration(side.mean_ns)}, {steps}", style="not bold")
    if side.devices > 1:
        text.append(f", mean of {side.devices} devices", style="not bold")
    if longest and side.mean_ns:
        ordered = sorted(side.accounts, key=lambda n: INDEX.get(n, len(INDEX)))
        parts = parts_of({n: side.accounts[n] for n in ordered}, side.mean_ns)
        cells = max(round(width * side.mean_ns / longest), 1)
        text.append("\n")
        text.append_text(ledger_bar(parts, cells, glyphs))
    return text


def _moves(comparison: Comparison, glyphs: Glyphs) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("  account", no_wrap=True)
    for header in ("A per step", "B per step", "difference"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("than the spread")
    shown = comparison.moves[:_MAX_ROWS]
    for move in shown:
        mark = glyphs.idle if move.account.startswith("idle.") else glyphs.busy
        name = Text.assemble((mark, style_of(move.account, False)), " ", plain(move.account))
        table.add_row(
            name,
            duration(move.a_ns),
            duration(move.b_ns),
            signed(move.difference_ns),
            _ANSWER[move.shift.answer],
        )
    rest = comparison.moves[_MAX_ROWS:]
    if rest:
        a, b = sum(m.a_ns for m in rest), sum(m.b_ns for m in rest)
        table.add_row(f"  {len(rest)} others", duration(a), duration(b), signed(b - a))
    a, b = comparison.a.mean_ns, comparison.b.mean_ns
    answer = _ANSWER[comparison.shift.answer]
    table.add_row("  step", duration(a), duration(b), signed(b - a), answer, style="bold")
    return table
