"""R50: gradients are filled with zeros in every step instead of being dropped."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.segments import held_by, launched_by
from whyidle.timeline.select import events_named, of_host, under

_ZERO_GRAD = r"zero_grad(#|$|\b)"


def r50_zero_fills(evidence: Evidence) -> Finding | None:
    """``zero_grad`` fills every gradient with zeros, a launch each (``set_to_none=False``).

    Claims the fills on the device and the idle time while the host launches them, from
    ``MIN_SHARE`` of the window (ours; rules.tsv R50 gives none).
    """
    timeline, ledger, seg = evidence.timeline, evidence.ledger, evidence.ledger.segments
    inside = under(evidence.nesting, events_named(timeline, _ZERO_GRAD))
    fills = of_host(inside, timeline.device.launch) & (timeline.device.device == ledger.device)
    if not fills.any():
        return None
    claims = launched_by(evidence, inside) | (
        held_by(evidence, inside)
        & evidence.accounts("idle.optimizer", "idle.dispatch", "idle.python")
    )
    if not worth(evidence, evidence.ns(claims), MIN_SHARE):
        return None
    idle = evidence.ns(claims & seg.idle)
    rows = np.flatnonzero(claims)
    said = [
        f"zero_grad launches {wording.count_per_step(int(fills.sum()), 'fills', ledger)}: they run "
        f"{wording.per_step(evidence.ns(claims) - idle, ledger)}, and the GPU idles "
        f"{wording.per_step(idle, ledger)} while the host launches them.",
    ]
    host = np.where(seg.idle[rows], seg.host[rows], seg.launch[rows])
    if found := places.code_lines(evidence, host, seg.ns[rows])[:3]:
        said.append(f"Called at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R50",
        "model",
        "zero_grad fills gradients with zeros",
        claims,
        said,
        (
            Remedy(
                "set-to-none",
                "exact",
                "optimizer.zero_grad(set_to_none=True), the default since PyTorch 2.0, drops "
                "gradients instead of filling them.",
            ),
        ),
        "Code reads .grad right after zero_grad and needs the zeros.",
        notes=("An upper bound: if the host is late all the same, other work fills the gap.",),
    )
