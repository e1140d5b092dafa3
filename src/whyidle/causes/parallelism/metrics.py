"""R14: metrics and monitors that are computed in every step."""

from __future__ import annotations

import re

import numpy as np

from whyidle.causes import places, wording
from whyidle.causes.claim import finding, worth
from whyidle.causes.evidence import Evidence, Finding, Remedy
from whyidle.timeline.columns import HostKind
from whyidle.timeline.select import events_named, of_host, outermost, under

_METRICS = re.compile(
    r"(^|/)(torchmetrics|torcheval|sklearn/metrics|wandb|torch/utils/tensorboard|tensorboardX|"
    r"mlflow|comet_ml|neptune|evaluate)/|"
    r": (add_histogram|log_metrics|compute_metrics|update_metrics|log_histogram|log_gradients)$|"
    r"^\W*(compute_|update_|log_)?metrics?\W*$|torchmetrics|add_histogram|wandb\.(log|watch)"
)
_CLAIMED = (
    "idle.logging",
    "idle.sync",
    "idle.transfer",
    "idle.dispatch",
    "idle.python",
)


def r14_metrics_each_step(evidence: Evidence) -> Finding | None:
    """The device idles while the host computes or logs metrics.

    Claims idle time inside metrics and monitoring code, and the ledger's ``idle.logging``. Source
    (rules.tsv R14): no threshold on time (wandb.watch logs every 1000 steps by itself);
    ``MIN_SHARE`` of the window, ours. The cause is the one of the accounts that hold most of it.
    """
    ledger, timeline, seg = evidence.ledger, evidence.timeline, evidence.ledger.segments
    marks = events_named(timeline, _METRICS, (HostKind.ANNOTATION, HostKind.PYTHON))
    inside = of_host(under(evidence.nesting, marks), seg.host)
    claims = (evidence.accounts(*_CLAIMED) & inside) | evidence.accounts("idle.logging")
    if not worth(evidence, evidence.ns(claims)):
        return None
    rows = np.flatnonzero(claims)
    steps = np.unique(np.searchsorted(ledger.steps.start, seg.start[rows], side="right"))
    outer = outermost(evidence.nesting, marks)[seg.host[rows]]
    calls = len(np.unique(outer[(outer >= 0) & (seg.host[rows] >= 0)]))
    logging = evidence.ns(claims & evidence.accounts("idle.logging"))
    known = ledger.steps.source != "span"
    often = f"in {len(steps)} of {len(ledger.steps)} steps" if known else "in the loop"
    if known and len(steps) == len(ledger.steps):
        often = "in every step"
    said = [
        f"The GPU idles {wording.per_step(evidence.ns(claims), ledger)} while the host computes "
        f"or logs metrics {often}"
        + (f" ({wording.count_per_step(calls, 'calls', ledger)})." if calls else "."),
    ]
    if found := places.best(evidence, seg.host[rows], seg.ns[rows]):
        said.append(f"Most at {places.told(evidence, found)}.")
    return finding(
        evidence,
        "R14",
        "interruption" if 2 * logging > evidence.ns(claims) else "parallelism",
        f"Metrics or logging {often} keep the GPU waiting",
        claims,
        said,
        (
            Remedy(
                "log-less-often",
                "exact",
                "Compute and log metrics every N steps (wandb.watch's own default is 1000).",
            ),
            Remedy(
                "log-in-background",
                "exact",
                "Keep metric states on the GPU and hand finished numbers to a background thread.",
            ),
        ),
        "Switch metrics and logging off for 20 steps: the step must get shorter by this much.",
    )
