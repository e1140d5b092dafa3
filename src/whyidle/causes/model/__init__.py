"""Cause "model": what the model's own code makes the device, or the host, do for nothing.

``HOST_RULES`` explain host time by a named reason, so they claim before the general rules of
parallelism; ``DEVICE_RULES`` are upper bounds of what other kernels could save, and claim last.
"""

from whyidle.causes.model.attention import r46_unfused_attention
from whyidle.causes.model.compile import r43_recompiles, r44_kernel_built_in_steps
from whyidle.causes.model.debug import r48_debug_flags
from whyidle.causes.model.fusion import r51_elementwise_dominated
from whyidle.causes.model.gradients import r50_zero_fills
from whyidle.causes.model.layout import r40_layout_kernels
from whyidle.causes.model.precision import r38_fp32_without_tf32, r52_fp64_kernels
from whyidle.causes.model.tuning import r41_tunes_convolutions

HOST_RULES = (
    r48_debug_flags,
    r41_tunes_convolutions,
    r43_recompiles,
    r44_kernel_built_in_steps,
    r50_zero_fills,
)
DEVICE_RULES = (
    r52_fp64_kernels,
    r40_layout_kernels,
    r46_unfused_attention,
    r38_fp32_without_tf32,
    r51_elementwise_dominated,
)
RULES = HOST_RULES + DEVICE_RULES

__all__ = [
    "DEVICE_RULES",
    "HOST_RULES",
    "RULES",
    "r38_fp32_without_tf32",
    "r40_layout_kernels",
    "r41_tunes_convolutions",
    "r43_recompiles",
    "r44_kernel_built_in_steps",
    "r46_unfused_attention",
    "r48_debug_flags",
    "r50_zero_fills",
    "r51_elementwise_dominated",
    "r52_fp64_kernels",
]
