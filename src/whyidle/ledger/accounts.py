"""The accounts of the GPU-time ledger: every nanosecond of a window goes into exactly one.

The tree and the causes are those of the project's ledger definition (docs/ledger.md).
"""

from __future__ import annotations

from dataclasses import dataclass

CAUSES = (
    "input",
    "parallelism",
    "model",
    "memory",
    "communication",
    "interruption",
    "visibility",
    "hardware",
    "allocation",
)


@dataclass(frozen=True)
class Account:
    """One account. ``cause`` names what its time is lost to; None: useful work or no evidence."""

    name: str
    cause: str | None
    busy: bool


COMPUTE_KINDS = (
    "matmul",
    "convolution",
    "attention",
    "optimizer",
    "embedding",
    "normalization",
    "reduction",
    "elementwise",
    "layout",
    "random",
    "other",
)

# At an instant with several activities the first account in this order that one of them belongs
# to gets the time (compute before communication before copies, as the ledger's table says).
BUSY_ACCOUNTS = (
    *(Account(f"compute.{kind}", None, True) for kind in COMPUTE_KINDS),
    Account("comm.exposed", "communication", True),
    Account("comm.exposed.transfer", "communication", True),
    Account("comm.exposed.wait", "communication", True),
    Account("copy.h2d", "memory", True),
    Account("copy.d2h", "memory", True),
    Account("copy.d2d", "memory", True),
    Account("memset", "memory", True),
)

IDLE_ACCOUNTS = (
    Account("idle.input", "input", False),
    Account("idle.transfer", "memory", False),
    Account("idle.sync", "parallelism", False),
    Account("idle.dispatch", "parallelism", False),
    Account("idle.python", "parallelism", False),
    Account("idle.optimizer", "parallelism", False),
    Account("idle.allocator", "memory", False),
    Account("idle.compile", "model", False),
    Account("idle.comm", "communication", False),
    Account("idle.checkpoint", "interruption", False),
    Account("idle.evaluation", "interruption", False),
    Account("idle.logging", "interruption", False),
    Account("idle.startup", "interruption", False),
    Account("idle.gc", "interruption", False),
    Account("idle.profiler", "visibility", False),
    Account("idle.queue", "parallelism", False),
    Account("idle.unattributed", None, False),
)

ACCOUNTS = BUSY_ACCOUNTS + IDLE_ACCOUNTS
INDEX = {account.name: i for i, account in enumerate(ACCOUNTS)}
FIRST_IDLE = len(BUSY_ACCOUNTS)
