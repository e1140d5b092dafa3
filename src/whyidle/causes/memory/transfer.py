"""Copies from the host that hold up the device: R54, R55."""

from __future__ import annotations

import numpy as np

from whyidle.causes import copies, places, wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.segments import held_by, of_activity
from whyidle.timeline.columns import Bool, HostKind
from whyidle.timeline.select import events_named, outermost, under

# From this share of the step copies are worth changing (rules.tsv R54, by XProf's grades).
PAGEABLE_SHARE = 0.05

_COPY_OPERATOR = r"^aten::(copy_|_copy_from|_to_copy|to)$"
_SYNCHRONIZE = r"(Stream|Device|Event)_?Synchronize"


def r54_pageable_copy(evidence: Evidence) -> Finding | None:
    """Batches are copied from pageable memory, which blocks the host and cannot overlap.

    Claims the idle time in which the host is inside such a copy, and the time in which only such a
    copy runs, from ``PAGEABLE_SHARE`` of the window. An upper bound: all of it can be hidden only
    where copies from pinned memory overlap compute. What the host loses after the copy is not in.
    """
    ledger, seg = evidence.ledger, evidence.ledger.segments
    pageable = copies.to_device(evidence, "pageable")
    if not pageable.any():
        return None
    blocked = evidence.accounts("idle.transfer") & held_by(evidence, _around(evidence, pageable))
    copying = evidence.accounts("copy.h2d") & of_activity(evidence, pageable)
    claims = blocked | copying
    if not worth(evidence, evidence.ns(claims), PAGEABLE_SHARE):
        return None
    rows = np.flatnonzero(claims)
    host = np.where(seg.host[rows] >= 0, seg.host[rows], seg.launch[rows])
    said = [
        f"The GPU idles {wording.per_step(evidence.ns(blocked), ledger)} while the host is blocked "
        f"in copies from pageable memory, and runs nothing but such copies "
        f"{wording.per_step(evidence.ns(copying), ledger)}.",
        f"Memcpy HtoD (Pageable -> Device): {copies.told(evidence, pageable)} on the GPU; "
        f"{_held(evidence, pageable)}.",
    ]
    if found := places.best(evidence, host, seg.ns[rows]):
        said.append(f"Launched at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R54",
        "memory",
        "Copies from pageable memory block the host",
        claims,
        said,
        (
            Remedy(
                "pin-memory",
                "exact",
                "Set DataLoader(pin_memory=True) and copy with .to(device, non_blocking=True); "
                "for other tensors, reuse one pinned buffer.",
            ),
            Remedy(
                "copy-fewer-bytes",
                "exact",
                "Copy what is smaller (uint8 images, token ids) and convert on the GPU.",
            ),
        ),
        "Pin the memory: if the step stays as long, the copies were hidden or the wait was for "
        "something else (pinning helps nothing where copies are small).",
        notes=("An upper bound: the copy itself still takes time, hidden only behind compute.",),
    )


def r55_blocking_pinned_copy(evidence: Evidence) -> Finding | None:
    """The host waits for copies from pinned memory, for want of ``non_blocking=True``.

    Claims the idle time in which the host sits in a synchronize inside such a copy, from
    ``MIN_SHARE`` of the window (ours; rules.tsv R55 gives no threshold).
    """
    ledger, seg = evidence.ledger, evidence.ledger.segments
    pinned = copies.to_device(evidence, "pinned")
    if not pinned.any():
        return None
    timeline = evidence.timeline
    around = _around(evidence, pinned)
    waits = events_named(timeline, _SYNCHRONIZE, (HostKind.RUNTIME,)) & under(
        evidence.nesting, around
    )
    blocking = _blocking_calls(evidence, pinned)
    claims = evidence.accounts("idle.transfer", "idle.sync") & held_by(evidence, waits | blocking)
    if not worth(evidence, evidence.ns(claims), MIN_SHARE):
        return None
    rows = np.flatnonzero(claims)
    said = [
        f"The GPU idles {wording.per_step(evidence.ns(claims), ledger)} while the host waits for "
        "copies from pinned memory that need no wait.",
        f"{wording.count_per_step(int(waits.sum()), 'synchronize calls', ledger)} follow "
        f"{copies.told(evidence, pinned)} from pinned memory.",
    ]
    if found := places.best(evidence, seg.host[rows], seg.ns[rows]):
        said.append(f"Most at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R55",
        "memory",
        "The host waits for copies from pinned memory (non_blocking is missing)",
        claims,
        said,
        (
            Remedy(
                "non-blocking",
                "exact",
                "Copy with .to(device, non_blocking=True). Only from host to device: what is "
                "copied back must be waited for before it is read.",
            ),
        ),
        "If the pinned buffer is overwritten right after the copy, the wait is needed.",
    )


def _around(evidence: Evidence, chosen: Bool) -> Bool:
    """The calls that launched the copies, their copy operators, and all inside those."""
    timeline, nesting = evidence.timeline, evidence.nesting
    calls = copies.calls(evidence, chosen)
    operators = events_named(timeline, _COPY_OPERATOR, (HostKind.OPERATOR,))
    holder = outermost(nesting, operators)[calls]
    roots = calls.copy()
    roots[holder[holder >= 0]] = True
    return under(nesting, roots)


def _blocking_calls(evidence: Evidence, chosen: Bool) -> Bool:
    """Copies launched by a call that is itself blocking (cudaMemcpy)."""
    return copies.calls(evidence, chosen) & ~events_named(evidence.timeline, r"Async")


def _held(evidence: Evidence, chosen: Bool) -> str:
    host = evidence.timeline.host
    calls = copies.calls(evidence, chosen)
    length = int((host.end[calls] - host.start[calls]).sum())
    return f"the calls hold the host {wording.per_step(length, evidence.ledger)}"
