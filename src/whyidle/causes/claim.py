"""From claimed segments to a Finding, or to none where the loss is too small to be told."""

from __future__ import annotations

from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.timeline.columns import Bool

# A finding below this share of the window is not worth a user's time. Ours.
MIN_SHARE = 0.02


def finding(
    evidence: Evidence,
    rule: str,
    cause: str,
    title: str,
    claims: Bool,
    sentences: list[str],
    remedies: tuple[Remedy, ...],
    disproof: str,
    lost_ns: int | None = None,
    notes: tuple[str, ...] = (),
) -> Finding:
    """A finding that claims ``claims``; ``lost_ns`` is all of their time unless given.

    The gain's upper bound is the lost time's share of the window.
    """
    claimed = evidence.ns(claims)
    lost = claimed if lost_ns is None else min(lost_ns, claimed)
    window = evidence.ledger.window_ns
    return Finding(
        rule,
        cause,
        title,
        claims,
        lost,
        evidence.by_account(claims),
        tuple(sentences),
        remedies,
        disproof,
        min(lost / window, 1.0) if window else 0.0,
        notes,
    )


def worth(evidence: Evidence, lost_ns: int, share: float = MIN_SHARE) -> bool:
    """Whether a loss reaches ``share`` of the window."""
    return lost_ns > 0 and lost_ns >= share * evidence.ledger.window_ns
