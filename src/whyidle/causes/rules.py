"""All rules in the order in which they may claim time: special ones before the general."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import importlib
import importlib.util

from whyidle.causes.evidence import Evidence, Finding
from whyidle.ledger.model import Ledger
from whyidle.timeline.columns import Timeline
from whyidle.timeline.nesting import Nesting

Rule = Callable[[Evidence], Finding | None]

# Phases with a name of their own come first; "too many launches" takes what nobody else explains.
_ROOMS = ("visibility","interruption","input","memory","communication","parallelism","model")
# TEMPORARY until all rooms have landed
RULES: tuple[Rule, ...] = tuple(
    r for room in _ROOMS if importlib.util.find_spec("whyidle.causes." + room)
    for r in importlib.import_module("whyidle.causes." + room).RULES
)


def find(timeline: Timeline, nesting: Nesting, ledger: Ledger) -> tuple[Finding, ...]:
    """All findings of one device, largest loss first; no segment is claimed twice."""
    free = np.ones(len(ledger.segments), np.bool_)
    findings = []
    for rule in RULES:
        finding = rule(Evidence(timeline, nesting, ledger, free))
        if finding is not None:
            assert not (finding.claims & ~free).any(), f"{finding.rule} claims claimed time"
            free = free & ~finding.claims
            findings.append(finding)
    return tuple(sorted(findings, key=lambda f: -f.lost_ns))
