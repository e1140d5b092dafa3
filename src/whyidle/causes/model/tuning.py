"""R41: cuDNN or MIOpen tries convolution algorithms in every step."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.model.kernels import ns_of_activities
from whyidle.causes.segments import computing, held_by, launched_by, step_of, steps_known
from whyidle.timeline.columns import I32, I64, Bool, DeviceKind, HostKind
from whyidle.timeline.select import events_named, of_host, outermost

# A convolution is tuned when it times kernels (waits for an event) and launches at least this
# many; tuning in this many steps after the first is no warm-up. Both ours (rules.tsv R41: more
# than 10 shapes in 100 steps, but traces hold no shapes).
CANDIDATES = 3
TUNED_STEPS = 2

_CONVOLUTION = r"^aten::(conv[123]d|_?convolution|(cudnn|miopen)_convolution\w*|convolution_\w+)$"
_TIMING = r"(?i)Event_?(Synchronize|ElapsedTime)"


def r41_tunes_convolutions(evidence: Evidence) -> Finding | None:
    """``cudnn.benchmark`` tries algorithms again for each new shape, in steps after the first.

    Claims the kernels and the idle time inside tuned convolutions; lost is all of it but each
    convolution's last kernel, which is the convolution itself. From ``MIN_SHARE`` of the window.
    """
    if not steps_known(evidence):
        return None
    operators = events_named(evidence.timeline, _CONVOLUTION, (HostKind.OPERATOR,))
    holder = outermost(evidence.nesting, operators)
    tuned = _tuned(evidence, holder)
    host = evidence.timeline.host
    steps = np.unique(step_of(evidence, host.start[tuned]))
    if int((steps > 0).sum()) < TUNED_STEPS:
        return None
    chosen = np.zeros(len(host), np.bool_)
    chosen[tuned] = True
    inside = of_host(chosen, holder)
    claims = (launched_by(evidence, inside) & computing(evidence)) | held_by(evidence, inside)
    lost = evidence.ns(claims) - _kept(evidence, claims, holder)
    if not worth(evidence, lost, MIN_SHARE):
        return None
    ledger, seg = evidence.ledger, evidence.ledger.segments
    low, high = ledger.window
    calls = tuned[(host.start[tuned] >= low) & (host.start[tuned] < high)]
    said = [
        f"{wording.count_per_step(len(calls), 'convolutions', ledger)} time candidate kernels "
        f"before they run, in {len(steps)} of {len(ledger.steps)} steps: "
        f"{wording.per_step(lost, ledger)} beyond the convolutions themselves.",
    ]
    rows = np.flatnonzero(claims)
    at = np.where(seg.idle[rows], seg.host[rows], seg.launch[rows])
    if found := places.best(evidence, at, seg.ns[rows]):
        said.append(f"Most at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R41",
        "model",
        "Convolution algorithms are tuned again in every step",
        claims,
        said,
        (
            Remedy(
                "no-benchmark",
                "approximate",
                "torch.backends.cudnn.benchmark=False: the heuristic's kernels are taken, which "
                "may round differently.",
            ),
            Remedy(
                "bucket-shapes",
                "approximate",
                "Pad or bucket inputs to a few shapes (drop_last=True for the last batch), so "
                "that each is tuned once.",
            ),
        ),
        "If new shapes stop coming after some steps, tuning stops by itself.",
        lost,
    )


def _tuned(evidence: Evidence, holder: I32) -> I64:
    """Host indices of the convolutions that time candidates."""
    timeline = evidence.timeline
    timing = events_named(timeline, _TIMING, (HostKind.RUNTIME,))
    waits = np.bincount(holder[timing & (holder >= 0)], minlength=len(timeline.host))
    device = timeline.device
    launch = device.launch[(device.kind == DeviceKind.KERNEL) & (device.launch >= 0)]
    inside = holder[launch]
    kernels = np.bincount(inside[inside >= 0], minlength=len(timeline.host))
    return np.flatnonzero((waits > 0) & (kernels >= CANDIDATES)).astype(np.int64)


def _kept(evidence: Evidence, claims: Bool, holder: I32) -> int:
    """Time of the last kernel of each convolution in the claims."""
    ns = ns_of_activities(evidence, claims)
    rows = np.flatnonzero(ns)
    device = evidence.timeline.device
    of = holder[device.launch[rows]]
    order = np.lexsort((device.start[rows], of))
    rows, of = rows[order], of[order]
    last = np.append(of[1:] != of[:-1], True) if len(of) else np.zeros(0, np.bool_)
    return int(ns[rows[last]].sum())
