"""R06: the optimizer launches many small kernels, and the host cannot keep up."""

from __future__ import annotations

import re

import numpy as np

from whyidle.causes import wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.timeline import intervals
from whyidle.timeline.columns import Bool, DeviceKind, HostKind
from whyidle.timeline.select import events_named, of_host, outermost, under

# Host time of the optimizer over its device time, and its share of the step, from which on it is
# bound by the host (rules.tsv R06: ours, unverified starting value).
HOST_OVER_DEVICE = 2.0
HOST_SHARE = 0.05
# An optimizer below this share of the step is not worth changing (rules.tsv R06, exclude_when).
LOST_SHARE = 0.03

_STEP = re.compile(
    r"^Optimizer\.step#|^\W*optimi[sz]er(_?step)?\W*$|torch/optim/(?!lr_scheduler)\w+\.py.*: step$"
)
_FUSED = r"(?i)fused_?(adam|sgd|adagrad|lamb)|FusedOptimizer|_fused_"
_FOREACH = r"multi_tensor_apply"


def r06_unfused_optimizer(evidence: Evidence) -> Finding | None:
    """The host side of ``optimizer.step()`` leaves the device idle.

    Fires where the host spends more than ``HOST_OVER_DEVICE`` times the device's time in the
    optimizer, at least ``HOST_SHARE`` of the window, and loses ``LOST_SHARE`` of it there (all
    rules.tsv R06). Claims ``idle.optimizer``.
    """
    ledger, timeline = evidence.ledger, evidence.timeline
    claims = evidence.accounts("idle.optimizer")
    if not worth(evidence, evidence.ns(claims), LOST_SHARE):
        return None
    calls = _calls(evidence)
    if not calls.any():
        return None
    host_ns = _clipped(evidence, calls)
    kernels = _kernels(evidence, calls)
    device_ns = _busy(evidence, kernels)
    if host_ns <= HOST_OVER_DEVICE * device_ns or host_ns < HOST_SHARE * ledger.window_ns:
        return None
    device = timeline.device
    length = (device.end - device.start)[kernels]
    names = {timeline.names[i] for i in set(device.name[kernels].tolist())}
    kind = _kind(names)
    said = [
        f"optimizer.step() holds the host {wording.per_step(host_ns, ledger)} for "
        f"{wording.per_step(device_ns, ledger)} of GPU work; the GPU idles "
        f"{wording.per_step(evidence.ns(claims), ledger)} meanwhile and in zero_grad.",
    ]
    if len(length):
        said.append(
            f"It launches {wording.count_per_step(len(length), 'kernels', ledger)}, the median one "
            f"runs {wording.ns(float(np.median(length)))}; by their names it is {kind}."
        )
    return finding(
        evidence,
        "R06",
        "parallelism",
        "The optimizer's host side keeps the GPU waiting",
        claims,
        said,
        _REMEDIES,
        "Time the step with optimizer.step() left out: what it saves at most is the difference.",
    )


_REMEDIES = (
    Remedy(
        "fused-optimizer",
        "approximate",
        "Pass fused=True to the optimizer (Adam, AdamW, SGD, Adagrad; CUDA floating-point "
        "parameters): a few kernels for all parameters; the order of rounding changes.",
    ),
    Remedy(
        "compiled-optimizer",
        "approximate",
        "Compile the step: torch.compile(optimizer.step), with the learning rate as a tensor.",
    ),
    Remedy(
        "zero-grad-to-none",
        "exact",
        "zero_grad(set_to_none=True): no kernels to clear gradients.",
    ),
)


def _calls(evidence: Evidence) -> Bool:
    """Outermost optimizer step events."""
    steps = events_named(evidence.timeline, _STEP, (HostKind.ANNOTATION, HostKind.PYTHON))
    outer: Bool = outermost(evidence.nesting, steps) == np.arange(len(steps))
    return steps & outer


def _clipped(evidence: Evidence, calls: Bool) -> int:
    host = evidence.timeline.host
    low, high = evidence.ledger.window
    return intervals.total(
        intervals.clip(intervals.union(host.start[calls], host.end[calls]), low, high)
    )


def _kernels(evidence: Evidence, calls: Bool) -> Bool:
    """Mask of the device's kernels launched inside the calls and running in the window."""
    device = evidence.timeline.device
    low, high = evidence.ledger.window
    inside = of_host(under(evidence.nesting, calls), device.launch)
    inside &= (device.device == evidence.ledger.device) & (device.kind == DeviceKind.KERNEL)
    inside &= (device.start < high) & (device.end > low)
    return inside


def _busy(evidence: Evidence, kernels: Bool) -> int:
    device = evidence.timeline.device
    return intervals.total(intervals.union(device.start[kernels], device.end[kernels]))


def _kind(names: set[str]) -> str:
    if any(re.search(_FUSED, n) for n in names):
        return "already a fused implementation (the host time is its preparation)"
    if any(re.search(_FOREACH, n) for n in names):
        return "the foreach implementation"
    return "a loop over parameters"
