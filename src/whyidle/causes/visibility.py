"""Cause "visibility": looking at the run is what slows it."""

from __future__ import annotations

import numpy as np

from whyidle.causes import wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.timeline.columns import HostKind


def r96_profiler_left_on(evidence: Evidence) -> Finding | None:
    """The profiler's own work holds up the host while the device has nothing to run.

    Claims ``idle.profiler``. Source (rules.tsv R96): no threshold; ``MIN_SHARE`` of the window,
    ours. What tracing costs inside each operator cannot be seen in a trace and is not claimed.
    """
    ledger, timeline = evidence.ledger, evidence.timeline
    claims = evidence.accounts("idle.profiler")
    lost = evidence.ns(claims)
    if not worth(evidence, lost):
        return None
    said = [
        f"The GPU idles {wording.per_step(lost, ledger)} while the profiler works"
        f"{_by_name(evidence)}.",
        f"The trace holds {len(timeline.host):,} host events over "
        f"{len(ledger.steps)} recorded step{'s' if len(ledger.steps) != 1 else ''}.",
    ]
    if timeline.has_python:
        calls = int((timeline.host.kind == HostKind.PYTHON).sum())
        said.append(
            f"{calls:,} of them are Python calls (with_stack=True): each costs time that the "
            "trace cannot show."
        )
    return finding(
        evidence,
        "R96",
        "visibility",
        "The profiler itself keeps the GPU waiting",
        claims,
        said,
        (
            Remedy(
                "profiler-schedule",
                "exact",
                "Profile a few steps only: torch.profiler.schedule(wait=..., warmup=2, active=5, "
                "repeat=1), and not the whole run.",
            ),
            Remedy(
                "light-profile",
                "exact",
                "with_stack, record_shapes and profile_memory off unless they are needed.",
            ),
        ),
        "Compare the step time with the profiler off: without this recording the loss is gone.",
        notes=("This loss exists only while the profiler runs.",),
    )


def _by_name(evidence: Evidence) -> str:
    """The profiler's own rows in the window, by name and total length."""
    host, names = evidence.timeline.host, evidence.timeline.names
    low, high = evidence.ledger.window
    rows = np.flatnonzero((host.kind == HostKind.OVERHEAD) & (host.start < high) & (host.end > low))
    if not len(rows):
        return ""
    unique, group = np.unique(host.name[rows], return_inverse=True)
    total = np.zeros(len(unique), np.int64)
    np.add.at(total, group, host.end[rows] - host.start[rows])
    top = np.argsort(-total, kind="stable")[:3]
    listed = [f"{wording.short(names[unique[i]])} {wording.ns(int(total[i]))}" for i in top]
    return f" (in the window: {wording.listed(listed)})"


RULES = (r96_profiler_left_on,)
