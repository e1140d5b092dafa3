"""R76: many small collectives, whose latency counts and not their bytes."""

from __future__ import annotations

import numpy as np

from whyidle.causes import wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.communication.collectives import calls, collectives, exposed, told
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.segments import held_by
from whyidle.timeline.columns import Bool
from whyidle.timeline.select import events_named, innermost, under

# A collective is small below this size, and many are more than this in a step (rules.tsv R76;
# ours, unverified).
SMALL_BYTES = 64 * 1024
MANY = 100
# Where the trace holds no size, one that takes less than this counts as small. Ours.
SMALL_NS = 50_000

_OPERATION = r"^(record_param_comms|c10d::|nccl:|xccl:|gloo:)"
_SYNC_BATCH_NORM = r"(?i)sync_?batch_?norm|torch/nn/modules/_functions\.py|batch_norm_gather_stats"


def r76_small_collectives(evidence: Evidence) -> Finding | None:
    """Each step makes many small collectives, as SyncBatchNorm or unbucketed gradients do.

    Claims the time in which only small collectives run or queued work waits behind one, and the
    idle time in which the host launches them; from ``MIN_SHARE`` of the window (ours), with more
    than ``MANY`` a step.
    """
    ledger = evidence.ledger
    small, known = small_collectives(evidence)
    if int(small.sum()) <= MANY * max(len(ledger.steps), 1):
        return None
    timeline, nesting = evidence.timeline, evidence.nesting
    launching = calls(evidence, small)
    operation = innermost(nesting, events_named(timeline, _OPERATION))
    own = np.zeros(len(launching), np.bool_)
    around = operation[launching]
    own[around[around >= 0]] = True
    around_operation = under(nesting, own | launching | _outer(evidence, own))
    claims = exposed(evidence, small)
    hosted = held_by(evidence, around_operation) & evidence.accounts("idle.dispatch", "idle.comm")
    claims |= hosted
    if not worth(evidence, evidence.ns(claims), MIN_SHARE):
        return None
    by = f"below {wording.size(SMALL_BYTES)}" if known else f"below {wording.ns(SMALL_NS)} each"
    total = int(collectives(evidence).sum())
    alone = claims & evidence.accounts("comm.exposed")
    behind = claims & ~alone & ~hosted
    said = [
        f"{wording.count_per_step(int(small.sum()), 'small collectives', ledger)} ({by}) of "
        f"{wording.count_per_step(total, 'collectives', ledger)}: "
        f"{wording.per_step(evidence.ns(alone), ledger)} no kernel runs beside them, and "
        f"{wording.per_step(evidence.ns(hosted | behind), ledger)} the GPU idles while the host "
        "launches them or queued work waits behind them.",
        f"They are {told(evidence, small)}.",
    ]
    batch_norm = under(nesting, events_named(timeline, _SYNC_BATCH_NORM))
    from_norm = 2 * int((batch_norm & launching).sum()) > int(launching.sum())
    notes = () if known else ("The trace does not hold the sizes: told small by their duration.",)
    return finding(
        evidence,
        "R76",
        "communication",
        "SyncBatchNorm makes many small collectives"
        if from_norm
        else "Many small collectives in each step",
        claims,
        said,
        _FOR_NORM if from_norm else _FOR_BUCKETS,
        "Sizes recorded with a newer PyTorch show them to be large: then it is bandwidth, not "
        "latency.",
        notes=notes,
    )


_FOR_NORM = (
    Remedy(
        "local-norm",
        "changes training",
        "Use a norm that needs no other rank (GroupNorm, or BatchNorm with a larger batch on each "
        "GPU).",
    ),
)
_FOR_BUCKETS = (
    Remedy(
        "bucket-collectives",
        "exact",
        "Reduce gradients in buckets (DistributedDataParallel does, bucket_cap_mb) or join small "
        "tensors into one collective (all_reduce_coalesced, one flat tensor).",
    ),
    Remedy(
        "local-norm",
        "changes training",
        "If they come from SyncBatchNorm: GroupNorm, or a larger batch on each GPU.",
    ),
)


def small_collectives(evidence: Evidence) -> tuple[Bool, bool]:
    """Small collectives, shape (device events,), and whether most are known by their size."""
    device = evidence.timeline.device
    chosen = collectives(evidence)
    sized = chosen & (device.bytes >= 0)
    by_size = sized & (device.bytes < SMALL_BYTES)
    by_time = chosen & ~sized & (device.end - device.start < SMALL_NS)
    return by_size | by_time, int(by_size.sum()) >= int(by_time.sum())


def _outer(evidence: Evidence, operations: Bool) -> Bool:
    """c10d operators around the operations: the call as the program made it."""
    nesting, timeline = evidence.nesting, evidence.timeline
    c10d = events_named(timeline, r"^c10d::")
    found = np.zeros(len(c10d), np.bool_)
    around = innermost(nesting, c10d)[operations]
    found[around[around >= 0]] = True
    return found
