"""The device waits while the host fetches the next batch: R16, R17, R21, R22."""

from __future__ import annotations

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.causes.input.batches import Batches, batches
from whyidle.causes.segments import held_by
from whyidle.timeline.columns import I64, Bool, HostKind
from whyidle.timeline.select import events_named, under

# XProf's grades of a step that waits for input: from 5 % of it moderate, from 20 % high
# (rules.tsv R16).
MODERATE_SHARE = 0.05
HIGH_SHARE = 0.20
# Plumber's grades of one call of next: above 1 ms suspicious, above 100 ms severe (rules.tsv R16).
SUSPICIOUS_NS = 1_000_000
SEVERE_NS = 100_000_000
# Waits repeat with a period when their autocorrelation at it is this high. Ours, unverified
# (rules.tsv R21 names the peak, not its height).
AUTOCORRELATION = 0.5
MIN_PERIODS = 3  # periods that must be seen to tell one. Ours.
# One batch of each period must hold this share of the wait. Ours.
ONE_BATCH_SHARE = 0.5
# An epoch's first batch counts as slow from this many times the median call. Ours.
SLOW_FIRST = 5.0

_NEW_WORKERS = (
    r"torch/utils/data/dataloader\.py\(\d+\): (_get_iterator|_shutdown_workers)$|"
    r"multiprocessing/(process|context|popen_\w+)\.py\(\d+\): (start|_Popen|_launch)$"
)
_DISPROOF = (
    "Train 20 steps on one batch that is already on the GPU: if the step stays as long, loading "
    "is not the cause."
)
_MORE_WORKERS = Remedy(
    "more-workers",
    "exact",
    "Give the loader more workers, up to the cores this process may use divided by the ranks on "
    "the machine, and a larger prefetch_factor; measure two or three values.",
)
_CHEAPER_SAMPLES = Remedy(
    "cheaper-samples",
    "exact",
    "Make a sample cheaper: decode once and store the result, store many samples in one file, "
    "read from a local disk.",
)


def r16_waits_for_batch(evidence: Evidence) -> Finding | None:
    """The device waits for the next batch, for whatever reason.

    Claims all ``idle.input`` that no special rule took, from ``MODERATE_SHARE`` of the window
    (XProf's infeed grades, rules.tsv R16). The wait is host time in the loader's ``next``, so
    copies to the device (``idle.transfer``) are not in it.
    """
    claims = evidence.accounts("idle.input")
    lost = evidence.ns(claims)
    if not worth(evidence, lost, MODERATE_SHARE):
        return None
    found = batches(evidence)
    by_workers = len(batches(evidence, in_process=False).call) > 0
    said = [_waited(evidence, claims, "while the host waits for its next batch")]
    said += _calls(evidence, found) + _where(evidence, claims)
    return finding(
        evidence,
        "R16",
        "input",
        "The GPU waits for batches that the loader's workers have not finished"
        if by_workers
        else "The GPU waits for its next batch",
        claims,
        said,
        (
            _MORE_WORKERS,
            _CHEAPER_SAMPLES,
            Remedy(
                "load-ahead",
                "exact",
                "Fetch the next batch in a background thread or process while the GPU works on "
                "the present one.",
            ),
        ),
        _DISPROOF,
    )


def r17_loads_in_main_process(evidence: Evidence) -> Finding | None:
    """The training process loads its batches itself (``num_workers=0``).

    Seen by ``_SingleProcessDataLoaderIter`` or by the loader's fetch in this process. Fires from
    ``MODERATE_SHARE`` of the window (XProf's infeed grades, rules.tsv R16; R17 has none).
    """
    found = batches(evidence, in_process=True)
    claims = found.claims(evidence, np.ones(len(found.call), np.bool_))
    if not worth(evidence, evidence.ns(claims), MODERATE_SHARE):
        return None
    told = "while the training process loads the batch itself (_SingleProcessDataLoaderIter)"
    return finding(
        evidence,
        "R17",
        "input",
        "The data loader runs in the training process (num_workers=0)",
        claims,
        [_waited(evidence, claims, told), *_calls(evidence, found), *_where(evidence, claims)],
        (
            Remedy(
                "num-workers",
                "exact",
                "Set DataLoader(num_workers=...) to the cores this process may use divided by the "
                "ranks on the machine, with persistent_workers=True; measure two or three values "
                "(random augmentations draw from other streams than before).",
            ),
            _CHEAPER_SAMPLES,
        ),
        _DISPROOF,
    )


