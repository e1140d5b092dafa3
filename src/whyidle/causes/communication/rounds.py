"""R64: gradients are reduced in every micro-batch, not once for each optimizer step."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from whyidle.causes import wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.communication.collectives import collectives, exposed, kinds, told
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.timeline.columns import I64, Bool, HostKind
from whyidle.timeline.select import events_named, outermost

_OPTIMIZER = r"^Optimizer\.step#|torch/optim/(?!lr_scheduler)\w+\.py.*: step$"
_FORWARD = r"^DistributedDataParallel\.forward$|torch/nn/parallel/distributed\.py.*: forward$"
_REDUCTION = ("all_reduce", "allreduce", "AllReduce", "reduce_scatter", "ReduceScatter")


def r64_sync_every_micro_batch(evidence: Evidence) -> Finding | None:
    """Gradients are reduced k times for one optimizer step (rules.tsv R64: more than once).

    A round is the reductions between two forward passes of DistributedDataParallel or, without
    their marks, a sequence of sizes that repeats. Rounds must hold equally many reductions and
    equal bytes, so that two models in one step are not taken for two rounds. Claims the exposed
    time of all rounds but the last, from ``MIN_SHARE`` of the window (ours).
    """
    reductions = _reductions(evidence)
    spare, rounds = _spare(evidence, reductions)
    if not spare.any():
        return None
    claims = exposed(evidence, spare)
    lost = evidence.ns(claims)
    if not worth(evidence, lost, MIN_SHARE):
        return None
    return finding(
        evidence,
        "R64",
        "communication",
        "Gradients are reduced in every micro-batch",
        claims,
        [
            f"Gradients are reduced {wording.number(rounds)} times for one optimizer step; all but "
            f"the last time costs {wording.per_step(lost, evidence.ledger)} that nothing hides.",
            f"Reductions to spare: {told(evidence, spare)}.",
        ],
        (
            Remedy(
                "no-sync",
                "exact",
                "Run all micro-batches but the last under model.no_sync() (FSDP: "
                "set_requires_gradient_sync(False), which keeps full gradients in memory).",
            ),
        ),
        "If the reductions belong to different models or losses, none of them is to spare.",
        notes=("Gradients are then summed before they are reduced: equal up to rounding.",),
    )


def _reductions(evidence: Evidence) -> Bool:
    chosen = collectives(evidence)
    found = np.zeros(len(chosen), np.bool_)
    for kind, mask in kinds(evidence, chosen).items():
        if kind in _REDUCTION:
            found |= mask
    return found & (evidence.timeline.device.launch >= 0)


def _spare(evidence: Evidence, reductions: Bool) -> tuple[Bool, float]:
    """Reductions of all rounds but the last of each optimizer step, and the mean of rounds."""
    timeline, device = evidence.timeline, evidence.timeline.device
    none = np.zeros(len(reductions), np.bool_)
    steps = _starts(evidence, _OPTIMIZER)
    if not reductions.any() or len(steps) < 1:
        return none, 0.0
    forward = _starts(evidence, _FORWARD)
    rows = np.flatnonzero(reductions)
    at = timeline.host.start[device.launch[rows]]
    order = np.argsort(at, kind="stable")
    rows, at = rows[order], at[order]
    counts = []
    for low, high in pairwise([np.iinfo(np.int64).min, *steps.tolist()]):
        inside = (at >= low) & (at < high)
        marks = forward[(forward >= low) & (forward < high)]
        groups = _rounds(device.bytes[rows[inside]], at[inside], marks)
        if len(groups) > 1:
            for group in groups[:-1]:
                none[rows[inside][group]] = True
        if len(groups):
            counts.append(len(groups))
    return none, float(np.mean(counts)) if counts else 0.0


def _rounds(size: I64, at: I64, forward: I64) -> list[I64]:
    """Positions of the reductions of each round, in order of launch; one list without rounds."""
    n = len(at)
    whole = [np.arange(n)] if n else []
    if len(forward) > 1:
        of = np.searchsorted(forward, at, side="right")
        groups = [np.flatnonzero(of == i) for i in np.unique(of)]
    else:
        groups = _repeats(size)
    alike = len({len(g) for g in groups}) == 1 and len({int(size[g].sum()) for g in groups}) == 1
    return groups if len(groups) > 1 and alike else whole


def _repeats(size: I64) -> list[I64]:
    """Split where a sequence of at least two different sizes repeats to the end."""
    n = len(size)
    if not n or (size < 0).any():
        return []
    for length in range(2, n // 2 + 1):
        if n % length == 0:
            table = size.reshape(-1, length)
            if (table == table[0]).all() and len(np.unique(table[0])) > 1:
                return list(np.arange(n).reshape(-1, length))
    return []


def _starts(evidence: Evidence, pattern: str) -> I64:
    """Start times of the outermost events of the pattern inside the window, sorted."""
    timeline = evidence.timeline
    marks = events_named(timeline, pattern, (HostKind.ANNOTATION, HostKind.PYTHON))
    outer = outermost(evidence.nesting, marks)
    start = timeline.host.start[np.unique(outer[outer >= 0])]
    low, high = evidence.ledger.window
    return np.sort(start[(start >= low) & (start < high)])
