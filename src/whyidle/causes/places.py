"""Where in the program time was lost: code lines where the trace has them, else operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from whyidle.causes import wording
from whyidle.causes.evidence import Evidence
from whyidle.timeline.columns import I32, I64, HostKind
from whyidle.timeline.select import events_named, innermost, location, outermost, place, user_frames

_KEPT = 200  # groups that are put into words; a report shows a few of them


@dataclass(frozen=True)
class Place:
    """A code line or operator, the ns charged to it and the number of host events behind them."""

    text: str
    ns: int
    events: int


def code_lines(evidence: Evidence, host: I32, ns: I64) -> list[Place]:
    """User code lines around the host events, most ns first. Events without one are left out.

    ``host`` holds host indices (-1 none) and ``ns`` the time charged to each, both of shape (n,).
    """
    timeline, nesting = evidence.timeline, evidence.nesting
    if not len(timeline.host) or not len(host):
        return []
    line = innermost(nesting, user_frames(timeline))
    at = np.where(host >= 0, line[host], -1)
    names = timeline.host
    # One key a code line: the name of a Python call, or the recorded stack of another event.
    by_name = names.kind[at] == HostKind.PYTHON
    key = np.where(by_name, names.name[at], len(timeline.names) + names.stack[at])
    return _grouped(
        np.where(at >= 0, key, -1),
        host,
        ns,
        lambda i: location(timeline, nesting, int(at[i])) or "",
    )


def python_functions(evidence: Evidence, host: I32, ns: I64) -> list[Place]:
    """Innermost Python functions around the host events, libraries' too, most ns first."""
    timeline, nesting = evidence.timeline, evidence.nesting
    if not len(timeline.host) or not len(host):
        return []
    frames = events_named(timeline, r"\.pyx?\(\d+\): ", (HostKind.PYTHON,))
    return _by_name(evidence, innermost(nesting, frames), host, ns, place)


def operators(evidence: Evidence, host: I32, ns: I64) -> list[Place]:
    """Outermost framework operators (else runtime calls) around the host events, most ns first."""
    timeline, nesting = evidence.timeline, evidence.nesting
    if not len(timeline.host) or not len(host):
        return []
    kind = timeline.host.kind
    operator = outermost(nesting, kind == HostKind.OPERATOR)
    runtime = outermost(nesting, kind == HostKind.RUNTIME)
    found = np.where(operator >= 0, operator, runtime)
    return _by_name(evidence, found, host, ns, wording.short)


def phases(evidence: Evidence, host: I32, ns: I64) -> list[Place]:
    """Innermost annotations of the user around the host events, steps left out, most ns first."""
    timeline, nesting = evidence.timeline, evidence.nesting
    if not len(timeline.host) or not len(host):
        return []
    marks = events_named(timeline, r"^(?!ProfilerStep#|nn\.Module)", (HostKind.ANNOTATION,))
    return _by_name(evidence, innermost(nesting, marks), host, ns, wording.short)


def best(evidence: Evidence, host: I32, ns: I64, limit: int = 3) -> list[Place]:
    """The most telling places: code lines where recorded, else annotations, else operators."""
    found = (
        code_lines(evidence, host, ns)
        or phases(evidence, host, ns)
        or operators(evidence, host, ns)
    )
    return found[:limit]


def told(evidence: Evidence, found: list[Place]) -> str:
    """Places as prose, each with its time a step."""
    ledger = evidence.ledger
    return wording.listed([f"{p.text} ({wording.per_step(p.ns, ledger)})" for p in found])


def _by_name(
    evidence: Evidence, found: I32, host: I32, ns: I64, text: Callable[[str], str]
) -> list[Place]:
    """Group by the name of what was found at or around each host event (-1 nothing)."""
    timeline = evidence.timeline
    at = np.where(host >= 0, found[host], -1)
    return _grouped(
        np.where(at >= 0, timeline.host.name[at], -1),
        host,
        ns,
        lambda i: text(timeline.names[timeline.host.name[at[i]]]),
    )


def _grouped(key: I64, host: I32, ns: I64, text: Callable[[int], str]) -> list[Place]:
    """Sum ns and count distinct host events by key; keys below 0 are dropped."""
    rows = np.flatnonzero(key >= 0)
    if not len(rows):
        return []
    size = int(key.max()) + 1
    first = np.full(size, -1, np.int64)
    first[key[rows][::-1]] = rows[::-1]
    total = np.zeros(size, np.int64)
    np.add.at(total, key[rows], ns[rows])
    # A host event has one key, so counting it once under its last is counting it once.
    key_of = np.full(int(host.max()) + 1, -1, np.int64)
    key_of[host[rows]] = key[rows]
    count = np.bincount(key_of[key_of >= 0], minlength=size)
    kept = np.flatnonzero(first >= 0)
    # Different stacks may share their line of user code.
    merged: dict[str, Place] = {}
    for i in kept[np.argsort(-total[kept], kind="stable")][:_KEPT]:
        name = text(int(first[i]))
        before = merged.get(name, Place(name, 0, 0))
        merged[name] = Place(name, before.ns + int(total[i]), before.events + int(count[i]))
    return sorted(merged.values(), key=lambda p: -p.ns)
