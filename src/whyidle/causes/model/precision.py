"""Arithmetic wider than it needs to be: R38 (fp32 without TF32), R52 (fp64)."""

from __future__ import annotations

import re

import numpy as np

from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.model.kernels import BUSY_SIDE_SHARE, UPPER_BOUND, told
from whyidle.causes.segments import busy_share, computing, of_activity
from whyidle.timeline.columns import DeviceProperties

# A large fp32 matmul is about this many times faster with TF32 on an A100 (PyTorch documentation,
# "CUDA semantics", section TF32: 0.016 s against 0.11 s). Whole runs gained 1.0 to 2.2 times
# (rules.tsv R38).
TF32_SPEED_UP = 7
TF32_CAPABILITY = (8, 0)  # Ampere, the first with TF32
# fp64 kernels from this share of the GPU's busy time on (rules.tsv R52; ours, unverified).
FP64_SHARE = 0.01
# fp32 peak over fp64 peak: 2 on data-centre GPUs with full fp64 units, up to 64 on the others
# (ours: from memory of NVIDIA's architectures, not looked up in a data sheet).
FP64_RATIO = 2
FP64_RATIO_OTHERS = 64
_FULL_FP64 = re.compile(r"P100|V100|A100|A30\b|A800|H100|H200|H800|GH200|B200|MI\d|Instinct")

_FP32 = re.compile(
    r"(?<![a-z\d])sgemm|_sgemm|scudnn|simt_s|ffma|f32f32_f32f32|"
    r"(dgrad|wgrad|fprop)\w*_engine<float|explicit_convolve_sgemm|implicit_convolve_sgemm"
)
_TENSOR_CORE = re.compile(r"(?i)tensorop|tf32|s?1688|16816|h884|hmma|wgmma|bf16|f16|half|fp8|e4m3")
_AMD = re.compile(r"(?i)amd|radeon|instinct")
_ARGUMENTS = re.compile(r"\([^()]*\)")
# "double" as the first parameter of a template is the type computed in; elsewhere it may be a
# scalar argument of an fp32 kernel.
_FP64 = re.compile(r"<\s*double\b|(?<![a-z])d(gemm|gemv|trsm|syrk)|d884|f64f64|fp64|_f64_", re.I)


def r38_fp32_without_tf32(evidence: Evidence) -> Finding | None:
    """Matmuls and convolutions run in fp32 on the ordinary cores of a GPU that has TF32.

    Seen by kernel names (sgemm, scudnn, ffma, simt) without marks of tensor cores, on NVIDIA GPUs
    from compute capability 8.0. Won at most 1 - 1/``TF32_SPEED_UP`` of their time; told from
    ``BUSY_SIDE_SHARE`` of the window.
    """
    properties = evidence.timeline.properties(evidence.ledger.device)
    if not _has_tf32(properties):
        return None
    names = evidence.timeline.names
    plain = np.array([bool(_FP32.search(n)) and not _TENSOR_CORE.search(n) for n in names])
    claims = computing(evidence) & of_activity(evidence, plain[evidence.timeline.device.name])
    claims &= evidence.accounts("compute.matmul", "compute.convolution")
    lost = evidence.ns(claims) * (TF32_SPEED_UP - 1) // TF32_SPEED_UP
    if not worth(evidence, lost, BUSY_SIDE_SHARE):
        return None
    return finding(
        evidence,
        "R38",
        "model",
        "Matrix products run in fp32 without tensor cores",
        claims,
        told(evidence, claims, "fp32 matmuls and convolutions without tensor cores run"),
        (
            Remedy(
                "tf32",
                "approximate",
                'torch.set_float32_matmul_precision("high") and '
                "torch.backends.cudnn.allow_tf32=True: inputs are rounded to a 10-bit mantissa.",
            ),
            Remedy(
                "autocast",
                "approximate",
                "torch.autocast with bfloat16 for the forward pass: half the bytes as well.",
            ),
        ),
        "If the products are small or bound by memory, TF32 changes nothing.",
        lost,
        (
            f"{UPPER_BOUND} It counts 1 - 1/{TF32_SPEED_UP} of their time: a large matmul on an "
            "A100 in PyTorch's documentation; whole runs have gained between 1.0 and 2.2 times.",
        ),
    )


def r52_fp64_kernels(evidence: Evidence) -> Finding | None:
    """Kernels compute in fp64, which a training run seldom means to.

    Claims computing kernels whose name says so, from ``FP64_SHARE`` of the busy time and of the
    window. Won at most 1 - 1/ratio of their time, with the GPU's peak rates of fp32 over fp64.
    """
    names = evidence.timeline.names
    double = np.array([is_fp64(n) for n in names])
    claims = computing(evidence) & of_activity(evidence, double[evidence.timeline.device.name])
    properties = evidence.timeline.properties(evidence.ledger.device)
    full = properties is not None and _FULL_FP64.search(properties.name)
    ratio = FP64_RATIO if full else FP64_RATIO_OTHERS
    lost = evidence.ns(claims) * (ratio - 1) // ratio
    if busy_share(evidence, claims) <= FP64_SHARE or not worth(evidence, lost, FP64_SHARE):
        return None
    return finding(
        evidence,
        "R52",
        "model",
        "Kernels compute in fp64",
        claims,
        told(evidence, claims, "fp64 kernels run"),
        (
            Remedy(
                "cast-to-fp32",
                "approximate",
                "Cast where the fp64 tensor comes from: numpy arrays and Python floats are fp64 "
                "(torch.from_numpy(x).float(), dtype=torch.float32).",
            ),
        ),
        "If the fp64 is meant (double-precision science, a loss that needs it), nothing is lost.",
        lost,
        (f"{UPPER_BOUND} It counts 1 - 1/{ratio} of their time, by the peak rates.",),
    )


def is_fp64(name: str) -> bool:
    """Whether a kernel's name says that it computes in fp64."""
    before = ""
    while before != name:  # arguments in round brackets may name double without computing in it
        before, name = name, _ARGUMENTS.sub("", name)
    return bool(_FP64.search(name))


def _has_tf32(properties: DeviceProperties | None) -> bool:
    return (
        properties is not None
        and properties.compute_capability >= TF32_CAPABILITY
        and not _AMD.search(properties.name)  # ROCm reports gfx versions in the same place
    )
