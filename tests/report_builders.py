"""Reports made by hand, for the tests of the report's faces."""

from __future__ import annotations

from whyidle.causes.evidence import Remedy
from whyidle.ledger.accounts import ACCOUNTS, INDEX
from whyidle.reports.model import (
    AccountLine,
    DeviceReport,
    FindingReport,
    KernelLine,
    Report,
    Verdict,
)
from whyidle.timeline.columns import Source

MS = 1_000_000
STEP = {
    "compute.matmul": 40 * MS,
    "compute.elementwise": 15 * MS,
    "compute.reduction": 5 * MS,
    "copy.h2d": 3 * MS,
    "idle.input": 30 * MS,
    "idle.dispatch": 6 * MS,
    "idle.unattributed": 1 * MS,
}


def device(
    steps: list[dict[str, int]],
    rank: int | None = 0,
    index: int = 0,
    name: str | None = "Test GPU",
    source: str = "steps",
) -> DeviceReport:
    """A device whose ledger is the sum of ``steps`` (ns by account)."""
    start = 1_000 * MS
    totals: dict[str, int] = {}
    for step in steps:
        for account, ns in step.items():
            totals[account] = totals.get(account, 0) + ns
    window = sum(totals.values())
    lines = tuple(
        AccountLine(name, ACCOUNTS[INDEX[name]].cause, totals[name], totals[name] / window)
        for name in sorted(totals, key=lambda n: INDEX[n])
    )
    busy = sum(ns for account, ns in totals.items() if ACCOUNTS[INDEX[account]].busy)
    return DeviceReport(
        rank=rank,
        device=index,
        name=name,
        window=(start, start + window),
        window_source=source,
        window_how="made by hand",
        busy_ns=busy,
        idle_ns=window - busy,
        activity_span=(start, start + window),
        activity_busy_ns=busy,
        step_ns=tuple(sum(step.values()) for step in steps),
        accounts=lines,
        by_step=tuple(steps),
    )


def finding(
    title: str = "The data loader runs in the main process", **changes: object
) -> FindingReport:
    """A finding of 30 ms a step; ``changes`` replace its fields."""
    fields: dict[str, object] = {
        "rule": "R17",
        "cause": "input",
        "title": title,
        "lost_ns": 120 * MS,
        "lost_ns_per_step": 30 * MS,
        "share": 0.3,
        "gain_upper_bound": 0.3,
        "accounts": {"idle.input": 120 * MS},
        "evidence": ("first line of evidence", "second line", "third line", "fourth line"),
        "remedies": (
            Remedy("num_workers", "exact", "Set num_workers to the cores that are free."),
            Remedy("decode", "approximate", "Decode with a faster library."),
            Remedy("third", "changes training", "A third one."),
        ),
        "disproof": "The wait stays with more workers.",
        "devices": ("rank 0 GPU 0",),
    }
    return FindingReport(**{**fields, **changes})  # type: ignore[arg-type]


def report(
    devices: tuple[DeviceReport, ...] | None = None,
    findings: tuple[FindingReport, ...] | None = None,
    verdict: Verdict | None = None,
    warnings: tuple[str, ...] = ("trace.json: something to know",),
) -> Report:
    """A report over one device and four equal steps, unless told otherwise."""
    return Report(
        sources=(Source("trace.json", "kineto", 0, 1, "Test GPU"),),
        properties=(),
        devices=(device([dict(STEP)] * 4),) if devices is None else devices,
        findings=(finding(),) if findings is None else findings,
        verdict=verdict
        or Verdict("finding", "input", "Input: the GPU waits 30.0 % of the time for batches."),
        warnings=warnings,
        kernels=(KernelLine("sgemm", "compute.matmul", 40, 160 * MS, 4 * MS),),
    )


def many(ranks: int) -> Report:
    """One device a rank; rank r waits r ms longer for input than rank 0."""
    return report(
        devices=tuple(
            device([{**STEP, "idle.input": (30 + r) * MS}] * 4, rank=r) for r in range(ranks)
        )
    )
