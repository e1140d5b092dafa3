"""All rules in the order in which they may claim time: special ones before the general."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whyidle.causes import (
    communication,
    input,
    interruption,
    memory,
    model,
    parallelism,
    visibility,
)
from whyidle.causes.evidence import Evidence, Finding
from whyidle.ledger.model import Ledger
from whyidle.timeline.columns import Timeline
from whyidle.timeline.nesting import Nesting

Rule = Callable[[Evidence], Finding | None]

# Phases with a name of their own come first; then what explains host time by a named reason, before
# "too many launches", which takes what nobody else explains; last what other kernels could win.
RULES: tuple[Rule, ...] = (
    *visibility.RULES,
    *interruption.RULES,
    *input.RULES,
    *memory.RULES,
    *communication.RULES,
    *model.HOST_RULES,
    *parallelism.RULES,
    *model.DEVICE_RULES,
)


def find(timeline: Timeline, nesting: Nesting, ledger: Ledger) -> tuple[Finding, ...]:
    """All findings of one device, largest loss first; no segment is claimed twice."""
    free = np.ones(len(ledger.segments), np.bool_)
    findings = []
    for rule in RULES:
        finding = rule(Evidence(timeline, nesting, ledger, free))
        if finding is not None:
            if (finding.claims & ~free).any():
                raise AssertionError(f"{finding.rule} claims time that another finding has claimed")
            free = free & ~finding.claims
            findings.append(finding)
    return tuple(sorted(findings, key=lambda f: -f.lost_ns))
