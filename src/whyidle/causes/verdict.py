"""The verdict: what cost most, or that nothing is to be gained, or that it cannot be told."""

from __future__ import annotations

from collections.abc import Sequence

from whyidle.causes import wording
from whyidle.ledger.window import IDLE_THROUGHOUT
from whyidle.reports.model import DeviceReport, FindingReport, Verdict

# Idle, exposed communication and copies are time in which the device computes nothing: what is
# lost there is known. What computing kernels could save is an upper bound; it decides the verdict
# only when less than this share of the window is lost for certain. Ours.
CERTAIN_SHARE = 0.05
# Below this share of time without computation "nothing to gain from the host side" holds
# (rules.tsv R01: GPU busy >= 90 %: gain about 0).
HEALTHY_SHARE = 0.10
UNKNOWN_SHARE = 0.50  # of the time without computation; above it the evidence is missing. Ours.
_WORDS = {
    "input": "data loading: the GPU waits for its next batch",
    "parallelism": "not enough parallel work: the GPU idles between pieces of work",
    "model": "the model's own work on the GPU",
    "memory": "memory management: copies and allocator calls hold up the GPU",
    "communication": "communication: the GPU waits in or for collectives",
    "interruption": "interruptions of training",
    "visibility": "profiling and monitoring themselves",
    "hardware": "the hardware",
    "allocation": "allocation",
}


def judge(
    devices: Sequence[DeviceReport],
    findings: Sequence[FindingReport],
    missing: Sequence[str],
    host: str | None = None,
    partial: str | None = None,
) -> Verdict:
    """Judge a report. Shares are of the devices' windows together.

    ``missing`` names the evidence that the traces lack, ``host`` tells in a sentence where the
    host's time went, for traces without GPU activity. ``partial`` says why a file
    does not hold the whole recording, if so.
    """
    if partial:
        return _cannot_tell(partial)
    if not devices:
        return Verdict(
            "no_gpu_activity",
            None,
            "No GPU activity recorded: the trace holds no kernel, copy or memset. Record it on the "
            "GPU with ProfilerActivity.CUDA in the profiler's activities."
            + (f" What it does show is {host}." if host else ""),
        )
    window = sum(d.window[1] - d.window[0] for d in devices)
    if not window:
        return _cannot_tell("no recorded activity of the GPU has a duration. Record it again")
    lost = sum(_not_computing(d) for d in devices)
    unknown = sum(
        line.ns for d in devices for line in d.accounts if line.account == "idle.unattributed"
    )
    if lost > HEALTHY_SHARE * window and unknown > UNKNOWN_SHARE * lost:
        return _cannot_tell(
            f"{_percent(unknown / window)} of the time is idle without evidence of what the host "
            f"did. Record {_listed(missing) or 'the host side too'}"
        )
    if findings:
        return _found(devices, findings)
    return _nothing_found(devices, lost / window, missing)


def _cannot_tell(why: str) -> Verdict:
    return Verdict("cannot_tell", None, f"Cannot tell: {why}.")


def _nothing_found(devices: Sequence[DeviceReport], lost: float, missing: Sequence[str]) -> Verdict:
    """Healthy, where little is lost (a share of the windows); else no rule explains it."""
    window = sum(d.window[1] - d.window[0] for d in devices)
    if lost <= HEALTHY_SHARE:
        if any(d.window_how == IDLE_THROUGHOUT for d in devices):
            return _cannot_tell(
                "a GPU is idle throughout the steps that the host takes, and what it did outside "
                "them says nothing about training. Record the steps that use it"
            )
        busy = sum(d.busy_ns for d in devices) / window
        return Verdict(
            "healthy",
            None,
            f"Healthy: the GPU is busy {_percent(busy)} of the time, and no lost time is large "
            "enough to be worth a change. GPU-bound: nothing to gain from the host side.",
        )
    largest = max(
        (line for d in devices for line in d.accounts if not line.account.startswith("compute.")),
        key=lambda line: line.ns,
    )
    asked = f". Record {_listed(missing)}" if missing else ""
    return _cannot_tell(
        f"the GPU computes nothing {_percent(lost)} of the time (most of it {largest.account}, "
        f"{_percent(largest.ns / window)}), and no rule explains it{asked}"
    )


def _found(devices: Sequence[DeviceReport], findings: Sequence[FindingReport]) -> Verdict:
    certain: dict[str, float] = {}
    whole: dict[str, float] = {}
    for finding in findings:
        whole[finding.cause] = whole.get(finding.cause, 0.0) + finding.share
        part = finding.share * certain_part(finding)
        certain[finding.cause] = certain.get(finding.cause, 0.0) + part
    causes = certain if max(certain.values()) >= CERTAIN_SHARE else whole
    cause = max(causes, key=lambda c: causes[c])
    first = next(f for f in findings if f.cause == cause)
    steps = sum(len(d.step_ns) for d in devices)
    step = sum(d.window[1] - d.window[0] for d in devices) / steps
    lost = causes[cause] * step
    unit = "step" if any(d.window_source != "span" for d in devices) else "span"
    bound = "" if causes is certain else "up to "
    return Verdict(
        "finding",
        cause,
        f"{_WORDS[cause][0].upper()}{_WORDS[cause][1:]}. It costs {bound}"
        f"{wording.ns(lost)} of every {wording.ns(step)} {unit} "
        f"({_percent(causes[cause])}). First: {first.title}.",
    )


def certain_part(finding: FindingReport) -> float:
    """The part of a finding's time, in [0, 1], in which the device computed nothing."""
    accounts = finding.accounts.items()
    computing = sum(ns for account, ns in accounts if account.startswith("compute."))
    return 1 - computing / max(sum(finding.accounts.values()), 1)


def _not_computing(device: DeviceReport) -> int:
    return sum(line.ns for line in device.accounts if not line.account.startswith("compute."))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "less than 0.1 %"


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
