"""The calls that fetch a batch, and the idle time that the device spends in each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.causes.evidence import Evidence
from whyidle.timeline import intervals
from whyidle.timeline.columns import I32, I64, Bool, HostKind
from whyidle.timeline.select import events_named, outermost

_NEXT = r"enumerate\(DataLoader\)#|torch/utils/data/dataloader\.py\(\d+\): __next__$"
# A fetch in the training process itself; worker processes fetch where no trace sees it.
_IN_PROCESS = r"_SingleProcessDataLoaderIter|torch/utils/data/_utils/fetch\.py"
_BY_WORKERS = (
    r"_MultiProcessingDataLoaderIter|"
    r"torch/utils/data/dataloader\.py\(\d+\): (_try_get_data|_get_data|_try_put_index)$"
)


@dataclass(frozen=True, eq=False)
class Batches:
    """Calls of a PyTorch loader's ``next`` in order of start.

    ``call`` are host indices and ``wait_ns`` the device's free ``idle.input`` time inside each,
    both of shape (n,); ``within`` maps each ledger segment to its call's position, -1 none.
    """

    call: I64
    wait_ns: I64
    within: I32

    def claims(self, evidence: Evidence, chosen: Bool) -> Bool:
        """Free ``idle.input`` segments inside the calls marked in ``chosen``, shape (n,)."""
        inside = self.within >= 0
        found = evidence.accounts("idle.input") & inside
        found[inside] &= chosen[self.within[inside]]
        return found


def batches(evidence: Evidence, in_process: bool | None = None) -> Batches:
    """The ``next`` calls inside the window, of all loaders or only of one kind.

    ``in_process`` True keeps those that load in the training process, False those that get
    batches from worker processes; calls of which the trace does not tell are kept by None only.
    """
    timeline, nesting, seg = evidence.timeline, evidence.nesting, evidence.ledger.segments
    none = np.full(len(seg), -1, np.int32)
    marks = events_named(timeline, _NEXT, (HostKind.ANNOTATION, HostKind.PYTHON))
    if not marks.any():
        return Batches(np.empty(0, np.int64), np.empty(0, np.int64), none)
    outer = outermost(nesting, marks)
    calls = intervals.distinct(outer[outer >= 0]).astype(np.int64)
    if in_process is not None:
        sign = events_named(timeline, _IN_PROCESS if in_process else _BY_WORKERS)
        calls = calls[np.isin(calls, np.unique(outer[sign]))]
    low, high = evidence.ledger.window
    host = timeline.host
    calls = calls[(host.end[calls] > low) & (host.start[calls] < high)]
    calls = calls[np.argsort(host.start[calls], kind="stable")]
    place = np.full(len(host), -1, np.int32)
    place[calls] = np.arange(len(calls))
    within = none
    held = seg.idle & (seg.host >= 0)
    holder = outer[seg.host[held]]
    within[held] = np.where(holder >= 0, place[holder], -1)
    wait = np.zeros(len(calls), np.int64)
    waiting = evidence.accounts("idle.input") & (within >= 0)
    np.add.at(wait, within[waiting], seg.ns[waiting])
    return Batches(calls, wait, within)
