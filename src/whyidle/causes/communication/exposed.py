"""R63: collectives run while nothing computes."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.communication.collectives import collectives, exposed, told
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.timeline import intervals

# XProf's grades of time in collectives: all-reduce from 6 % of the step, collectives together from
# 30 % high (rules.tsv R63). The lower one decides here, for any kind: only exposed time is counted.
MODERATE_SHARE = 0.06
HIGH_SHARE = 0.30


def r63_exposed_communication(evidence: Evidence) -> Finding | None:
    """A collective runs, or the host waits in one, and nothing computes meanwhile.

    Claims ``comm.exposed``, ``idle.comm`` and the queued work that waits behind a collective, from
    ``MODERATE_SHARE`` of the window (XProf, rules.tsv R63). One rank alone does not tell transfer
    from waiting for a late rank.
    """
    ledger, seg = evidence.ledger, evidence.ledger.segments
    chosen = collectives(evidence)
    claims = exposed(evidence, chosen) | evidence.accounts("comm.", "idle.comm")
    lost = evidence.ns(claims)
    if not worth(evidence, lost, MODERATE_SHARE):
        return None
    share = lost / ledger.window_ns
    grade = "high" if share >= HIGH_SHARE else "moderate"
    alone = evidence.ns(claims & ~seg.idle)
    waits = evidence.ns(claims & seg.idle)
    said = [
        f"Collectives run with no kernel beside them {wording.per_step(alone, ledger)}"
        + (f", and the GPU idles {wording.per_step(waits, ledger)} for them" if waits else "")
        + f": {wording.percent(share)} of the time ({grade} by XProf's grades).",
        *_overlap(evidence),
    ]
    if chosen.any():
        said.append(f"{told(evidence, chosen)}.")
    rows = np.flatnonzero(claims)
    host = np.where(seg.idle[rows] & (seg.host[rows] >= 0), seg.host[rows], seg.launch[rows])
    found = places.best(evidence, host, seg.ns[rows])
    # The autograd thread has no code lines: lines that launched little would mislead.
    if 2 * sum(p.ns for p in found) > lost:
        said.append(f"Launched at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R63",
        "communication",
        "Communication is not hidden behind computation",
        claims,
        said,
        _REMEDIES,
        "Run one rank alone: if the step stays as long, communication is not the cause. If other "
        "ranks enter the collectives later than this one, the late rank is the cause, not the "
        "network.",
        notes=_notes(evidence),
    )


_REMEDIES = (
    Remedy(
        "overlap",
        "exact",
        "Let collectives start while the backward pass still runs: DDP's bucket_cap_mb smaller "
        "(or larger, if there are many), static_graph or gradient_as_bucket_view, FSDP's "
        "backward_prefetch; no synchronize in between.",
    ),
    Remedy(
        "fewer-bytes",
        "approximate",
        "Reduce gradients in bf16 (a communication hook), or shard so that fewer bytes cross "
        "the slow link.",
    ),
    Remedy(
        "more-work-per-step",
        "changes training",
        "More work between two reductions: gradient accumulation under no_sync, or a larger "
        "batch on each GPU.",
    ),
)


def _overlap(evidence: Evidence) -> list[str]:
    device, ledger = evidence.timeline.device, evidence.ledger
    chosen = collectives(evidence)
    if not chosen.any():
        return []
    union = intervals.union(device.start[chosen], device.end[chosen])
    total = intervals.total(intervals.clip(union, *ledger.window))
    hidden = max(total - ledger.ns("comm."), 0)
    return [
        f"Collectives run {wording.per_step(total, ledger)} in all; "
        f"{wording.percent(hidden / total if total else 0.0)} of that beside kernels."
    ]


def _notes(evidence: Evidence) -> tuple[str, ...]:
    if evidence.ledger.ns("comm.exposed.transfer", "comm.exposed.wait"):
        return ()
    return (
        "One rank's trace cannot tell the transfer from waiting for a late rank: record all ranks "
        "at the same steps and give them together.",
    )
