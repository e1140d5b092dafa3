"""What a rule reads (Evidence) and what it says (Finding)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from whyidle.ledger.accounts import ACCOUNTS, INDEX
from whyidle.ledger.model import Ledger, sums
from whyidle.timeline.columns import Bool, Timeline
from whyidle.timeline.nesting import Nesting


@dataclass(frozen=True)
class Remedy:
    """What to do. ``numerics`` is "exact", "approximate", "changes training" or "config"."""

    id: str
    numerics: str
    text: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """One device's evidence: its timeline, nesting and ledger, and which time is unclaimed.

    ``free`` has the shape of ``ledger.segments``: a rule may claim only free segments, so that no
    second is claimed by two findings.
    """

    timeline: Timeline
    nesting: Nesting
    ledger: Ledger
    free: Bool

    def accounts(self, *names: str) -> Bool:
        """Mask of the free segments in the named accounts; "idle." takes all below it."""
        wanted = np.zeros(len(ACCOUNTS), np.bool_)
        for account, i in INDEX.items():
            wanted[i] = any(
                account == n or (n.endswith(".") and account.startswith(n)) for n in names
            )
        return self.free & wanted[self.ledger.segments.account]

    def ns(self, mask: Bool) -> int:
        """Nanoseconds in the masked segments."""
        return int(self.ledger.segments.ns[mask].sum())

    def share(self, mask: Bool) -> float:
        """Share of the window in the masked segments."""
        return self.ns(mask) / self.ledger.window_ns if self.ledger.window_ns else 0.0

    def by_account(self, mask: Bool) -> dict[str, int]:
        """Nanoseconds of the masked segments by account name, zeros left out."""
        seg = self.ledger.segments
        table = sums(seg.account[mask], seg.ns[mask])
        return {ACCOUNTS[i].name: int(table[i]) for i in np.flatnonzero(table)}


@dataclass(frozen=True, eq=False)
class Finding:
    """A cause of lost time on one device.

    ``claims`` marks the ledger segments (all free in the evidence given) whose time this finding
    explains; ``lost_ns`` is at most their sum (less where only a part of busy time can be won).
    ``gain_upper_bound`` is a share of the window, in [0, 1]. ``evidence`` are sentences, the most
    telling first. ``disproof`` says what would show the finding to be wrong.
    """

    rule: str
    cause: str
    title: str
    claims: Bool
    lost_ns: int
    accounts: dict[str, int]
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    disproof: str
    gain_upper_bound: float
    notes: tuple[str, ...] = field(default=())
