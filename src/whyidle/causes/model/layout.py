"""R40: tensors are turned between NCHW and NHWC around convolutions."""

from __future__ import annotations

from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.model.kernels import BUSY_SIDE_SHARE, UPPER_BOUND, told
from whyidle.causes.segments import busy_share, computing, running

# Layout kernels from this share of the GPU's time on (rules.tsv R40; ours, unverified).
LAYOUT_SHARE = 0.05

# cuDNN's and MIOpen's own changes of layout, not the transposes of the model's code.
_LAYOUT = (
    r"(?i)nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|batched_transpose_|pack_nhwc|tensor_?transform"
)


def r40_layout_kernels(evidence: Evidence) -> Finding | None:
    """Convolutions turn NCHW tensors to NHWC and back.

    Claims the layout kernels of cuDNN and MIOpen, from ``LAYOUT_SHARE`` of the GPU's busy time and
    ``BUSY_SIDE_SHARE`` of the window, where there are convolutions. All of their time is counted.
    """
    if not evidence.ledger.ns("compute.convolution"):
        return None
    claims = computing(evidence) & running(evidence, _LAYOUT)
    lost = evidence.ns(claims)
    if busy_share(evidence, claims) <= LAYOUT_SHARE or not worth(evidence, lost, BUSY_SIDE_SHARE):
        return None
    return finding(
        evidence,
        "R40",
        "model",
        "Convolutions turn tensors between NCHW and NHWC",
        claims,
        told(evidence, claims, "Kernels that only change the layout run"),
        (
            Remedy(
                "channels-last",
                "approximate",
                "model.to(memory_format=torch.channels_last), and the input likewise: other "
                "convolution kernels are taken, which round differently.",
            ),
        ),
        "Some operators of the model do not support channels_last: then tensors are turned there "
        "instead.",
        notes=(f"{UPPER_BOUND} Convolutions in NHWC may be faster as well, which is not counted.",),
    )
