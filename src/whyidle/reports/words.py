"""How numbers and names are put into words: the same in every face of the report."""

from __future__ import annotations

import unicodedata

# What each account means to someone who has not read the ledger's definition.
MEANING = {
    "compute": "kernels of the model",
    "comm.exposed": "a collective runs, no compute beside it",
    "comm.exposed.transfer": "a collective moves data, no compute beside it",
    "comm.exposed.wait": "in a collective, waiting for the last rank",
    "copy.h2d": "only a host-to-device copy runs",
    "copy.d2h": "only a device-to-host copy runs",
    "copy.d2d": "only a device-to-device copy runs",
    "memset": "only a memset runs",
    "idle.input": "host waits for the next batch",
    "idle.transfer": "host blocked in a host-device copy",
    "idle.sync": "host still in a synchronize call",
    "idle.dispatch": "host runs operators and launch calls",
    "idle.python": "host runs Python between operators",
    "idle.optimizer": "host side of optimizer step, zero_grad",
    "idle.allocator": "host allocates or frees memory",
    "idle.compile": "host compiles, tunes or loads kernels",
    "idle.comm": "host waits in a collective or barrier",
    "idle.checkpoint": "checkpoint is written",
    "idle.evaluation": "validation",
    "idle.logging": "logging",
    "idle.startup": "start-up",
    "idle.gc": "Python garbage collection",
    "idle.profiler": "the profiler's own work",
    "idle.queue": "work was queued: dependency or launch latency",
    "idle.unattributed": "no evidence of what the host did",
}

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def duration(ns: float) -> str:
    """``ns`` in the largest unit that keeps it at 1 or more, to three significant digits."""
    size = abs(ns)
    for factor, unit in _UNITS:
        if size >= factor * 0.9995:
            value = ns / factor
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{ns:.0f} ns"


def signed(ns: float) -> str:
    """A difference: always with its sign."""
    return ("+" if ns > 0 else "") + duration(ns)


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{100 * share:.1f} %"


def plain(text: str, limit: int = 0) -> str:
    """``text`` from a trace made safe to show: on one line, without control characters.

    Control, bidirectional, zero-width and surrogate characters become visible escapes, so that a
    name can neither move the cursor nor reorder what is around it. ``limit`` cuts longer texts.
    """
    if not (text.isascii() and text.isprintable()):
        text = "".join(_visible(c) for c in text)
    if limit and len(text) > limit:
        text = text[: limit - 3] + "..."
    return text


def _visible(character: str) -> str:
    if character in "\n\r\t":
        return " "
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        code = ord(character)
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    return character


def count(n: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def device_title(rank: int | None, device: int) -> str:
    """How a device is called: "rank 0 GPU 1", or "GPU 1" where no rank is known."""
    return f"GPU {device}" if rank is None else f"rank {rank} GPU {device}"
