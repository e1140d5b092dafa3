"""R32: the batch is copied to the device when it is needed, and nothing computes meanwhile."""

from __future__ import annotations

import numpy as np

from whyidle.causes import copies, places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.segments import of_activity, on_device
from whyidle.ledger.kinds import COMMUNICATION
from whyidle.timeline.columns import Bool, DeviceKind
from whyidle.timeline.select import name_mask

# Copies below this share of the step are not worth hiding (rules.tsv R32, exclude_when).
COPY_SHARE = 0.02


def r32_no_device_prefetch(evidence: Evidence) -> Finding | None:
    """Batches are copied on the stream that computes, so that nothing computes meanwhile.

    Claims the ``copy.h2d`` time of copies on the stream with most compute, from ``COPY_SHARE`` of
    the window (rules.tsv R32). Copies on a stream of their own are prefetched already; pageable
    ones cannot be, before their memory is pinned (R54).
    """
    timeline, seg = evidence.timeline, evidence.ledger.segments
    stream = _compute_stream(evidence)
    if stream is None:
        return None
    serial = copies.to_device(evidence) & ~copies.to_device(evidence, "pageable")
    serial &= timeline.device.stream == stream
    claims = evidence.accounts("copy.h2d") & of_activity(evidence, serial)
    lost = evidence.ns(claims)
    if not worth(evidence, lost, COPY_SHARE):
        return None
    said = [
        f"Only a host-to-device copy runs {wording.per_step(lost, evidence.ledger)}, on the same "
        f"stream as the kernels ({stream}), which wait for it.",
        f"These are {copies.told(evidence, serial)}.",
    ]
    rows = np.flatnonzero(claims)
    if found := places.best(evidence, seg.launch[rows], seg.ns[rows]):
        said.append(f"Launched at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R32",
        "input",
        "Batches are copied to the GPU only when it needs them",
        claims,
        said,
        (
            Remedy(
                "prefetch-to-device",
                "exact",
                "Copy batch n+1 on a side stream while batch n computes (pinned memory, "
                "non_blocking=True, and wait_stream plus record_stream before it is used).",
            ),
        ),
        "If the copies are no batches but weights or states moved in (offloading), prefetching "
        "batches does not help; see what launches them.",
        notes=("At most all of the copies can be hidden behind compute: an upper bound.",),
    )


def _compute_stream(evidence: Evidence) -> int | None:
    """The stream on which most computing kernel time runs."""
    timeline = evidence.timeline
    kernels: Bool = on_device(evidence) & (timeline.device.kind == DeviceKind.KERNEL)
    kernels &= ~name_mask(timeline.names, COMMUNICATION)[timeline.device.name]
    rows = np.flatnonzero(kernels)
    if not len(rows):
        return None
    stream, group = np.unique(timeline.device.stream[rows], return_inverse=True)
    total = np.zeros(len(stream), np.int64)
    np.add.at(total, group, timeline.device.end[rows] - timeline.device.start[rows])
    return int(stream[np.argmax(total)])
