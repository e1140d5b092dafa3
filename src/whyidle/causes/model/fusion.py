"""R51: elementwise and normalisation kernels, bound by memory traffic, take most of the time."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.model.kernels import BUSY_SIDE_SHARE, UPPER_BOUND, ns_of_activities, runs, told
from whyidle.causes.segments import computing, of_activity

# From this share of the GPU's busy time on (rules.tsv R51; ours, unverified).
DOMINATED_SHARE = 0.40

_KINDS = ("elementwise", "normalization")
_REMEDIES = (
    Remedy(
        "compile-chains",
        "approximate",
        "torch.compile the model, or the blocks with these chains: one kernel a chain.",
    ),
    Remedy(
        "fused-layers",
        "approximate",
        "Use fused layers (torch.nn.functional.rms_norm, layer_norm, fused rotary "
        "embedding, fused SwiGLU) instead of writing them out.",
    ),
)


def r51_elementwise_dominated(evidence: Evidence) -> Finding | None:
    """Chains of elementwise and normalisation kernels take more than matmuls do.

    Claims unbroken runs of two or more such kernels on a stream, where such kernels are more than
    ``DOMINATED_SHARE`` of the busy time. Fused into one, a run takes at least as long as its
    longest kernel: lost is the rest (ours), told from ``BUSY_SIDE_SHARE`` of the window.
    """
    ledger, timeline = evidence.ledger, evidence.timeline
    whole = ledger.ns(*(f"compute.{kind}" for kind in _KINDS))
    if whole <= DOMINATED_SHARE * ledger.busy_ns:
        return None
    chains = runs(evidence, _KINDS)
    chosen = np.zeros(len(timeline.device), np.bool_)
    for chain in chains:
        chosen[chain] = True
    claims = computing(evidence) & of_activity(evidence, chosen)
    ns = ns_of_activities(evidence, claims)
    lost = sum(int(ns[chain].sum() - ns[chain].max()) for chain in chains)
    if not worth(evidence, lost, BUSY_SIDE_SHARE):
        return None
    seg = ledger.segments
    said = [
        f"Elementwise and normalisation kernels are {wording.percent(whole / ledger.busy_ns)} of "
        "the GPU's busy time.",
        *told(
            evidence,
            claims,
            f"{wording.count_per_step(len(chains), 'chains', ledger)} of "
            f"{wording.number(float(np.mean([len(c) for c in chains])))} such kernels on average "
            "run",
        ),
    ]
    rows = np.flatnonzero(claims)
    if found := places.code_lines(evidence, seg.launch[rows], seg.ns[rows])[:3]:
        said.append(f"Launched at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R51",
        "model",
        "Unfused elementwise kernels take most of the GPU's time",
        claims,
        said,
        _REMEDIES,
        "If memory bandwidth is already near its peak with few bytes to save (DRAM activity above "
        "0.8 in long kernels), fusing gains less.",
        lost,
        (f"{UPPER_BOUND} It counts each chain but its longest kernel.",),
    )
