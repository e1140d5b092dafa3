"""R11: kernels with fewer thread blocks than the device has multiprocessors."""

from __future__ import annotations

import numpy as np

from whyidle.causes import wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.ledger.accounts import ACCOUNTS
from whyidle.timeline.columns import I64

# The part of the window that idle multiprocessors must waste before it is told. The gain is an
# estimate from the grid alone, so the bar is high (rules.tsv R11: unverified estimate). Ours.
WASTED_SHARE = 0.20

_COMPUTE = np.array([a.name.startswith("compute.") for a in ACCOUNTS])


def r11_small_grid(evidence: Evidence) -> Finding | None:
    """Compute kernels leave multiprocessors (SMs) empty.

    A kernel of b blocks on s SMs uses at most b of them, so at most 1 - b/s of its time could be
    won, were the empty SMs given equal work: an upper bound. Fires from ``WASTED_SHARE`` of the
    window. Kernels beside others on further streams are not told apart.
    """
    properties = evidence.timeline.properties(evidence.ledger.device)
    if properties is None or properties.sms <= 0:
        return None
    seg, device = evidence.ledger.segments, evidence.timeline.device
    blocks = np.where(seg.activity >= 0, device.blocks[seg.activity], -1)
    claims = evidence.free & _COMPUTE[seg.account] & (blocks > 0) & (blocks < properties.sms)
    rows = np.flatnonzero(claims)
    wasted = seg.ns[rows] * (properties.sms - blocks[rows]) // properties.sms
    lost = int(wasted.sum())
    if not worth(evidence, lost, WASTED_SHARE):
        return None
    ledger = evidence.ledger
    said = [
        f"Kernels with fewer blocks than the GPU's {properties.sms} multiprocessors run "
        f"{wording.per_step(evidence.ns(claims), ledger)}, "
        f"{wording.number(_median_blocks(blocks[rows], seg.ns[rows]))} blocks in the median by "
        f"time; their empty multiprocessors are worth {wording.per_step(lost, ledger)} at most.",
        f"Most of it in {_worst(evidence, rows, wasted)}.",
    ]
    return finding(
        evidence,
        "R11",
        "parallelism",
        "Kernels too small to fill the GPU",
        claims,
        said,
        (
            Remedy(
                "batch-work",
                "approximate",
                "Do the same work in fewer, larger kernels: a larger batch, torch.vmap or bmm in "
                "place of loops over samples, heads or experts.",
            ),
            Remedy(
                "fuse-small-kernels",
                "approximate",
                "Fuse chains of small kernels with torch.compile.",
            ),
            Remedy(
                "share-the-gpu",
                "config",
                "If the work cannot be larger, share the GPU (MPS, MIG) with other jobs.",
            ),
        ),
        "Read SM activity (DCGM_FI_PROF_SM_ACTIVE): at 0.8 or more the grid is no limit; a kernel "
        "already bound by memory bandwidth gains less or nothing.",
        lost,
        ("An estimate from grid sizes: occupancy and memory bandwidth are not in the trace.",),
    )


def _median_blocks(blocks: I64, ns: I64) -> float:
    order = np.argsort(blocks)
    reached = np.cumsum(ns[order])
    return float(blocks[order][np.searchsorted(reached, reached[-1] / 2)])


def _worst(evidence: Evidence, rows: I64, wasted: I64) -> str:
    timeline = evidence.timeline
    name = timeline.device.name[evidence.ledger.segments.activity[rows]]
    unique, group = np.unique(name, return_inverse=True)
    total = np.zeros(len(unique), np.int64)
    np.add.at(total, group, wasted)
    top = np.argsort(-total, kind="stable")[:3]
    return wording.listed(
        [
            f"{wording.short(timeline.names[unique[i]], 60)} "
            f"({wording.per_step(int(total[i]), evidence.ledger)})"
            for i in top
        ]
    )