def r21_stall_every_few_batches(evidence: Evidence) -> Finding | None:
    """The device waits at every k-th batch: all workers finish at once, and are too few.

    Fires where the waits' autocorrelation has its peak at a period k >= 2, at least
    ``AUTOCORRELATION`` high (rules.tsv R21: at num_workers, which a trace does not hold), seen
    ``MIN_PERIODS`` times, with ``ONE_BATCH_SHARE`` of the wait in one batch of each period; from
    ``MODERATE_SHARE`` of the window.
    """
    found = batches(evidence, in_process=False)
    claims = found.claims(evidence, np.ones(len(found.call), np.bool_))
    if not worth(evidence, evidence.ns(claims), MODERATE_SHARE):
        return None
    period = _period(found.wait_ns)
    if period is None:
        return None
    k, share = period
    told = f"for the loader's workers, {wording.percent(share)} of it at every {k}th batch"
    return finding(
        evidence,
        "R21",
        "input",
        f"The loader stalls every {k} batches: its workers are too few or too slow",
        claims,
        [
            _waited(evidence, claims, told),
            f"Waits at {len(found.call)} batches in turn: "
            f"{', '.join(wording.ns(int(w)) for w in found.wait_ns[:12])}"
            f"{', ...' if len(found.wait_ns) > 12 else ''}.",
            *_calls(evidence, found),
        ],
        (_MORE_WORKERS, _CHEAPER_SAMPLES),
        f"The loader's num_workers is not {k} (nor a divisor of it): then something else comes "
        "every so many batches, such as reading the next file.",
    )


def r22_workers_respawn(evidence: Evidence) -> Finding | None:
    """The loader starts its workers anew at each epoch, and the device waits for them.

    An epoch's first call of ``next`` is one that follows another without any launch between (the
    last one ended the epoch), or that comes after frames that make a new iterator; it must take
    ``SLOW_FIRST`` times the median call. Source (rules.tsv R22): 5 % of the epoch; the window
    stands for the epoch.
    """
    found = batches(evidence, in_process=False)
    spawning = under(
        evidence.nesting, events_named(evidence.timeline, _NEW_WORKERS, (HostKind.PYTHON,))
    )
    first = _first_of_epoch(evidence, found)
    claims = found.claims(evidence, first)
    claims |= held_by(evidence, spawning) & evidence.accounts("idle.input")
    if not worth(evidence, evidence.ns(claims), MODERATE_SHARE):
        return None
    said = [_waited(evidence, claims, "while the loader starts its workers and fills its queue")]
    if first.any():
        length = _length(evidence, found)
        said.append(
            f"{int(first.sum())} of {len(first)} calls of next begin an epoch and take "
            f"{wording.ns(float(np.median(length[first])))} in the median, the others "
            f"{wording.ns(float(np.median(length[~first])))}."
        )
    return finding(
        evidence,
        "R22",
        "input",
        "The loader starts its workers anew at each epoch",
        claims,
        said + _where(evidence, claims),
        (
            Remedy(
                "persistent-workers",
                "exact",
                "Set DataLoader(persistent_workers=True) and build the loader once, outside the "
                "epoch loop.",
            ),
            Remedy(
                "longer-epochs",
                "exact",
                "Where the data set is small, let one pass of the loader cover several epochs (a "
                "sampler that repeats).",
            ),
        ),
        "With persistent_workers=True the first batch of an epoch still takes as long: then it is "
        "the data set, not the workers' start.",
    )


