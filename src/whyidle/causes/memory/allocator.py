"""The host allocates or frees device memory in every step: R56, R57."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import MIN_SHARE, finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.segments import held_by, step_of, steps_known
from whyidle.timeline.columns import Bool, HostKind
from whyidle.timeline.select import events_named, under

# The caching allocator has warmed up after the first recorded step; from then on calls in this
# many steps are steady state. Ours (rules.tsv R56: retries after warm-up > 0).
STEADY_STEPS = 2

_FOR_PINNED = (
    Remedy(
        "reuse-pinned-buffers",
        "exact",
        "Allocate pinned buffers once and copy into them, or let the loader pin (pin_memory=True).",
    ),
)
_FOR_DEVICE = (
    Remedy(
        "expandable-segments",
        "exact",
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that blocks grow "
        "instead of being freed and allocated anew.",
    ),
    Remedy(
        "bucket-shapes",
        "exact",
        "Pad or bucket shapes to a few sizes, so that cached blocks fit.",
    ),
    Remedy(
        "leave-memory-free",
        "changes training",
        "Leave some device memory free: a smaller micro-batch, or less held alive.",
    ),
)

_CALLS = (
    r"^(cuda|hip|cu)(Malloc|Free|Host(Alloc|Register|Unregister)|Mem(Alloc|Free|Create|Map|Unmap|"
    r"Release|HostAlloc))"
)
_FREES = r"^(cuda|hip)Free$|^(cu|hip)Mem(Free|Unmap|Release)(_v2)?$"  # not cudaFreeAsync
_EMPTY_CACHE = r"_cuda_emptyCache|torch/cuda/memory\.py\(\d+\): empty_cache|empty_cache"
_COLLECT = r"built-in function collect|gc\.collect"


def r56_allocates_in_steady_state(evidence: Evidence) -> Finding | None:
    """The allocator asks the driver for memory in steady state: its cache does not hold.

    Claims ``idle.allocator`` after the first step, where the driver is called in
    ``STEADY_STEPS`` later steps or more, from ``MIN_SHARE`` of the window (both ours; the trace has
    no num_alloc_retries). Without steps, start-up cannot be told from steady state.
    """
    steady = _steady(evidence, _driver_calls(evidence))
    if not steady.any():
        return None
    ledger, seg = evidence.ledger, evidence.ledger.segments
    claims = evidence.accounts("idle.allocator") & (step_of(evidence, seg.start) > 0)
    if not worth(evidence, evidence.ns(claims), MIN_SHARE):
        return None
    rows = np.flatnonzero(claims)
    said = [
        f"The GPU idles {wording.per_step(evidence.ns(claims), ledger)} while the host allocates "
        "or frees memory, in steps after the first.",
        f"Calls after the first step: {_names(evidence, steady)}.",
    ]
    if found := places.best(evidence, seg.host[rows], seg.ns[rows]):
        said.append(f"Most at {places.told(evidence, found)}.")
    pinning = _mostly(evidence, steady, r"Host")
    return finding(
        evidence,
        "R56",
        "memory",
        "Pinned host memory is allocated in every step"
        if pinning
        else "Device memory is allocated from the driver in every step",
        claims,
        said,
        _FOR_PINNED if pinning else _FOR_DEVICE,
        "torch.cuda.memory_stats()['num_alloc_retries'] and ['num_device_alloc'] do not grow after "
        "the warm-up.",
    )


def r57_empties_cache(evidence: Evidence) -> Finding | None:
    """``torch.cuda.empty_cache()`` or ``gc.collect()`` runs in the loop.

    Seen by Python frames, or by driver frees outside any operator (the allocator's own retries free
    inside the operator that allocates). Claims the idle time inside them, and that of allocating
    anew what was freed, from ``MIN_SHARE`` of the window, in ``STEADY_STEPS`` steps after the first
    or more (both ours; rules.tsv R57 gives no threshold).
    """
    timeline, nesting, ledger = evidence.timeline, evidence.nesting, evidence.ledger
    collected = events_named(timeline, _COLLECT, (HostKind.PYTHON, HostKind.ANNOTATION))
    emptied = events_named(timeline, _EMPTY_CACHE, (HostKind.PYTHON, HostKind.ANNOTATION))
    emptied |= _frees_outside_operators(evidence)
    emptied = _steady(evidence, emptied)
    collected = _steady(evidence, collected)
    if not (emptied.any() or collected.any()):
        return None
    inside = held_by(evidence, under(nesting, emptied | collected))
    claims = inside & evidence.accounts("idle.")
    if emptied.any():
        later = step_of(evidence, ledger.segments.start) > 0
        claims |= evidence.accounts("idle.allocator") & later
    if not worth(evidence, evidence.ns(claims), MIN_SHARE):
        return None
    rows = np.flatnonzero(claims)
    again = evidence.ns(claims & ~inside)
    said = [
        f"The GPU idles {wording.per_step(evidence.ns(claims & inside), ledger)} while the host "
        "empties the allocator's cache or collects garbage"
        + (f", and {wording.per_step(again, ledger)} while it allocates anew." if again else "."),
        f"Calls after the first step: {_names(evidence, emptied | collected)}.",
    ]
    seg = ledger.segments
    if found := places.best(evidence, seg.host[rows], seg.ns[rows]):
        said.append(f"Most at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R57",
        "memory",
        "The allocator's cache is emptied in the training loop"
        if emptied.any()
        else "Garbage is collected by hand in the training loop",
        claims,
        said,
        (
            Remedy(
                "drop-empty-cache",
                "exact",
                "Remove torch.cuda.empty_cache() and gc.collect() from the loop; if memory then "
                "runs out, call them every N steps (try 10) or use expandable segments.",
            ),
        ),
        "Without the calls the run goes out of memory: then they are needed, only less often.",
    )


def _driver_calls(evidence: Evidence) -> Bool:
    return events_named(evidence.timeline, _CALLS, (HostKind.RUNTIME,))


def _frees_outside_operators(evidence: Evidence) -> Bool:
    """Driver frees that no operator made; none where operators are not recorded."""
    timeline = evidence.timeline
    if not timeline.has_operators:
        return np.zeros(len(timeline.host), np.bool_)
    frees = events_named(timeline, _FREES, (HostKind.RUNTIME,))
    return frees & ~under(evidence.nesting, timeline.host.kind == HostKind.OPERATOR)


def _steady(evidence: Evidence, events: Bool) -> Bool:
    """The events after the first step, if they come in ``STEADY_STEPS`` steps or more."""
    if not steps_known(evidence) or not events.any():
        return np.zeros(len(events), np.bool_)
    start = evidence.timeline.host.start
    step = step_of(evidence, start)
    late = events & (step > 0) & (start < evidence.ledger.window[1])
    return late if len(np.unique(step[late])) >= STEADY_STEPS else np.zeros_like(late)


def _names(evidence: Evidence, events: Bool) -> str:
    """Names of the events with their count and host time."""
    timeline, host = evidence.timeline, evidence.timeline.host
    rows = np.flatnonzero(events)
    unique, group = np.unique(host.name[rows], return_inverse=True)
    total = np.zeros(len(unique), np.int64)
    np.add.at(total, group, host.end[rows] - host.start[rows])
    count = np.bincount(group)
    order = np.argsort(-total, kind="stable")[:4]
    return wording.listed(
        [
            f"{count[i]:,} {wording.short(timeline.names[unique[i]], 60)} "
            f"({wording.ns(int(total[i]))} on the host)"
            for i in order
        ]
    )


def _mostly(evidence: Evidence, events: Bool, pattern: str) -> bool:
    """Whether events named so hold most of the events' host time."""
    host = evidence.timeline.host
    length = host.end - host.start
    named = events & events_named(evidence.timeline, pattern)
    return 2 * int(length[named].sum()) > int(length[events].sum())
