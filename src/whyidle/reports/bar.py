"""The ledger as one line of coloured cells that also reads without colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.text import Text

from whyidle.ledger.accounts import ACCOUNTS, INDEX

# By account or its first word; the idle ones by what the time is lost to.
_COLOURS = {
    "compute": "green",
    "comm": "magenta",
    "copy": "cyan",
    "memset": "cyan",
    "idle.input": "red",
    "idle.comm": "bright_magenta",
    "idle.transfer": "blue",
    "idle.allocator": "blue",
    "idle.compile": "bright_cyan",
    "idle.sync": "bright_yellow",
    "idle.dispatch": "yellow",
    "idle.python": "yellow",
    "idle.optimizer": "yellow",
    "idle.queue": "bright_yellow",
    "idle.checkpoint": "bright_red",
    "idle.evaluation": "bright_red",
    "idle.logging": "bright_red",
    "idle.startup": "bright_red",
    "idle.gc": "bright_red",
}
_OTHER_COLOUR = "white"


@dataclass(frozen=True)
class Glyphs:
    """The characters that the stream's encoding has."""

    busy: str
    idle: str
    border: str
    bullet: str
    arrow: str


_UNICODE = Glyphs("█", "░", "│", "•", "→")
_ASCII = Glyphs("#", ".", "|", "-", ">")


@dataclass(frozen=True)
class Part:
    """One stretch of the bar: an account, or several that are shown as one (``made_of``)."""

    name: str
    ns: int
    share: float
    busy: bool
    made_of: tuple[tuple[str, int], ...]


def glyphs_for(encoding: str) -> Glyphs:
    """Blocks and arrows where ``encoding`` has them, else ASCII."""
    try:
        "█░│•→".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _UNICODE


def parts_of(totals: Mapping[str, int], window_ns: int) -> list[Part]:
    """Parts in ledger order, all kinds of compute as one; shares of ``window_ns``."""
    grouped: dict[str, list[tuple[str, int]]] = {}
    for account, ns in totals.items():
        name = "compute" if account.startswith("compute.") else account
        grouped.setdefault(name, []).append((account, ns))
    parts = []
    for name, made_of in grouped.items():
        ns = sum(n for _, n in made_of)
        parts.append(Part(name, ns, ns / window_ns, _is_busy(made_of[0][0]), tuple(made_of)))
    return parts


def _is_busy(account: str) -> bool:
    return account in INDEX and ACCOUNTS[INDEX[account]].busy


def style_of(name: str, background: bool) -> str:
    """Rich style of a part: its colour as background of a cell, or as foreground of a mark."""
    colour = _COLOURS.get(name) or _COLOURS.get(name.split(".")[0], _OTHER_COLOUR)
    return f"black on {colour}" if background else colour


def ledger_bar(parts: list[Part], width: int, glyphs: Glyphs) -> Text:
    """A bar of exactly ``width`` cells; each part as wide as its share (largest remainder).

    A part is a border and its label, where that fits, then its fill: solid for busy time and
    hollow for idle time.
    """
    text = Text(no_wrap=True, overflow="crop")
    for part, cells in zip(parts, cell_counts([p.ns for p in parts], width), strict=True):
        if not cells:
            continue
        fill = glyphs.busy if part.busy else glyphs.idle
        label = f"{part.name.removeprefix('idle.')} {100 * part.share:.0f}%"
        inner = cells - 1
        shown = label if len(label) <= inner else ""
        colour = style_of(part.name, background=False)
        text.append(glyphs.border, style=colour)
        if shown:
            text.append(shown, style=style_of(part.name, background=True))
        text.append(fill * (inner - len(shown)), style=colour)
    return text


def cell_counts(amounts: list[int], cells: int) -> list[int]:
    """Divide ``cells`` in proportion to ``amounts``: largest remainder, exact integers."""
    whole = sum(amounts)
    if whole <= 0:
        return [0] * len(amounts)
    counts = [amount * cells // whole for amount in amounts]
    by_remainder = sorted(range(len(amounts)), key=lambda i: (-(amounts[i] * cells % whole), i))
    for i in by_remainder[: cells - sum(counts)]:
        counts[i] += 1
    return counts
