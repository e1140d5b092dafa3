"""Cause "memory": the device waits for copies or the allocator, or computes to save memory."""

from whyidle.causes.memory.allocator import r56_allocates_in_steady_state, r57_empties_cache
from whyidle.causes.memory.recompute import r58_needless_checkpointing
from whyidle.causes.memory.transfer import r54_pageable_copy, r55_blocking_pinned_copy

RULES = (
    r57_empties_cache,
    r56_allocates_in_steady_state,
    r55_blocking_pinned_copy,
    r54_pageable_copy,
    r58_needless_checkpointing,
)

__all__ = [
    "RULES",
    "r54_pageable_copy",
    "r55_blocking_pinned_copy",
    "r56_allocates_in_steady_state",
    "r57_empties_cache",
    "r58_needless_checkpointing",
]
