"""X01 (not in rules.tsv): the work was launched in time, and the device idles all the same."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.timeline import intervals
from whyidle.timeline.columns import I32, I64, Bool, DeviceKind, HostKind
from whyidle.timeline.select import events_named, of_host

# Below this share of the window waiting work is not told. Ours, higher than elsewhere, for the
# trace does not say what the device waits for.
QUEUED_SHARE = 0.10

_BLOCKING = r"(?i)Memcpy|Synchronize"
_GRAPH = r"GraphLaunch"


def x01_queued_work_waits(evidence: Evidence) -> Finding | None:
    """The device idles although its next work had been launched before.

    It waits for an event, another stream or device, a host function in a CUDA graph; or it works
    on what the trace does not show (kernels inside CUDA graphs may be missing). The trace alone
    cannot tell which, so the finding says what surrounds the waits: whose work ends them, and in
    which copies and synchronize calls the host was blocked meanwhile. Fires from ``QUEUED_SHARE``.
    """
    ledger = evidence.ledger
    claims = evidence.accounts("idle.queue")
    if not worth(evidence, evidence.ns(claims), QUEUED_SHARE):
        return None
    blocked = _blocked(evidence, claims)
    title = "The GPU idles with its next work already launched"
    if blocked:
        title += ", while the host is blocked in copies and synchronizations"
    return finding(
        evidence,
        "X01",
        "parallelism",
        title,
        claims,
        [
            f"{wording.per_step(evidence.ns(claims), ledger)} the GPU had nothing to run although "
            "the call that launched its next work had returned: launching faster gains nothing.",
            *blocked,
            *_ended_by(evidence, claims),
        ],
        (
            Remedy(
                "unblock-host",
                "exact",
                "Make the blocking copies asynchronous (pinned memory, non_blocking=True; read the "
                "result a step later) so that the host can run ahead.",
            ),
            Remedy(
                "see-inside-graphs",
                "config",
                "Record the same steps with `nsys profile --cuda-graph-trace=node` to see what "
                "runs, or waits, inside the CUDA graphs and on which event.",
            ),
        ),
        "If the device in truth ran kernels that the trace lacks, this time is busy and nothing is "
        "lost: a recording that shows the nodes of CUDA graphs decides.",
    )


def _ended_by(evidence: Evidence, claims: Bool) -> list[str]:
    """What work ended the waits: nodes of CUDA graphs, collectives, copies or kernels."""
    seg, timeline = evidence.ledger.segments, evidence.timeline
    total = evidence.ns(claims)
    graph = of_host(events_named(timeline, _GRAPH, (HostKind.RUNTIME,)), seg.launch) & claims
    said = []
    if share := evidence.ns(graph) / total:
        said.append(
            f"{wording.percent(share)} of it ends with work launched as part of CUDA graphs; "
            "the trace does not show what they waited for."
        )
    rows = np.flatnonzero(claims & ~graph)
    if len(rows):
        name = timeline.device.name[seg.activity[rows]]
        unique, group = np.unique(name, return_inverse=True)
        ns = np.zeros(len(unique), np.int64)
        np.add.at(ns, group, seg.ns[rows])
        top = [i for i in np.argsort(-ns, kind="stable")[:3] if ns[i] > 0.05 * total]
        if top:
            work = [
                f"{wording.short(timeline.names[unique[i]], 60)} "
                f"({wording.per_step(int(ns[i]), evidence.ledger)})"
                for i in top
            ]
            said.append(f"Other waits end with {wording.listed(work)}.")
    return said


def _blocked(evidence: Evidence, claims: Bool) -> list[str]:
    """The copies and synchronize calls that the host sat in meanwhile, and where they are made."""
    timeline, seg, ledger = evidence.timeline, evidence.ledger.segments, evidence.ledger
    calls = np.flatnonzero(events_named(timeline, _BLOCKING, (HostKind.RUNTIME,)))
    if not len(calls):
        return []
    host = timeline.host
    waiting = intervals.union(seg.start[claims], seg.end[claims])
    index, piece = intervals.overlaps((host.start[calls], host.end[calls]), waiting)
    ns = np.minimum(host.end[calls[index]], waiting[1][piece])
    ns = ns - np.maximum(host.start[calls[index]], waiting[0][piece])
    at = calls[index].astype(np.int32)
    union = intervals.union(host.start[calls], host.end[calls])
    inside = intervals.total(intervals.intersect(waiting, union))
    if inside < 0.1 * intervals.total(waiting):
        return []
    said = [
        f"{wording.percent(inside / intervals.total(waiting))} of that time the host is blocked "
        f"in {_calls(evidence, at, ns)}.",
    ]
    if found := places.operators(evidence, at, ns)[:3]:
        said.append(f"Operators that make these calls: {places.told(evidence, found)}.")
    if found := (places.code_lines(evidence, at, ns) or places.phases(evidence, at, ns))[:3]:
        said.append(f"They are made at {places.told(evidence, found)}.")
    whole = intervals.total(intervals.clip(union, *ledger.window))
    said.append(f"In the whole window such calls hold the host {wording.per_step(whole, ledger)}.")
    return said


def _calls(evidence: Evidence, calls: I32, ns: I64) -> str:
    """Runtime calls by name and, of copies, direction and host memory."""
    timeline = evidence.timeline
    copies = timeline.device.kind == DeviceKind.MEMCPY
    copied = np.full(len(timeline.host), -1, np.int64)
    launch = timeline.device.launch[copies]
    copied[launch[launch >= 0]] = timeline.device.name[copies][launch >= 0]
    width = len(timeline.names) + 1
    pair = timeline.host.name[calls].astype(np.int64) * width + copied[calls] + 1
    unique, group = np.unique(pair, return_inverse=True)
    total = np.zeros(len(unique), np.int64)
    np.add.at(total, group, ns)
    said = []
    for i in np.argsort(-total, kind="stable")[:4]:
        if total[i] < 0.01 * total.sum():
            continue
        name, copy = int(unique[i]) // width, int(unique[i]) % width - 1
        what = f" [{timeline.names[copy]}]" if copy >= 0 else ""
        cost = wording.per_step(int(total[i]), evidence.ledger)
        said.append(f"{timeline.names[name]}{what} ({cost})")
    return wording.listed(said)
