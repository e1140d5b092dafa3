"""Numbers in the sentences of findings: short, with units."""

from __future__ import annotations

from whyidle.ledger.model import Ledger

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def ns(value: float) -> str:
    """A duration given in ns, to three digits: "1.23 ms", "45.6 us", "789 ns"."""
    for size, unit in _UNITS:
        if abs(value) >= size * 0.9995:
            scaled = value / size
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{digits}f} {unit}"
    return f"{value:.0f} ns"


def percent(share: float) -> str:
    """A share of one: "12.3 %"."""
    return f"{100 * share:.1f} %"


def number(value: float) -> str:
    """A count that may be a mean: "12", "1.5", "12,345"."""
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def size(value: float) -> str:
    """Bytes: "1.5 MiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << power:
            return f"{value / (1 << power):.1f} {unit}"
    return f"{value:.0f} B"


def unit(ledger: Ledger) -> str:
    """What a mean is taken over: "a step", or "in the trace" where no steps are known."""
    return "in the trace" if ledger.steps.source == "span" else "a step"


def per_step(value: float, ledger: Ledger) -> str:
    """A duration in ns over the whole window as a mean over its steps: "1.23 ms a step"."""
    return f"{ns(value / max(len(ledger.steps), 1))} {unit(ledger)}"


def count_per_step(value: float, what: str, ledger: Ledger) -> str:
    """A count over the whole window as a mean over its steps: "12 kernels a step"."""
    return f"{number(value / max(len(ledger.steps), 1))} {what} {unit(ledger)}"


def listed(items: list[str]) -> str:
    """Items as prose: "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def short(name: str, limit: int = 80) -> str:
    """A kernel or operator name cut to fit a sentence, on one line."""
    name = " ".join(name.split())
    return name if len(name) <= limit else name[: limit - 3] + "..."
