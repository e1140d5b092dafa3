"""Cause "interruption": training stops for something else: checkpoints, validation, collections."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.ledger.accounts import ACCOUNTS
from whyidle.ledger.host import own_label
from whyidle.timeline import intervals
from whyidle.timeline.columns import I64, Bool, HostKind
from whyidle.timeline.select import events_named, of_host, outermost, under

# A checkpoint may cost 1 to 2 % of the time between saves (rules.tsv R97; NeMo aims below 2-5 %).
CHECKPOINT_SHARE = 0.02
# Validation above this share of wall time is long (rules.tsv R98).
EVALUATION_SHARE = 0.10

_COPIES = np.array([a.name.startswith("copy.") for a in ACCOUNTS])


@dataclass(frozen=True, eq=False)
class _Phase:
    """Outermost host events of one phase that touch the window: indices, and clipped lengths."""

    calls: I64
    ns: I64
    inside: Bool

    @property
    def total(self) -> int:
        return int(self.ns.sum())


def r97_blocking_checkpoint(evidence: Evidence) -> Finding | None:
    """The device idles, or only copies to the host, while a checkpoint is written.

    Fires where that is ``CHECKPOINT_SHARE`` of the window or more (rules.tsv R97: 1-2 % of the
    time between saves; the recording may hold more or fewer saves than its length would in
    training, so the evidence says how many steps between saves keep it below that).
    """
    seg = evidence.ledger.segments
    phase = _phase(evidence, "idle.checkpoint")
    copies = evidence.free & _COPIES[seg.account] & of_host(phase.inside, seg.launch)
    claims = evidence.accounts("idle.checkpoint") | copies
    lost = evidence.ns(claims)
    if not len(phase.calls) or not worth(evidence, lost, CHECKPOINT_SHARE):
        return None
    each = lost / len(phase.calls)
    step = _usual_step(evidence, phase)
    said = [
        f"{_times(len(phase.calls), 'checkpoint save')} in the window, "
        f"{wording.ns(phase.total / len(phase.calls))} each on the host; the GPU computes nothing "
        f"for {wording.ns(each)} of it.",
    ]
    if step > 0:
        apart = int(np.ceil(each / (CHECKPOINT_SHARE * step)))
        said.append(
            f"At {wording.ns(step)} for a step without a save, this stays below "
            f"{wording.percent(CHECKPOINT_SHARE)} of the time only if saves are {apart:,} or more "
            "steps apart."
        )
    said += _where(evidence, claims)
    return finding(
        evidence,
        "R97",
        "interruption",
        "Training waits while a checkpoint is written",
        claims,
        said,
        (
            Remedy(
                "async-checkpoint",
                "exact",
                "Copy the state to pinned host memory and write it from a background thread or "
                "process (torch.distributed.checkpoint.async_save); shard it over ranks.",
            ),
            Remedy(
                "local-first",
                "exact",
                "Write to a local disk first and upload from there in the background.",
            ),
            Remedy(
                "checkpoint-less-often",
                "config",
                "Save less often: at the interval where lost work after a failure and saving cost "
                "the same.",
            ),
        ),
        "If saves are much rarer in training than in this recording, the cost is smaller in "
        "proportion.",
    )


def r98_long_validation(evidence: Evidence) -> Finding | None:
    """Validation takes long, and the device idles in it.

    Fires where validation holds ``EVALUATION_SHARE`` of the window (rules.tsv R98) and the device
    idles ``MIN_SHARE`` of the window in it (ours). Only the idle time counts as lost.
    """
    ledger = evidence.ledger
    claims = evidence.accounts("idle.evaluation")
    lost = evidence.ns(claims)
    phase = _phase(evidence, "idle.evaluation")
    if not worth(evidence, lost) or phase.total < EVALUATION_SHARE * ledger.window_ns:
        return None
    said = [
        f"Validation holds {wording.percent(phase.total / ledger.window_ns)} of the window "
        f"({_times(len(phase.calls), 'call')}, {wording.ns(phase.total)}); the GPU idles "
        f"{wording.percent(lost / phase.total)} of that.",
        *_where(evidence, claims),
    ]
    return finding(
        evidence,
        "R98",
        "interruption",
        "Validation leaves the GPU idle",
        claims,
        said,
        (
            Remedy(
                "larger-eval-batch",
                "exact",
                "Validate with batches 2 to 4 times as large: no gradients are kept (exact but "
                "for metrics that depend on the batch).",
            ),
            Remedy(
                "validate-less",
                "changes training",
                "Validate less often or on a fixed subset; it changes only the signal by which "
                "models are chosen.",
            ),
            Remedy(
                "metrics-elsewhere",
                "exact",
                "Compute metrics in another process, from saved outputs.",
            ),
        ),
        "If early stopping or model choice needs each of these validations, it is no loss.",
    )


def r72_garbage_collection(evidence: Evidence) -> Finding | None:
    """Python's automatic garbage collection stops the host, and the device runs dry.

    Explicit ``gc.collect()`` calls are R57's. Source (rules.tsv R72): the pauses of one rank also
    hold up all others; for one rank, ``MIN_SHARE`` of the window, ours.
    """
    timeline, seg, ledger = evidence.timeline, evidence.ledger.segments, evidence.ledger
    called = events_named(timeline, r"gc\.collect|<built-in function collect>")
    asked = of_host(under(evidence.nesting, called), seg.host)
    claims = evidence.accounts("idle.gc") & ~asked
    lost = evidence.ns(claims)
    if not worth(evidence, lost, MIN_SHARE):
        return None
    low, high = ledger.window
    host = timeline.host
    pauses = (host.kind == HostKind.GC) & (host.start < high) & (host.end > low)
    length = (host.end - host.start)[pauses]
    said = [
        f"The GPU idles {wording.per_step(lost, ledger)} while Python collects garbage"
        + (
            f": {wording.count_per_step(len(length), 'collections', ledger)}, the longest takes "
            f"{wording.ns(float(length.max()))}."
            if len(length)
            else "."
        ),
        *_where(evidence, claims),
    ]
    return finding(
        evidence,
        "R72",
        "interruption",
        "Python's garbage collection stops the host",
        claims,
        said,
        (
            Remedy(
                "scheduled-gc",
                "exact",
                "gc.disable(); gc.collect() every N steps, on the same step on all ranks.",
            ),
            Remedy(
                "gc-freeze",
                "exact",
                "gc.freeze() after set-up: the collector no longer walks the objects made there.",
            ),
        ),
        "If host memory grows with collection switched off, reference cycles are the real problem.",
    )


RULES = (r97_blocking_checkpoint, r98_long_validation, r72_garbage_collection)


def _phase(evidence: Evidence, account: str) -> _Phase:
    """Outermost host events that the ledger books on ``account`` by their own name."""
    timeline, host = evidence.timeline, evidence.timeline.host
    low, high = evidence.ledger.window
    key = host.name.astype(np.int64) * 8 + host.kind
    unique, inverse = intervals.coded(key)
    own = [own_label(timeline.names[int(k) // 8], int(k) % 8)[0] == account for k in unique]
    roots = np.array(own, np.bool_)[inverse] if len(host) else np.zeros(0, np.bool_)
    outer = outermost(evidence.nesting, roots)
    calls = np.flatnonzero(outer == np.arange(len(host)))
    calls = calls[(host.start[calls] < high) & (host.end[calls] > low)]
    ns = np.minimum(host.end[calls], high) - np.maximum(host.start[calls], low)
    return _Phase(calls, ns, outer >= 0)


def _usual_step(evidence: Evidence, phase: _Phase) -> float:
    """Median length of the steps that the phase does not touch; 0 where there is none."""
    edges = evidence.ledger.step_edges()
    host = evidence.timeline.host
    touched = intervals.union(host.start[phase.calls], host.end[phase.calls])
    hit, _ = intervals.overlaps((edges[:-1], edges[1:]), touched)
    free = np.setdiff1d(np.arange(len(edges) - 1), hit)
    return float(np.median(np.diff(edges)[free])) if len(free) else 0.0


def _where(evidence: Evidence, claims: Bool) -> list[str]:
    seg = evidence.ledger.segments
    rows = np.flatnonzero(claims & (seg.host >= 0))
    found = places.best(evidence, seg.host[rows], seg.ns[rows])
    return [f"Most at {places.told(evidence, found)}."] if found else []


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
