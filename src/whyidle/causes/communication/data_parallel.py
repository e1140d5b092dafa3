"""R66: torch.nn.DataParallel, which copies the model to all devices in every step."""

from __future__ import annotations

import numpy as np

from whyidle.causes import wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.segments import held_by, launched_by
from whyidle.ledger.accounts import ACCOUNTS
from whyidle.timeline.columns import HostKind
from whyidle.timeline.select import events_named, name_mask, under

_OPERATORS = (
    r"^(autograd::engine::evaluate_function: )?"
    r"(Scatter|Gather|Broadcast|ReduceAddCoalesced)(Backward)?$"
)
_FRAMES = r"torch/nn/parallel/(replicate|scatter_gather|comm|_functions)\.py"
_NOT_WORK = np.array(
    [a.name.startswith(("comm.", "copy.", "idle.")) and a.name != "idle.input" for a in ACCOUNTS]
)


def r66_data_parallel(evidence: Evidence) -> Finding | None:
    """``nn.DataParallel`` scatters, replicates and gathers in every step, from one process.

    Claims the time in which only its copies or collectives run, and the idle time while the host
    makes them, from ``MIN_SHARE`` of the window (ours; rules.tsv R66 gives no threshold).
    """
    timeline, nesting, ledger = evidence.timeline, evidence.nesting, evidence.ledger
    marks = events_named(timeline, _OPERATORS, (HostKind.OPERATOR,))
    marks |= events_named(timeline, _FRAMES, (HostKind.PYTHON,))
    if not marks.any():
        return None
    inside = under(nesting, marks)
    claims = (held_by(evidence, inside) | launched_by(evidence, inside)) & _NOT_WORK[
        ledger.segments.account
    ]
    if not worth(evidence, evidence.ns(claims), MIN_SHARE):
        return None
    idle = evidence.ns(claims & ledger.segments.idle)
    said = [
        f"The GPU idles {wording.per_step(idle, ledger)} while one process scatters inputs, "
        f"replicates the model and gathers outputs, and only moves their data "
        f"{wording.per_step(evidence.ns(claims) - idle, ledger)}.",
        f"Seen: {_seen(evidence)}.",
    ]
    return finding(
        evidence,
        "R66",
        "communication",
        "nn.DataParallel copies the model to every GPU in each step",
        claims,
        said,
        (
            Remedy(
                "ddp",
                "approximate",
                "Use DistributedDataParallel with one process a GPU (torchrun). BatchNorm "
                "statistics and the scale of a summed loss change.",
            ),
        ),
        "A run on one GPU is not faster by this much per sample.",
    )


def _seen(evidence: Evidence) -> str:
    """The operators and frames seen, with their counts a step."""
    timeline = evidence.timeline
    pattern = f"{_OPERATORS}|{_FRAMES}"
    names = np.flatnonzero(name_mask(timeline.names, pattern))
    count = np.bincount(timeline.host.name, minlength=len(timeline.names))[names]
    order = np.argsort(-count, kind="stable")[:4]
    return wording.listed(
        [
            wording.count_per_step(
                int(count[i]), wording.short(timeline.names[names[i]], 60), evidence.ledger
            )
            for i in order
        ]
    )
