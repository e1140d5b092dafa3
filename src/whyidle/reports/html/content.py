"""Report -> plain data for the page. Whatever is left out to bound the size is counted in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whyidle import __version__
from whyidle.ledger.accounts import ACCOUNTS, INDEX
from whyidle.reports.html.picture import picture_data
from whyidle.reports.json import median_ns, p95_ns
from whyidle.reports.model import DeviceReport, FindingReport, Report
from whyidle.reports.words import MEANING, device_title, plain

# Bounds that keep the page usable and below 5 MB, whatever the report.
MAX_DEVICES = 32
MAX_COLUMNS = 200  # of the chart of steps, where few devices are shown
_FEW_DEVICES = 8
_FEWER_COLUMNS = 60  # of each chart, where many devices are shown
MAX_LISTED = 100  # sources, warnings
_MAX_NAMED = 20  # devices that one finding names
_MAX_SENTENCES = 40
_TEXT_LIMIT = 2000  # characters of one sentence
_NAME_LIMIT = 500  # characters of a kernel's name


def page_data(report: Report) -> dict[str, Any]:
    """All that the page shows; times in ns, shares in [0, 1], texts without control characters."""
    shown = shown_devices(report.devices)
    columns = MAX_COLUMNS if len(shown) <= _FEW_DEVICES else _FEWER_COLUMNS
    return {
        "whyidle": __version__,
        "verdict": {"kind": report.verdict.kind, "cause": report.verdict.cause},
        "accounts": _accounts(),
        "overall": {
            "window_ns": sum(_window(d) for d in report.devices),
            "busy_ns": sum(int(d.busy_ns) for d in report.devices),
            "idle_ns": sum(int(d.idle_ns) for d in report.devices),
        },
        "devices": [_device(device, columns) for device in shown],
        "devices_total": len(report.devices),
        "findings": [_finding(f) for f in report.findings],
        "kernels": [
            {
                "name": plain(k.name, _NAME_LIMIT),
                "account": k.account,
                "count": int(k.count),
                "ns": int(k.ns),
                "median_ns": int(k.median_ns),
            }
            for k in report.kernels
        ],
        "sources": [
            {
                "path": plain(s.path, _TEXT_LIMIT),
                "format": plain(s.format, 100),
                "rank": s.rank,
                "world_size": s.world_size,
                "device_name": None if s.device_name is None else plain(s.device_name, 200),
            }
            for s in report.sources[:MAX_LISTED]
        ],
        "sources_total": len(report.sources),
        "warnings": [plain(w, _TEXT_LIMIT) for w in report.warnings[:MAX_LISTED]],
        "warnings_total": len(report.warnings),
        "picture": None if report.picture is None else picture_data(report.picture),
    }


def shown_devices(devices: Sequence[DeviceReport]) -> list[DeviceReport]:
    """All in their order; where there are too many, those with the largest idle share."""
    if len(devices) <= MAX_DEVICES:
        return list(devices)
    return sorted(devices, key=lambda d: -int(d.idle_ns) / max(_window(d), 1))[:MAX_DEVICES]


def _window(device: DeviceReport) -> int:
    return int(device.window[1]) - int(device.window[0])


def _accounts() -> list[dict[str, Any]]:
    """Every account in ledger order, and what it means."""
    return [
        {
            "name": account.name,
            "busy": account.busy,
            "cause": account.cause,
            "meaning": MEANING.get(account.name, "kernels of this kind"),
        }
        for account in ACCOUNTS
    ]


def _device(device: DeviceReport, columns: int) -> dict[str, Any]:
    return {
        "title": device_title(device.rank, device.device),
        "name": None if device.name is None else plain(device.name, 200),
        "window_ns": _window(device),
        "window_source": device.window_source,
        "window_how": plain(device.window_how, _TEXT_LIMIT),
        "busy_ns": int(device.busy_ns),
        "idle_ns": int(device.idle_ns),
        "steps": {
            "count": len(device.step_ns),
            "median_ns": median_ns(device.step_ns),
            "p95_ns": p95_ns(device.step_ns),
        },
        "accounts": [
            {"account": a.account, "cause": a.cause, "ns": int(a.ns), "share": float(a.share)}
            for a in device.accounts
        ],
        "chart": _chart(device, columns),
    }


def _chart(device: DeviceReport, columns: int) -> dict[str, Any]:
    """The steps, each a column; where there are more than ``columns``, equal runs of steps.

    A column is [first step, steps in it, index of its longest step, ns of that, ns by account
    summed over its steps]; ``accounts`` names the last part's entries.
    """
    n = len(device.by_step)
    size = max(1, -(-n // columns))
    names = sorted({a for step in device.by_step for a in step}, key=lambda a: INDEX[a])
    rows = []
    for first in range(0, n, size):
        steps = range(first, min(first + size, n))
        longest = max(steps, key=lambda i: device.step_ns[i])
        sums = [sum(int(device.by_step[i].get(name, 0)) for i in steps) for name in names]
        rows.append([first, len(steps), longest, int(device.step_ns[longest]), sums])
    return {"size": size, "accounts": names, "columns": rows}


def _finding(finding: FindingReport) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "cause": finding.cause,
        "title": plain(finding.title, _TEXT_LIMIT),
        "lost_ns": int(finding.lost_ns),
        "lost_ns_per_step": int(finding.lost_ns_per_step),
        "share": float(finding.share),
        "gain_upper_bound": float(finding.gain_upper_bound),
        "accounts": {name: int(ns) for name, ns in finding.accounts.items()},
        "evidence": _sentences(finding.evidence),
        "remedies": [
            {"id": r.id, "numerics": r.numerics, "text": plain(r.text, _TEXT_LIMIT)}
            for r in finding.remedies
        ],
        "disproof": plain(finding.disproof, _TEXT_LIMIT),
        "notes": _sentences(finding.notes),
        "devices": [plain(d, 100) for d in finding.devices[:_MAX_NAMED]],
        "devices_total": len(finding.devices),
    }


def _sentences(texts: Sequence[str]) -> list[str]:
    shown = [plain(text, _TEXT_LIMIT) for text in texts[:_MAX_SENTENCES]]
    if len(texts) > _MAX_SENTENCES:
        shown.append(f"and {len(texts) - _MAX_SENTENCES} more, see --json")
    return shown
