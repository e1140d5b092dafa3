"""R01: the host launches too slowly for the device: too little work in each launch."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.ledger.accounts import INDEX
from whyidle.timeline import intervals
from whyidle.timeline.columns import I32, I64, Bool, DeviceKind, HostKind

# XProf's "kernel launch" verdicts: from 3 % of the step moderate, from 15 % high (rules.tsv R01).
MODERATE_SHARE = 0.03
HIGH_SHARE = 0.15
# Above this the host side cannot win anything worth it (rules.tsv R01, rf-detr#1492).
BUSY_ENOUGH = 0.90
# A queue piece up to this long is launch latency; longer ones wait for something. Ours.
LAUNCH_LATENCY_NS = 20_000
# A single piece of host work this long is no launch overhead, unless it recurs each step. Ours.
LONG_PIECE_NS = 10_000_000
# Annotated phases are named only if they hold this part of the loss: backward runs on a thread
# that they do not reach. Ours.
PHASES_SHARE = 0.3

_HOST = ("idle.dispatch", "idle.python", "idle.optimizer")


def r01_host_bound(evidence: Evidence) -> Finding | None:
    """The device waits for the host to launch.

    Claims what dispatch, Python, the optimizer's host side and launch latency nobody else has
    claimed. Fires where that is ``MODERATE_SHARE`` of the window or more and the device is busy
    less than ``BUSY_ENOUGH`` of it (both rules.tsv R01). One-off long calls (start-up, first use
    of a library) are left out, for launching faster would not shorten them.
    """
    ledger = evidence.ledger
    if ledger.busy_ns >= BUSY_ENOUGH * ledger.window_ns:
        return None
    claims = evidence.accounts(*_HOST) & ~_one_off(evidence)
    claims |= _launch_latency(evidence)
    lost = evidence.ns(claims)
    if not worth(evidence, lost, MODERATE_SHARE):
        return None
    by_account = evidence.by_account(claims)
    python = by_account.get("idle.python", 0)
    return finding(
        evidence,
        "R01",
        "parallelism",
        "The GPU waits for Python between operators"
        if python > 0.5 * lost
        else "Host-bound: the GPU waits for kernel launches",
        claims,
        [*_amounts(evidence, lost, by_account), *_rates(evidence), *_where(evidence, claims)],
        _REMEDIES,
        "Double the micro-batch: if the step takes twice as long, the host was not the limit.",
        notes=_notes(evidence),
    )


_REMEDIES = (
    Remedy(
        "compile",
        "approximate",
        'torch.compile(model, mode="reduce-overhead"): fewer, fused kernels, launched as one CUDA '
        "graph (rounding may change in the last digits).",
    ),
    Remedy(
        "cuda-graph",
        "exact",
        "Capture the step with torch.cuda.make_graphed_callables where shapes are static: one "
        "launch instead of all of them.",
    ),
    Remedy(
        "larger-micro-batch",
        "changes training",
        "A larger micro-batch gives each launch more work; with the same global batch (fewer "
        "accumulation steps) only rounding changes, except for BatchNorm.",
    ),
    Remedy(
        "fused-operators",
        "approximate",
        "Fused operators (scaled_dot_product_attention, fused norms, a fused optimizer) and no "
        "Python loops over layers or samples.",
    ),
)


def _one_off(evidence: Evidence) -> Bool:
    """Long pieces whose host event is long in fewer than two steps."""
    seg, ledger = evidence.ledger.segments, evidence.ledger
    long = (seg.ns >= LONG_PIECE_NS) & evidence.accounts(*_HOST)
    if not long.any():
        return long
    rows = np.flatnonzero(long)
    held = seg.host[rows]
    name = np.where(held >= 0, evidence.timeline.host.name[held], -1)
    step = np.searchsorted(ledger.steps.start, seg.start[rows], side="right")
    seen = np.unique(np.stack([name, step]), axis=1)[0]
    recurring = [
        n for n, count in zip(*np.unique(seen, return_counts=True), strict=True) if count >= 2
    ]
    long[rows] = ~np.isin(name, recurring)
    return long


def _launch_latency(evidence: Evidence) -> Bool:
    seg = evidence.ledger.segments
    return evidence.accounts("idle.queue") & (seg.ns <= LAUNCH_LATENCY_NS) & (seg.launch >= 0)


def _amounts(evidence: Evidence, lost: int, by_account: dict[str, int]) -> list[str]:
    ledger = evidence.ledger
    share = lost / ledger.window_ns
    grade = "high" if share >= HIGH_SHARE else "moderate"
    words = {
        "idle.dispatch": "in operators and launch calls",
        "idle.python": "in Python between operators",
        "idle.optimizer": "in the optimizer's host side",
        "idle.queue": "in launch latency",
    }
    parts = [
        f"{wording.per_step(by_account[a], ledger)} {text}"
        for a, text in words.items()
        if by_account.get(a)
    ]
    return [
        f"The GPU is busy {wording.percent(ledger.busy_ns / ledger.window_ns)} of the time; "
        f"{wording.percent(share)} it waits for launches ({grade} by XProf's grades): "
        f"{wording.listed(parts)}."
    ]


def _rates(evidence: Evidence) -> list[str]:
    """Kernels a step, their median length, and how far apart the host launches them."""
    ledger, device, host = evidence.ledger, evidence.timeline.device, evidence.timeline.host
    low, high = ledger.window
    inside = (device.device == ledger.device) & (device.start < high) & (device.end > low)
    kernels = np.flatnonzero(inside & (device.kind == DeviceKind.KERNEL))
    if not len(kernels):
        return []
    length = device.end[kernels] - device.start[kernels]
    said = f"{wording.count_per_step(len(kernels), 'kernels', ledger)}, the median one runs "
    said += wording.ns(float(np.median(length)))
    launches = intervals.distinct(device.launch[kernels])
    apart = _apart(host.thread[launches[launches >= 0]], host.start[launches[launches >= 0]])
    if len(apart):
        said += f"; the host needs {wording.ns(float(np.median(apart)))} from launch to launch"
        said += " in the median"
    return [said + "."]


def _apart(thread: I32, start: I64) -> I64:
    """Times between consecutive launches of the same thread."""
    order = np.lexsort((start, thread))
    same = thread[order][1:] == thread[order][:-1]
    apart: I64 = np.diff(start[order])[same]
    return apart


def _where(evidence: Evidence, claims: Bool) -> list[str]:
    """Which operators and code lines held the host meanwhile."""
    seg = evidence.ledger.segments
    said = []
    rows = np.flatnonzero(claims & (seg.host >= 0))
    python = rows[seg.account[rows] == INDEX["idle.python"]]
    if found := places.code_lines(evidence, seg.host[rows], seg.ns[rows])[:3]:
        said.append(f"Code lines that held the host: {places.told(evidence, found)}.")
    else:
        found = places.phases(evidence, seg.host[rows], seg.ns[rows])[:3]
        if sum(p.ns for p in found) >= PHASES_SHARE * evidence.ns(claims):
            said.append(f"Annotated phases that held the host: {places.told(evidence, found)}.")
    if found := places.python_functions(evidence, seg.host[python], seg.ns[python])[:4]:
        said.append(f"Python functions it spent that time in: {places.told(evidence, found)}.")
    rest = rows[seg.account[rows] != INDEX["idle.python"]]
    if found := places.operators(evidence, seg.host[rest], seg.ns[rest])[:3]:
        said.append(f"Operators that held the host: {places.told(evidence, found)}.")
    return said


def _notes(evidence: Evidence) -> tuple[str, ...]:
    timeline = evidence.timeline
    if timeline.has_python:
        calls = int((timeline.host.kind == HostKind.PYTHON).sum())
        return (
            f"The trace records {calls:,} Python calls (with_stack=True), which slows the host: "
            "without the profiler this loss is smaller.",
        )
    return ("Profiling slows each operator on the host: without it this loss is smaller.",)
