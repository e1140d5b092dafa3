"""The host waits for the device, and the device then waits for the host: R02, R03, R04.

While the host is inside a wait it prepares nothing, so when the device has caught up it idles
until the host has launched again. A wait that returns while the device still has work costs
nothing and is never claimed: only idle segments are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.ledger.accounts import INDEX
from whyidle.timeline.columns import I64, Bool, DeviceKind, HostKind
from whyidle.timeline.select import (
    events_named,
    innermost,
    name_mask,
    of_host,
    outermost,
    under,
)

_WAITS = ("idle.sync", "idle.transfer")
_RESTART = ("idle.dispatch", "idle.python", "idle.optimizer", "idle.queue")

_DATA_DEPENDENT = (
    r"^aten::(nonzero|nonzero_numpy|argwhere|masked_select|unique_consecutive|_unique2?|"
    r"unique_dim|is_nonzero|equal|bincount|histc|repeat_interleave)$"
)
_SCALAR = r"^aten::(item|_local_scalar_dense)$"
_COPY = r"^aten::(copy_|_copy_from|_to_copy|to)$"
_SYNCHRONIZE = r"(Device|Stream|Event|Ctx)_?Synchronize|zeEventHostSynchronize"
_PROFILER = r"torch/(profiler|autograd)/profiler\.py|profiler.*: (step|stop|__exit__)$"


@dataclass(frozen=True, eq=False)
class Lost:
    """Time lost to waits. ``claims`` marks segments; ``lost_ns`` is at most their sum.

    ``roots`` are the host indices of the waits behind them, ``root_ns`` the idle time each cost.
    """

    claims: Bool
    lost_ns: int
    roots: I64
    root_ns: I64


def lost_to(evidence: Evidence, waits: Bool) -> Lost:
    """The idle time that the waits ``waits`` (mask of host events, shape (len(host),)) cost.

    Claimed are the idle segments inside each wait, and what follows in the same gap until the
    device has work again, up to the time the wait blocked the host: without it the host would have
    launched that much earlier, no more. An upper bound for these gaps; later ones are not counted.
    """
    seg, nesting, host = evidence.ledger.segments, evidence.nesting, evidence.timeline.host
    none = np.zeros(len(seg), np.bool_)
    if not waits.any():
        return Lost(none, 0, np.empty(0, np.int64), np.empty(0, np.int64))
    root = outermost(nesting, waits)
    wait = np.isin(seg.account, [INDEX[a] for a in _WAITS]) & (seg.host >= 0)
    own = wait & evidence.free & of_host(root >= 0, seg.host)
    if not own.any():
        return Lost(none, 0, np.empty(0, np.int64), np.empty(0, np.int64))
    # What follows belongs to the last wait before it in the same gap.
    last = np.maximum.accumulate(np.where(wait, np.arange(len(seg)), -1))
    same_gap = (last >= 0) & (seg.gap[last] == seg.gap) & (seg.gap >= 0)
    follows = evidence.accounts(*_RESTART) & seg.after_sync & same_gap & own[last]
    root_of = np.full(len(seg), -1, np.int64)
    root_of[own] = root[seg.host[own]]
    root_of[follows] = root_of[last[follows]]
    rows = np.flatnonzero(own | follows)
    rows = rows[np.argsort(root_of[rows], kind="stable")]
    roots, first, group = np.unique(root_of[rows], return_index=True, return_inverse=True)
    blocked = host.end[roots] - host.start[roots]
    ns = seg.ns[rows]
    before = np.cumsum(ns) - ns
    before -= before[first][group]
    # A piece is claimed if the larger part of it lies within the time the host was blocked.
    kept = before + ns // 2 < blocked[group]
    claims = none
    claims[rows[kept]] = True
    root_ns = np.zeros(len(roots), np.int64)
    np.add.at(root_ns, group[kept], ns[kept])
    root_ns = np.minimum(root_ns, blocked)
    return Lost(claims, int(root_ns.sum()), roots, root_ns)


def r02_scalar_read(evidence: Evidence) -> Finding | None:
    """A number is read from the device each step: ``.item()``, ``float()``, ``.cpu()``, print.

    Source (rules.tsv R02): the idle time right after the wait counts, no fixed threshold; it must
    be worth ``MIN_SHARE`` of the window, ours.
    """
    waits = scalar_reads(evidence)
    lost = lost_to(evidence, waits)
    if not worth(evidence, lost.lost_ns):
        return None
    return finding(
        evidence,
        "R02",
        "parallelism",
        "Reading values from the GPU stalls the host",
        lost.claims,
        _sentences(evidence, lost, waits, "read a value from the GPU (.item(), float(), .cpu())"),
        (
            Remedy(
                "read-less-often",
                "exact",
                "Read the loss and other values every N steps; add them up on the GPU in between "
                "(the log lags, the training does not change).",
            ),
            Remedy(
                "read-late",
                "exact",
                "Copy the value to pinned memory with non_blocking=True and read it one step "
                "later, when the copy has long finished.",
            ),
        ),
        "Remove the reads for 20 steps: if the step does not get shorter, they cost nothing here.",
        lost.lost_ns,
    )


def scalar_reads(evidence: Evidence) -> Bool:
    """Host events that read from the device: item, and copies from device to host.

    Reads inside operators with a data-dependent size are R03's.
    """
    timeline = evidence.timeline
    device = timeline.device
    reads = events_named(timeline, _SCALAR, (HostKind.OPERATOR,))
    back = name_mask(timeline.names, r"(?i)DtoH|DeviceToHost")[device.name]
    calls = device.launch[back & (device.kind == DeviceKind.MEMCPY) & (device.launch >= 0)]
    copies = events_named(timeline, _COPY, (HostKind.OPERATOR,))
    holder = innermost(evidence.nesting, copies)[calls]
    reads[holder[holder >= 0]] = True
    reads[calls[holder < 0]] = True
    shapes = events_named(timeline, _DATA_DEPENDENT, (HostKind.OPERATOR,))
    return reads & ~under(evidence.nesting, shapes)


def r03_data_dependent_shape(evidence: Evidence) -> Finding | None:
    """An operator whose output's size depends on the data makes the host wait for the device.

    Source (rules.tsv R03): no fixed threshold; ``MIN_SHARE`` of the window, ours.
    """
    waits = events_named(evidence.timeline, _DATA_DEPENDENT, (HostKind.OPERATOR,))
    lost = lost_to(evidence, waits)
    if not worth(evidence, lost.lost_ns):
        return None
    names = places.operators(evidence, lost.roots.astype(np.int32), lost.root_ns)
    which = wording.listed([p.text for p in names[:3]])
    return finding(
        evidence,
        "R03",
        "parallelism",
        "Operators with a data-dependent size stall the host",
        lost.claims,
        _sentences(evidence, lost, waits, f"waited for the size of a result ({which})"),
        (
            Remedy(
                "fixed-shape",
                "exact",
                "Keep shapes fixed: torch.where or masked_fill instead of boolean indexing, "
                "nonzero_static or top-k with a fixed size; no `if tensor:` on the GPU.",
            ),
            Remedy(
                "index-in-loader",
                "exact",
                "Build index tensors from data that the loader already has, on the CPU.",
            ),
        ),
        "Replace one of these operators by a fixed-size one: if the gap after it stays, this is "
        "not the cause.",
        lost.lost_ns,
    )


def r04_explicit_synchronize(evidence: Evidence) -> Finding | None:
    """``torch.cuda.synchronize()`` or the like is left in the step.

    Counted are synchronize calls outside any operator; the profiler's own are not. Source
    (rules.tsv R04): no fixed threshold; ``MIN_SHARE`` of the window, ours.
    """
    waits = explicit_synchronizes(evidence)
    lost = lost_to(evidence, waits)
    if not worth(evidence, lost.lost_ns):
        return None
    names = places.operators(evidence, lost.roots.astype(np.int32), lost.root_ns)
    which = wording.listed([p.text for p in names[:3]])
    return finding(
        evidence,
        "R04",
        "parallelism",
        "An explicit synchronize stalls the host",
        lost.claims,
        _sentences(evidence, lost, waits, f"called {which} outside any operator"),
        (
            Remedy(
                "drop-synchronize",
                "exact",
                "Remove torch.cuda.synchronize() and CUDA_LAUNCH_BLOCKING=1 from training code.",
            ),
            Remedy(
                "cuda-events",
                "exact",
                "To time GPU work, record torch.cuda.Event(enable_timing=True) and read it steps "
                "later instead of synchronizing.",
            ),
        ),
        "If the call is only made while profiling, or is needed for correctness, nothing is won.",
        lost.lost_ns,
    )


def explicit_synchronizes(evidence: Evidence) -> Bool:
    """Synchronize calls that no operator makes and the profiler does not make."""
    timeline, nesting = evidence.timeline, evidence.nesting
    waits = events_named(timeline, _SYNCHRONIZE, (HostKind.RUNTIME,))
    if not waits.any():
        return waits
    operators = timeline.host.kind == HostKind.OPERATOR
    profiler = events_named(timeline, _PROFILER, (HostKind.PYTHON,))
    return waits & ~under(nesting, operators | profiler)


def _sentences(evidence: Evidence, lost: Lost, waits: Bool, did: str) -> list[str]:
    """Evidence of waits: how often, for how long, where, and what it cost."""
    ledger, host = evidence.ledger, evidence.timeline.host
    low, high = ledger.window
    calls = np.unique(outermost(evidence.nesting, waits)[np.flatnonzero(waits)])
    calls = calls[(host.start[calls] < high) & (host.end[calls] > low)]
    length = host.end[calls] - host.start[calls]
    inside = evidence.ns(lost.claims & evidence.accounts(*_WAITS))
    after = evidence.ns(lost.claims) - inside
    said = [
        f"The host {did} {wording.count_per_step(len(calls), 'times', ledger)}: "
        f"{wording.per_step(int(length.sum()), ledger)} blocked, "
        f"{wording.ns(float(np.median(length)))} in the median.",
        f"The GPU ran dry behind {wording.count_per_step(len(lost.roots), 'of them', ledger)}: "
        f"it idled {wording.per_step(inside, ledger)} until they returned and "
        f"{wording.per_step(after, ledger)} until the host had launched again (an upper bound, "
        "held to the time the host was blocked).",
    ]
    if found := places.best(evidence, lost.roots.astype(np.int32), lost.root_ns):
        said.append(f"Most at {places.told(evidence, found)}.")
    return said
