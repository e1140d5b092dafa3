"""R48: debug switches are on: CUDA_LAUNCH_BLOCKING, anomaly detection."""

from __future__ import annotations

import numpy as np

from whyidle.causes import wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.segments import held_by, launched_by, on_device
from whyidle.timeline.columns import DeviceKind, HostKind
from whyidle.timeline.select import events_named, under

# Launches block when this share of the calls returns no earlier than its kernel ends. Ours: else
# a launch returns before its kernel starts.
BLOCKING_SHARE = 0.95
MIN_LAUNCHES = 20  # fewer launches tell nothing. Ours.
# Anomaly detection checks every backward node for NaN; here, at least this share of them. Ours.
CHECKED_SHARE = 0.5

_NODE = r"^autograd::engine::evaluate_function: "
_CHECK = r"^aten::(isnan|_is_any_true|any|is_nonzero|item)$"
_FRAMES = r"torch/autograd/anomaly_mode\.py|traceback\.py\(\d+\): (format_stack|extract_stack)$"
_HOST = ("idle.dispatch", "idle.python", "idle.optimizer", "idle.sync", "idle.queue")


def r48_debug_flags(evidence: Evidence) -> Finding | None:
    """A debug switch slows the run (rules.tsv R48 gives no threshold; ``MIN_SHARE``, ours)."""
    return _launch_blocking(evidence) or _anomaly(evidence)


def _launch_blocking(evidence: Evidence) -> Finding | None:
    """Each launch returns only when its kernel is done, so host and device take turns.

    Without it the step takes at least the longer of host and device time, and now takes their sum,
    so at most the shorter of the two can be won: ``min(busy, idle while the host works)``.
    """
    device, host = evidence.timeline.device, evidence.timeline.host
    rows = np.flatnonzero(on_device(evidence) & (device.kind == DeviceKind.KERNEL))
    rows = rows[device.launch[rows] >= 0]
    if len(rows) < MIN_LAUNCHES:
        return None
    blocking = float((host.end[device.launch[rows]] >= device.end[rows]).mean())
    if blocking < BLOCKING_SHARE:
        return None
    ledger = evidence.ledger
    claims = evidence.accounts(*_HOST)
    lost = min(ledger.busy_ns, evidence.ns(claims))
    if not worth(evidence, lost, MIN_SHARE):
        return None
    return finding(
        evidence,
        "R48",
        "model",
        "Every launch waits for its kernel (CUDA_LAUNCH_BLOCKING)",
        claims,
        [
            f"{wording.percent(blocking)} of {len(rows):,} launch calls return only after their "
            "kernel has ended, so host and GPU take turns.",
            f"The GPU is busy {wording.per_step(ledger.busy_ns, ledger)} and idles "
            f"{wording.per_step(evidence.ns(claims), ledger)} while the host works; at most the "
            "shorter of the two can be won.",
        ],
        (
            Remedy(
                "no-launch-blocking",
                "exact",
                "Unset CUDA_LAUNCH_BLOCKING (AMD: HIP_LAUNCH_BLOCKING, AMD_SERIALIZE_KERNEL) "
                "outside debugging.",
            ),
        ),
        "The variable is not set: then a profiler or another tool serialises the kernels.",
        lost,
    )


def _anomaly(evidence: Evidence) -> Finding | None:
    """Every backward node is checked for NaN, with a synchronize each."""
    timeline, nesting, ledger = evidence.timeline, evidence.nesting, evidence.ledger
    nodes = events_named(timeline, _NODE, (HostKind.OPERATOR,))
    checks = events_named(timeline, _CHECK, (HostKind.OPERATOR,)) & under(nesting, nodes)
    isnan = checks & events_named(timeline, r"^aten::isnan$")
    if not nodes.any() or int(isnan.sum()) < CHECKED_SHARE * int(nodes.sum()):
        return None
    inside = under(nesting, checks | events_named(timeline, _FRAMES, (HostKind.PYTHON,)))
    claims = held_by(evidence, inside) | launched_by(evidence, inside)
    if not worth(evidence, evidence.ns(claims), MIN_SHARE):
        return None
    idle = evidence.ns(claims & ledger.segments.idle)
    return finding(
        evidence,
        "R48",
        "model",
        "Anomaly detection checks every gradient",
        claims,
        [
            f"{wording.count_per_step(int(isnan.sum()), 'checks for NaN', ledger)} in "
            f"{wording.count_per_step(int(nodes.sum()), 'backward nodes', ledger)}: the GPU runs "
            f"them {wording.per_step(evidence.ns(claims) - idle, ledger)} and idles "
            f"{wording.per_step(idle, ledger)} meanwhile.",
        ],
        (
            Remedy(
                "no-anomaly-detection",
                "exact",
                "Remove torch.autograd.set_detect_anomaly(True) and detect_anomaly=True outside "
                "debugging.",
            ),
        ),
        "The checks come from the model's own code, not from anomaly detection.",
        notes=("The stack traces that it keeps in the forward pass cost more, not counted here.",),
    )
