"""The report as JSON: schema "whyidle.report/1", described by report.schema.json beside this file.

The names listed in the schema as required are stable: a script may rely on them. The other keys
are extra. The same report always gives the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whyidle import __version__
from whyidle.reports.model import DeviceReport, FindingReport, Report

SCHEMA = "whyidle.report/1"


def to_dict(report: Report) -> dict[str, Any]:
    """The report as plain dicts, lists, strings and numbers; times in ns, shares in [0, 1]."""
    return {
        "schema": SCHEMA,
        "whyidle": __version__,
        "sources": [
            {
                "path": source.path,
                "format": source.format,
                "rank": source.rank,
                "world_size": source.world_size,
                "device_name": source.device_name,
            }
            for source in report.sources
        ],
        "devices": [_device(device) for device in report.devices],
        "findings": [_finding(finding) for finding in report.findings],
        "verdict": {
            "kind": report.verdict.kind,
            "cause": report.verdict.cause,
            "sentence": report.verdict.sentence,
        },
        "warnings": list(report.warnings),
        "kernels": [
            {
                "name": kernel.name,
                "account": kernel.account,
                "count": int(kernel.count),
                "ns": int(kernel.ns),
                "median_ns": int(kernel.median_ns),
            }
            for kernel in report.kernels
        ],
    }


def dumps(tree: dict[str, Any]) -> str:
    """Serialise: ASCII only, so that it is the same bytes under every encoding, and no NaN.

    Raises ValueError on NaN or infinity, which no valid report holds.
    """
    return json.dumps(tree, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def write_json(report: Report, path: str | Path) -> None:
    """Write the report to ``path``. Raises OSError where that is not possible."""
    text = dumps(to_dict(report))  # complete before the file is touched
    Path(path).write_text(text, encoding="ascii")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the report."""
    text = Path(__file__).with_name("report.schema.json").read_text(encoding="utf-8")
    tree: dict[str, Any] = json.loads(text)
    return tree


def median_ns(values: tuple[int, ...]) -> int | None:
    """Median, the mean of the middle two (rounded down) for an even count; None of nothing."""
    if not values:
        return None
    ordered = sorted(int(v) for v in values)
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) // 2


def p95_ns(values: tuple[int, ...]) -> int | None:
    """95th percentile by nearest rank: the smallest value that 95 % of all values do not exceed.

    No interpolation (Hyndman and Fan 1996, definition 1): it is always one of the values, and the
    maximum where there are fewer than 20. None of nothing.
    """
    if not values:
        return None
    ordered = sorted(int(v) for v in values)
    return ordered[-(-95 * len(ordered) // 100) - 1]


def _device(device: DeviceReport) -> dict[str, Any]:
    return {
        "rank": device.rank,
        "device": int(device.device),
        "name": device.name,
        "window_ns": [int(device.window[0]), int(device.window[1])],
        "window_source": device.window_source,
        "window_how": device.window_how,
        "busy_ns": int(device.busy_ns),
        "idle_ns": int(device.idle_ns),
        "activity_span_ns": [int(device.activity_span[0]), int(device.activity_span[1])],
        "activity_busy_ns": int(device.activity_busy_ns),
        "steps": {
            "count": len(device.step_ns),
            "median_ns": median_ns(device.step_ns),
            "p95_ns": p95_ns(device.step_ns),
            "ns": [int(ns) for ns in device.step_ns],
        },
        "accounts": [
            {
                "account": line.account,
                "cause": line.cause,
                "ns": int(line.ns),
                "share": float(line.share),
            }
            for line in device.accounts
        ],
        "by_step": [{account: int(ns) for account, ns in step.items()} for step in device.by_step],
    }


def _finding(finding: FindingReport) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "cause": finding.cause,
        "title": finding.title,
        "lost_ns": int(finding.lost_ns),
        "lost_ns_per_step": int(finding.lost_ns_per_step),
        "share": float(finding.share),
        "gain_upper_bound": float(finding.gain_upper_bound),
        "accounts": {account: int(ns) for account, ns in finding.accounts.items()},
        "evidence": list(finding.evidence),
        "remedies": [
            {"id": remedy.id, "numerics": remedy.numerics, "text": remedy.text}
            for remedy in finding.remedies
        ],
        "disproof": finding.disproof,
        "notes": list(finding.notes),
        "devices": list(finding.devices),
    }