def _first_of_epoch(evidence: Evidence, found: Batches) -> Bool:
    """Calls that begin an epoch and are slow, shape (n,)."""
    first = np.zeros(len(found.call), np.bool_)
    if len(first) < 2:
        return first
    host, device = evidence.timeline.host, evidence.timeline.device
    launched = np.sort(host.start[device.launch[device.launch >= 0]])
    start, end = host.start[found.call], host.end[found.call]
    between = np.searchsorted(launched, start[1:]) - np.searchsorted(launched, end[:-1])
    first[1:] = between == 0
    made = events_named(evidence.timeline, _NEW_WORKERS, (HostKind.PYTHON,))
    made_at = np.sort(host.start[made])
    before = np.append(np.iinfo(np.int64).min, end[:-1])
    first |= np.searchsorted(made_at, start) > np.searchsorted(made_at, before)
    length = _length(evidence, found)
    slow: Bool = length >= SLOW_FIRST * np.median(length)
    return first & slow


def _period(wait: I64) -> tuple[int, float] | None:
    """The period of the waits and the share of the wait in one batch of each period."""
    n = len(wait)
    centred = wait - wait.mean() if n else np.empty(0)
    power = float((centred**2).mean()) if n else 0.0
    lags = np.arange(1, n // MIN_PERIODS + 1)
    if len(lags) < 2 or power == 0:
        return None
    r = np.array([float((centred[:-k] * centred[k:]).mean()) / power for k in lags])
    peak = float(r[1:].max())
    if peak < AUTOCORRELATION or peak <= r[0]:
        return None
    k = int(lags[1:][np.flatnonzero(r[1:] >= 0.9 * peak)[0]])  # multiples of it peak as well
    phase = np.array([int(wait[p::k].sum()) for p in range(k)])
    share = float(phase.max() / wait.sum())
    return (k, share) if share >= ONE_BATCH_SHARE else None


def _length(evidence: Evidence, found: Batches) -> I64:
    host = evidence.timeline.host
    length: I64 = host.end[found.call] - host.start[found.call]
    return length


def _waited(evidence: Evidence, claims: Bool, why: str) -> str:
    lost = evidence.ns(claims)
    share = lost / evidence.ledger.window_ns
    grade = "high" if share >= HIGH_SHARE else "moderate"
    return (
        f"The GPU idles {wording.per_step(lost, evidence.ledger)} {why}: "
        f"{wording.percent(share)} of the time ({grade} by XProf's grades)."
    )


def _calls(evidence: Evidence, found: Batches) -> list[str]:
    """How many calls of next, how long, by Plumber's grades."""
    if not len(found.call):
        return []
    length = _length(evidence, found)
    median = float(np.median(length))
    grade = ""
    if median > SEVERE_NS:
        grade = ", severe by Plumber's grades (above 100 ms)"
    elif median > SUSPICIOUS_NS:
        grade = ", suspicious by Plumber's grades (above 1 ms)"
    return [
        f"Calls of next: {wording.number(len(length) / len(evidence.ledger.steps))} "
        f"{wording.unit(evidence.ledger)}, {wording.ns(median)} in the median{grade}, "
        f"{wording.ns(int(length.max()))} at most."
    ]


def _where(evidence: Evidence, claims: Bool) -> list[str]:
    seg = evidence.ledger.segments
    rows = np.flatnonzero(claims)
    if lines := places.code_lines(evidence, seg.host[rows], seg.ns[rows])[:3]:
        return [f"Meanwhile the host is at {places.told(evidence, lines)}."]
    if work := places.operators(evidence, seg.host[rows], seg.ns[rows])[:3]:
        return [f"Operators inside the loader meanwhile: {places.told(evidence, work)}."]
    if marks := places.phases(evidence, seg.host[rows], seg.ns[rows])[:3]:
        return [f"Annotated phases meanwhile: {places.told(evidence, marks)}."]
    return []
