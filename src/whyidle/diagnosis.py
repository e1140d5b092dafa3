"""The whole way: trace files -> timelines -> ledgers -> findings -> one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from whyidle.causes.evidence import Finding
from whyidle.causes.rules import find
from whyidle.causes.verdict import certain_part, judge
from whyidle.errors import WhyidleError
from whyidle.ledger.accounts import ACCOUNTS
from whyidle.ledger.build import build_ledgers
from whyidle.ledger.cpu import host_account, sentence
from whyidle.ledger.kinds import COMMUNICATION, busy_account
from whyidle.ledger.model import Ledger
from whyidle.readers import open_trace
from whyidle.readers.paths import trace_files
from whyidle.reports.model import (
    AccountLine,
    DeviceReport,
    FindingReport,
    KernelLine,
    Picture,
    Report,
)
from whyidle.reports.words import device_title
from whyidle.timeline.columns import DeviceProperties, Source, Timeline
from whyidle.timeline.nesting import Nesting, nest

Progress = Callable[[str, int, int], None]
_KERNELS_KEPT = 200
# With fewer of the profiler's events in the file, time without a record is no evidence of idling.
# Complete traces hold 0.89 to 1.0 of them by the reader's measure, sampled ones 0.01. Ours.
COMPLETE_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class RankResult:
    """What is kept of one trace file: small, whatever its size; the picture only on request."""

    source: Source
    properties: tuple[DeviceProperties, ...]
    devices: tuple[DeviceReport, ...]
    findings: tuple[tuple[int, Finding], ...]  # (index into devices, finding)
    kernels: tuple[KernelLine, ...]
    warnings: tuple[str, ...]
    missing: tuple[str, ...]  # kinds of evidence that the trace lacks
    partial: str | None = None  # why the file does not hold the whole recording, if so
    host: str | None = None  # where the host's time went, in a sentence, where no GPU was recorded
    picture: Picture | None = None


def diagnose(
    paths: Sequence[str | Path], progress: Progress | None = None, picture: bool = False
) -> Report:
    """Diagnose the traces at ``paths`` (files, directories, globs), one report for all ranks.

    ``progress`` is called with (file name, bytes read, bytes in all). ``picture`` keeps the
    timeline of the rank that is idle most, for drawing. Raises WhyidleError when a path given by
    name cannot be read; unreadable files found in a directory become warnings.
    """
    files, named = trace_files(paths)
    results: list[RankResult] = []
    refused: list[str] = []
    for path in files:
        try:
            results.append(_rank(path, progress, picture and len(files) == 1))
        except WhyidleError as error:
            if path in named:
                raise
            refused.append(f"left out: {error}")
    if not results:
        raise WhyidleError(refused[0].removeprefix("left out: "))
    report = combine(results, tuple(refused))
    if picture and len(files) > 1 and report.devices:
        report = replace(report, picture=_worst_picture(results, progress))
    return report


def _rank(path: Path, progress: Progress | None, picture: bool) -> RankResult:
    name = path.name
    timeline = open_trace(path, progress and (lambda done, size: progress(name, done, size)))
    return analyse(timeline, picture)


def analyse(timeline: Timeline, picture: bool = False) -> RankResult:
    """Ledgers and findings of one timeline."""
    nesting = nest(timeline.host, len(timeline.threads))
    ledgers = build_ledgers(timeline, nesting)
    partial = _partial(timeline)
    findings = tuple(
        (i, finding)
        for i, ledger in enumerate(() if partial else ledgers)
        for finding in find(timeline, nesting, ledger)
    )
    warnings = timeline.warnings + tuple(w for ledger in ledgers for w in ledger.warnings)
    if nesting.left_out.any():
        warnings += (
            f"{int(nesting.left_out.sum())} host events overlap others without nesting and are "
            "left out of the attribution",
        )
    if any(ledger.steps.source != "span" and len(ledger.steps) == 1 for ledger in ledgers):
        warnings += (
            "only one step was recorded: what belongs to every step cannot be told from start-up; "
            "record 5 to 20 after some that are not recorded",
        )
    return RankResult(
        timeline.source,
        timeline.devices,
        tuple(_device_report(timeline, ledger) for ledger in ledgers),
        findings,
        _kernels(timeline, ledgers),
        warnings,
        _missing(timeline, ledgers),
        partial,
        None if ledgers else _host_sentence(timeline, nesting),
        Picture(timeline, nesting, ledgers) if picture else None,
    )


def _partial(timeline: Timeline) -> str | None:
    """Why the file does not hold the whole recording; None where it does, as far as it tells."""
    if timeline.cut_off:
        # Kineto writes the host's rows before the device's: what is cut off is mostly kernels.
        return "the file is cut off, and what is missing would count as idle. Record it again"
    if timeline.recorded_share < COMPLETE_SHARE and len(timeline.device):
        share = 100 * timeline.recorded_share
        held = f"{share:.1f} %" if share >= 0.05 else "less than 0.1 %"
        return (
            f"the trace was sampled or filtered, it holds {held} of the events that the profiler "
            "recorded, and what is missing would count as idle. Give the file as torch.profiler "
            "exported it"
        )
    return None


def _first_partial(results: Sequence[RankResult]) -> str | None:
    """Why a file does not hold the whole recording, with its name where there are several."""
    for result in results:
        if result.partial:
            name = f"{Path(result.source.path).name}: " if len(results) > 1 else ""
            return f"{name}{result.partial}"
    return None


def _host_sentence(timeline: Timeline, nesting: Nesting) -> str | None:
    account = host_account(timeline, nesting)
    return None if account is None else sentence(account)


def _missing(timeline: Timeline, ledgers: tuple[Ledger, ...]) -> tuple[str, ...]:
    missing = []
    if not timeline.has_operators:
        missing.append("host operators (record with ProfilerActivity.CPU)")
    if len(timeline.device) and not (timeline.device.launch >= 0).any():
        missing.append("launch calls (CUDA runtime rows with correlation ids)")
    if ledgers and all(ledger.steps.source == "span" for ledger in ledgers):
        missing.append("steps (call profiler.step() after each step, with a schedule)")
    if not timeline.has_python:
        missing.append("Python frames (with_stack=True)")
    return tuple(missing)


def _device_report(timeline: Timeline, ledger: Ledger) -> DeviceReport:
    totals = ledger.by_account()
    table = ledger.by_step()
    window = ledger.window_ns
    properties = timeline.properties(ledger.device)
    lines = tuple(
        AccountLine(
            ACCOUNTS[i].name,
            _cause(timeline, ledger, int(i)),
            int(totals[i]),
            int(totals[i]) / window,
        )
        for i in np.flatnonzero(totals)
    )
    return DeviceReport(
        rank=ledger.rank,
        device=ledger.device,
        name=properties.name if properties else None,
        window=ledger.window,
        window_source=ledger.steps.source,
        window_how=ledger.steps.how,
        busy_ns=ledger.busy_ns,
        idle_ns=ledger.idle_ns,
        activity_span=ledger.activity_span,
        activity_busy_ns=ledger.activity_busy_ns,
        step_ns=tuple(int(n) for n in np.diff(ledger.step_edges())),
        accounts=lines,
        by_step=tuple(
            {ACCOUNTS[i].name: int(row[i]) for i in np.flatnonzero(row)} for row in table
        ),
    )


def _cause(timeline: Timeline, ledger: Ledger, account: int) -> str | None:
    """An account's cause. Queue time is communication's where most of it follows a collective."""
    if ACCOUNTS[account].name != "idle.queue":
        return ACCOUNTS[account].cause
    seg = ledger.segments
    queued = np.flatnonzero(seg.account == account)
    queued = queued[queued > 0]
    before = seg.activity[queued - 1]
    collective = np.array([bool(COMMUNICATION.search(n)) for n in timeline.names], np.bool_)
    follows = np.where(before >= 0, collective[timeline.device.name[before]], False)
    follows &= ~seg.idle[queued - 1]
    ns = seg.ns[queued]
    return "communication" if 2 * int(ns[follows].sum()) > int(ns.sum()) else "parallelism"


def _kernels(timeline: Timeline, ledgers: tuple[Ledger, ...]) -> tuple[KernelLine, ...]:
    """The device activities that took most time inside the windows, by name."""
    events = timeline.device
    inside = np.zeros(len(events), np.bool_)
    for ledger in ledgers:
        low, high = ledger.window
        inside |= (events.device == ledger.device) & (events.end > low) & (events.start < high)
    rows = np.flatnonzero(inside)
    if not len(rows):
        return ()
    ns = events.end[rows] - events.start[rows]
    order = np.argsort(events.name[rows], kind="stable")
    names, first, count = np.unique(events.name[rows][order], return_index=True, return_counts=True)
    total = np.add.reduceat(ns[order], first)
    lines = []
    for i in np.argsort(-total, kind="stable")[:_KERNELS_KEPT]:
        members = order[first[i] : first[i] + count[i]]
        lines.append(
            KernelLine(
                timeline.names[names[i]],
                busy_account(timeline.names[names[i]], int(events.kind[rows[members[0]]])),
                int(count[i]),
                int(total[i]),
                int(np.median(ns[members])),
            )
        )
    return tuple(lines)


def combine(results: Sequence[RankResult], refused: tuple[str, ...] = ()) -> Report:
    """One report of all ranks."""
    devices = tuple(device for result in results for device in result.devices)
    findings = _merged(results)
    warnings = tuple(dict.fromkeys(w for result in results for w in result.warnings)) + refused
    warnings += _twice(results)
    missing = tuple(dict.fromkeys(m for result in results for m in result.missing))
    properties = {p.index: p for result in results for p in result.properties}
    return Report(
        sources=tuple(result.source for result in results),
        properties=tuple(properties.values()),
        devices=devices,
        findings=findings,
        verdict=judge(
            devices,
            findings,
            missing,
            next((r.host for r in results if r.host), None),
            _first_partial(results),
        ),
        warnings=warnings,
        kernels=_merged_kernels(results),
        picture=results[0].picture if len(results) == 1 else None,
    )


def _twice(results: Sequence[RankResult]) -> tuple[str, ...]:
    """Ranks that several files claim to be: of several runs, or one file and its copy."""
    files: dict[int, list[str]] = {}
    for result in results:
        if result.source.rank is not None:
            files.setdefault(result.source.rank, []).append(Path(result.source.path).name)
    told = [
        f"rank {rank} is in {len(names)} files ({', '.join(names[:3])}): "
        "if they are of different runs, diagnose each run on its own"
        for rank, names in files.items()
        if len(names) > 1
    ]
    unnamed = sum(result.source.rank is None for result in results)
    if unnamed > 1:
        told.append(
            f"{unnamed} files name no rank and are taken as ranks of one run; to set runs beside "
            "each other use whyidle compare"
        )
    return tuple(told)


def _merged(results: Sequence[RankResult]) -> tuple[FindingReport, ...]:
    """Findings of one rule over all devices as one, told by the device that loses most."""
    found: dict[str, list[tuple[DeviceReport, Finding]]] = {}
    for result in results:
        for i, finding in result.findings:
            found.setdefault(finding.rule, []).append((result.devices[i], finding))
    windows = sum(d.window[1] - d.window[0] for r in results for d in r.devices)
    steps = sum(len(d.step_ns) for r in results for d in r.devices)
    many = sum(len(r.devices) for r in results) > 1
    merged = []
    for members in found.values():
        members.sort(key=lambda member: -member[1].lost_ns)
        worst_device, worst = members[0]
        accounts: dict[str, int] = {}
        for _, finding in members:
            for account, ns in finding.accounts.items():
                accounts[account] = accounts.get(account, 0) + ns
        lost = sum(f.lost_ns for _, f in members)
        gain = sum(f.gain_upper_bound * (d.window[1] - d.window[0]) for d, f in members) / windows
        evidence = worst.evidence
        if many and evidence:
            evidence = (f"{_where(worst_device)}: {evidence[0]}", *evidence[1:])
        merged.append(
            FindingReport(
                rule=worst.rule,
                cause=worst.cause,
                title=worst.title,
                lost_ns=lost,
                lost_ns_per_step=lost // steps,
                share=lost / windows,
                gain_upper_bound=min(gain, 1.0),
                accounts=accounts,
                evidence=evidence,
                remedies=worst.remedies,
                disproof=worst.disproof,
                notes=worst.notes,
                devices=tuple(_where(d) for d, _ in members),
            )
        )
    # What is lost for certain comes before what other kernels could save at most.
    return tuple(sorted(merged, key=lambda f: (certain_part(f) < 0.5, -f.lost_ns)))


def _where(device: DeviceReport) -> str:
    return device_title(device.rank, device.device)


def _merged_kernels(results: Sequence[RankResult]) -> tuple[KernelLine, ...]:
    if len(results) == 1:
        return results[0].kernels
    merged: dict[str, list[KernelLine]] = {}
    for result in results:
        for line in result.kernels:
            merged.setdefault(line.name, []).append(line)
    lines = [
        KernelLine(
            name,
            lines[0].account,
            sum(line.count for line in lines),
            sum(line.ns for line in lines),
            int(np.median([line.median_ns for line in lines])),
        )
        for name, lines in merged.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.ns)[:_KERNELS_KEPT])


def _worst_picture(results: Sequence[RankResult], progress: Progress | None) -> Picture | None:
    """Read the rank with the largest idle share once more, to draw it."""
    idle = [
        max((d.idle_ns / max(d.busy_ns + d.idle_ns, 1) for d in r.devices), default=-1.0)
        for r in results
    ]
    return _rank(Path(results[int(np.argmax(idle))].source.path), progress, True).picture
