"""R46: attention made of separate matmuls and a softmax, which writes its scores to memory."""

from __future__ import annotations

import re

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.model.kernels import BUSY_SIDE_SHARE, UPPER_BOUND, kinds, streams, told
from whyidle.causes.segments import computing, of_activity
from whyidle.timeline.columns import I64, Bool, HostKind
from whyidle.timeline.select import events_named, of_host, under

REACH = 8  # kernels between a matmul and the softmax: scale, mask, dropout, casts. Ours.

_SOFTMAX = re.compile(r"(?i)softmax")
_BATCHED_MATMUL = r"^aten::(bmm|baddbmm)$"
_BETWEEN = ("elementwise", "random", "reduction", "layout")


def r46_unfused_attention(evidence: Evidence) -> Finding | None:
    """Attention is computed as matmul, softmax, matmul, each score going through memory.

    A softmax kernel counts where a batched matmul comes before and after it on its stream with
    nothing but elementwise, random, reduction and layout kernels between. Claims the softmax and
    the kernels between, which a fused kernel (scaled_dot_product_attention) keeps on the chip; the
    matmuls stay. All of their time is counted, from ``BUSY_SIDE_SHARE`` of the window (ours).
    """
    inside, softmaxes = _between_matmuls(evidence)
    claims = computing(evidence) & of_activity(evidence, inside)
    if not worth(evidence, evidence.ns(claims), BUSY_SIDE_SHARE):
        return None
    seg, ledger = evidence.ledger.segments, evidence.ledger
    said = told(evidence, claims, "Softmax, masks and scales between batched matmuls run")
    said.append(f"{wording.count_per_step(softmaxes, 'such softmax kernels', ledger)}.")
    rows = np.flatnonzero(claims)
    if found := places.code_lines(evidence, seg.launch[rows], seg.ns[rows])[:3]:
        said.append(f"Launched at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R46",
        "model",
        "Attention is not fused",
        claims,
        said,
        (
            Remedy(
                "fused-attention",
                "approximate",
                "Use torch.nn.functional.scaled_dot_product_attention (or flex_attention, or "
                'attn_implementation="sdpa"); is_causal=True instead of a dense mask, for a mask '
                "keeps the flash kernel away.",
            ),
        ),
        "If the scores themselves are needed (returned attention weights), fusion is not possible.",
        notes=(UPPER_BOUND,),
    )


def _between_matmuls(evidence: Evidence) -> tuple[Bool, int]:
    """Kernels from batched matmul to batched matmul around a softmax, and how many softmaxes."""
    timeline = evidence.timeline
    found = np.zeros(len(timeline.device), np.bool_)
    softmax_name = np.array([bool(_SOFTMAX.search(n)) for n in timeline.names])
    batched = _batched(evidence)
    softmaxes = 0
    for rows in streams(evidence):
        kind = kinds(evidence, rows)
        softmax = softmax_name[timeline.device.name[rows]]
        ends = batched[rows] & np.array([k == "matmul" for k in kind], np.bool_)
        passes = np.array([k in _BETWEEN for k in kind], np.bool_) | softmax
        for i in np.flatnonzero(softmax):
            before = _reach(ends, passes, int(i), -1)
            after = _reach(ends, passes, int(i), 1)
            if before is not None and after is not None:
                softmaxes += 1
                found[rows[before + 1 : after]] = True
    return found, softmaxes


def _reach(ends: Bool, passes: Bool, at: int, direction: int) -> int | None:
    """The nearest end from ``at`` in a direction, over kernels that may lie between."""
    for offset in range(1, REACH + 2):
        i = at + direction * offset
        if not 0 <= i < len(ends):
            return None
        if ends[i]:
            return i
        if not passes[i]:
            return None
    return None


def _batched(evidence: Evidence) -> Bool:
    """Device events launched by a batched matmul; all, where operators are not recorded."""
    timeline = evidence.timeline
    launch: I64 = timeline.device.launch.astype(np.int64)
    if not timeline.has_operators or not (launch >= 0).any():
        return np.ones(len(launch), np.bool_)
    operators = events_named(timeline, _BATCHED_MATMUL, (HostKind.OPERATOR,))
    return of_host(under(evidence.nesting, operators), timeline.device.launch)
