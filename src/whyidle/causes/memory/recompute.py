"""R58: activations are computed again in the backward pass though memory is free."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.segments import computing, held_by, launched_by
from whyidle.timeline.columns import Bool, HostKind
from whyidle.timeline.select import events_named, innermost, of_host, under

# Checkpointing is needless where the peak of reserved memory is below this share of the device's
# (rules.tsv R58; ours, unverified).
PEAK_SHARE = 0.60
RECOMPUTE_SHARE = 0.05  # of the window, from which on it is told. Ours.

# What computes the forward pass again: non-reentrant checkpoints in a hook, reentrant ones in an
# autograd function.
_RECOMPUTES = (
    r"^(autograd::engine::evaluate_function: )?CheckpointFunctionBackward$|"
    r"torch/utils/checkpoint\.py\(\d+\): (unpack_hook|recompute_fn|backward)$"
)
_NODE = r"^autograd::engine::evaluate_function: (?!CheckpointFunctionBackward)"
# Operators that only the code of a forward pass calls.
_FORWARD_ONLY = (
    r"^aten::(conv[123]d|linear|batch_norm|layer_norm|group_norm|scaled_dot_product_attention|"
    r"embedding|max_pool2d|dropout)$"
)


def r58_needless_checkpointing(evidence: Evidence) -> Finding | None:
    """The backward pass computes activations again, with enough memory to keep them.

    Claims the kernels that the recomputation launches and the idle time while the host is in it,
    from ``RECOMPUTE_SHARE`` of the window, where the peak of reserved memory is known (recorded
    with profile_memory) and below ``PEAK_SHARE`` of the device's. An upper bound: keeping
    activations costs their time in memory traffic.
    """
    ledger = evidence.ledger
    share = _peak_share(evidence)
    if share is None or share >= PEAK_SHARE:
        return None
    again = recomputing(evidence)
    if not again.any():
        return None
    claims = launched_by(evidence, again) & computing(evidence)
    claims |= held_by(evidence, again) & evidence.accounts("idle.dispatch", "idle.python")
    if not worth(evidence, evidence.ns(claims), RECOMPUTE_SHARE):
        return None
    seg = ledger.segments
    idle = evidence.ns(claims & seg.idle)
    rows = np.flatnonzero(claims)
    host = np.where(seg.idle[rows], seg.host[rows], seg.launch[rows])
    said = [
        f"Kernels of the forward pass run again in the backward pass: "
        f"{wording.per_step(evidence.ns(claims) - idle, ledger)}, and the GPU idles "
        f"{wording.per_step(idle, ledger)} while the host launches them.",
        f"The peak of reserved memory is {wording.percent(share)} of the device's "
        f"{wording.size(_memory(evidence))}.",
    ]
    if found := places.best(evidence, host, seg.ns[rows]):
        said.append(f"Recomputed at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R58",
        "memory",
        "Activation checkpointing, though memory is free",
        claims,
        said,
        (
            Remedy(
                "no-checkpointing",
                "exact",
                "Switch activation checkpointing off, or checkpoint only the layers that need it "
                "(gradient_checkpointing=False, selective checkpointing).",
            ),
        ),
        "If the free memory is to be used by a larger batch, checkpointing is needed after all.",
        notes=("An upper bound: memory grows by the activations that are kept.",),
    )


def recomputing(evidence: Evidence) -> Bool:
    """Host events that compute a forward pass again inside a backward pass."""
    timeline, nesting = evidence.timeline, evidence.nesting
    redo = events_named(timeline, _RECOMPUTES)
    nodes = events_named(timeline, _NODE, (HostKind.OPERATOR,))
    # A reentrant checkpoint's own backward runs inside it, node by node: that is no recomputation.
    inner = innermost(nesting, redo | nodes)
    found = of_host(redo, inner)
    if redo.any():
        return found
    forward = events_named(timeline, _FORWARD_ONLY, (HostKind.OPERATOR,))
    backward = under(nesting, nodes)
    return under(nesting, forward & backward)


def _peak_share(evidence: Evidence) -> float | None:
    memory = _memory(evidence)
    peak = evidence.timeline.peak_reserved_bytes.get(evidence.ledger.device)
    return None if not memory or peak is None else peak / memory


def _memory(evidence: Evidence) -> int:
    properties = evidence.timeline.properties(evidence.ledger.device)
    return properties.memory_bytes if properties else 0
