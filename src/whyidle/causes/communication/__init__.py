"""Cause "communication": the device waits in or for collectives. The general rule comes last."""

from whyidle.causes.communication.data_parallel import r66_data_parallel
from whyidle.causes.communication.exposed import r63_exposed_communication
from whyidle.causes.communication.rounds import r64_sync_every_micro_batch
from whyidle.causes.communication.small import r76_small_collectives

RULES = (
    r66_data_parallel,
    r64_sync_every_micro_batch,
    r76_small_collectives,
    r63_exposed_communication,
)

__all__ = [
    "RULES",
    "r63_exposed_communication",
    "r64_sync_every_micro_batch",
    "r66_data_parallel",
    "r76_small_collectives",
]
