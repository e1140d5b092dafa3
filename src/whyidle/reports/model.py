"""What every face of the report shows: plain data, complete before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

from whyidle.causes.evidence import Remedy
from whyidle.ledger.model import Ledger
from whyidle.timeline.columns import DeviceProperties, Source, Timeline
from whyidle.timeline.nesting import Nesting


@dataclass(frozen=True)
class AccountLine:
    """One account of a device: ``ns`` of the window and its ``share`` of it."""

    account: str
    cause: str | None
    ns: int
    share: float


@dataclass(frozen=True)
class DeviceReport:
    """One device's ledger as numbers. ``by_step[i]`` maps account to ns of step i."""

    rank: int | None
    device: int
    name: str | None
    window: tuple[int, int]
    window_source: str
    window_how: str
    busy_ns: int
    idle_ns: int
    activity_span: tuple[int, int]
    activity_busy_ns: int
    step_ns: tuple[int, ...]
    accounts: tuple[AccountLine, ...]  # in ledger order, zeros left out
    by_step: tuple[dict[str, int], ...]


@dataclass(frozen=True)
class FindingReport:
    """A finding over all devices. ``share`` and ``gain_upper_bound`` are shares of the windows."""

    rule: str
    cause: str
    title: str
    lost_ns: int
    lost_ns_per_step: int
    share: float
    gain_upper_bound: float
    accounts: dict[str, int]
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    disproof: str
    notes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # "rank 0 device 1", where found


@dataclass(frozen=True)
class Verdict:
    """``kind`` is "finding", "healthy", "cannot_tell" or "no_gpu_activity"."""

    kind: str
    cause: str | None
    sentence: str


@dataclass(frozen=True)
class KernelLine:
    """One kernel name's total over the window of a device. ``median_ns`` is of one call."""

    name: str
    account: str
    count: int
    ns: int
    median_ns: int


@dataclass(frozen=True, eq=False)
class Picture:
    """The timeline kept for drawing: one rank's."""

    timeline: Timeline
    nesting: Nesting
    ledgers: tuple[Ledger, ...]


@dataclass(frozen=True, eq=False)
class Report:
    """A whole diagnosis."""

    sources: tuple[Source, ...]
    properties: tuple[DeviceProperties, ...]
    devices: tuple[DeviceReport, ...]
    findings: tuple[FindingReport, ...]
    verdict: Verdict
    warnings: tuple[str, ...]
    kernels: tuple[KernelLine, ...] = ()
    picture: Picture | None = field(default=None, repr=False)
