"""Cause "input": the device waits for its next batch. The general rule comes last."""

from whyidle.causes.input.loader import (
    r16_waits_for_batch,
    r17_loads_in_main_process,
    r21_stall_every_few_batches,
    r22_workers_respawn,
)
from whyidle.causes.input.prefetch import r32_no_device_prefetch

RULES = (
    r22_workers_respawn,
    r17_loads_in_main_process,
    r21_stall_every_few_batches,
    r32_no_device_prefetch,
    r16_waits_for_batch,
)

__all__ = [
    "RULES",
    "r16_waits_for_batch",
    "r17_loads_in_main_process",
    "r21_stall_every_few_batches",
    "r22_workers_respawn",
    "r32_no_device_prefetch",
]
