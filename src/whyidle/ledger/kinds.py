"""What kind of work a device activity is, by its name."""

from __future__ import annotations

import re

import numpy as np

from whyidle.ledger.accounts import INDEX
from whyidle.timeline.columns import U8, DeviceEvents, DeviceKind
from whyidle.timeline.intervals import coded

COMMUNICATION = re.compile(
    r"nccl|rccl|mscclpp|oneccl|\bmsccl|cross_device_reduce|nvshmem|multimem_|"
    r"symm_?mem|one_shot_all_?reduce|two_shot_all_?reduce",
    re.IGNORECASE,
)

# The first pattern that a kernel's name holds decides. Names are those of cuDNN, cuBLAS, CUTLASS,
# MIOpen, Tensile (Cijk_), PyTorch's native kernels, Triton as Inductor names it, and FBGEMM.
_KINDS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            "optimizer",
            r"multi_tensor_apply|fused_?(adam|sgd|lamb|adagrad)|\badam|adagrad|optimizer|"
            r"FusedOptimizer",
        ),
        (
            "layout",
            r"nchwtonhwc|nhwctonchw|(?<!cublas)transpose(?!d)|(?<!No)permute(?!_?1D|_?2D|_indices)|"
            r"CatArray|im2col|col2im|tensor_?transform|SubTensorOpWith|pack_nhwc|convertTensor",
        ),
        ("attention", r"flash|fmha|attention|attn|_sdpa"),
        (
            "normalization",
            r"batch_?norm|layer_?norm|group_?norm|instance_?norm|rms_?norm|\bbn_|::bn|welford(?!Ops)|"
            r"RowwiseMoments|ComputeInternalGradients|GammaBeta",
        ),
        (
            "convolution",
            r"conv(?!ert)|wgrad|dgrad|fprop|winograd|scudnn|cudnn.*(gemm|infer)|cask_cudnn|igemm|"
            r"implicit_gemm|SparseConv|xdlops_bwd_(weight|data)|fft2d_(r2c|c2r)",
        ),
        (
            "matmul",
            r"(?<!fb)gemm|gemv|cutlass|xmma|cublas|Cijk_|matmul|splitkreduce|\bmm_|_mm\b|addmm|bmm|"
            r"triton_tem|nvjet|dot_kernel|magma",
        ),
        (
            "embedding",
            r"embedding|index_?select|gather|scatter|index_put|indexing_backward|index_elementwise|"
            r"tbe_|permute_?[12]D|permute_indices|lookup|linearize_index|bounds_check_indices|"
            r"bucketize_sparse",
        ),
        ("random", r"distribution_|philox|dropout|bernoulli|curand|_and_transform|randperm"),
        (
            "reduction",
            r"reduce|softmax|norm_kernel|scan|sort|top_?k|arg_?max|arg_?min|nll_loss|"
            r"cross_entropy|NLLCriterion|triton_(per|red)|sum_kernel|mean_kernel|\bcub::",
        ),
        (
            "elementwise",
            r"elementwise|pointwise|unrolled|vectorized|triton_poi|functor|copy_kernel|fill|"
            r"scalePackedTensor|quantize_cuda|_to_float_cuda",
        ),
    )
)


def kernel_kind(name: str) -> str:
    """The kind of a computing kernel, "other" where its name tells nothing."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "other")


def busy_account(name: str, kind: int) -> str:
    """The ledger account of an activity that runs alone."""
    if kind == DeviceKind.MEMSET:
        return "memset"
    if kind == DeviceKind.MEMCPY:
        lowered = name.lower()
        if "htod" in lowered or "hosttodevice" in lowered or "h2d" in lowered:
            return "copy.h2d"
        if "dtoh" in lowered or "devicetohost" in lowered or "d2h" in lowered:
            return "copy.d2h"
        return "copy.d2d"
    if COMMUNICATION.search(name):
        return "comm.exposed"
    return f"compute.{kernel_kind(name)}"


def busy_accounts(device: DeviceEvents, names: list[str]) -> U8:
    """The account index of each device event, shape (n,)."""
    key = device.name.astype(np.int64) * 4 + device.kind
    unique, inverse = coded(key)
    table = np.array(
        [INDEX[busy_account(names[int(k) // 4], int(k) % 4)] for k in unique], np.uint8
    )
    return table[inverse] if len(table) else np.empty(0, np.uint8)
