"""Host-to-device copies: which they are, from what memory, and how fast they ran."""

from __future__ import annotations

import numpy as np

from whyidle.causes import wording
from whyidle.causes.evidence import Evidence
from whyidle.causes.segments import on_device
from whyidle.timeline.columns import Bool, DeviceKind
from whyidle.timeline.select import name_mask

_TO_DEVICE = r"(?i)htod|hosttodevice|h2d"


def to_device(evidence: Evidence, memory: str = "") -> Bool:
    """Copies from the host to this device inside the window, shape (device events,).

    ``memory`` keeps those whose name holds it: "pageable" or "pinned" as CUPTI names the host
    side. ROCm names neither, so that its copies are in neither.
    """
    timeline = evidence.timeline
    chosen = name_mask(timeline.names, _TO_DEVICE) & name_mask(timeline.names, f"(?i){memory}")
    found: Bool = chosen[timeline.device.name] & (timeline.device.kind == DeviceKind.MEMCPY)
    return found & on_device(evidence)


def told(evidence: Evidence, copies: Bool) -> str:
    """Number, bytes and speed of the masked copies: "2 copies a step, 18.4 MiB a step, 5.5 GB/s".

    Bytes and speed are of the copies whose size the trace holds, left out where it holds none.
    """
    ledger, device = evidence.ledger, evidence.timeline.device
    said = wording.count_per_step(int(copies.sum()), "copies", ledger)
    sized = copies & (device.bytes >= 0)
    if not sized.any():
        return said
    moved = int(device.bytes[sized].sum())
    lasted = int((device.end[sized] - device.start[sized]).sum())
    said += f", {wording.size(moved / max(len(ledger.steps), 1))} {wording.unit(ledger)}"
    if not sized[copies].all():
        said += f" in the {int(sized.sum())} whose size is recorded"
    # Bytes by ns are GB by s.
    return said + (f", at {moved / lasted:.1f} GB/s" if lasted else "")


def calls(evidence: Evidence, copies: Bool) -> Bool:
    """The host calls that launched the masked copies, shape (host events,)."""
    found = np.zeros(len(evidence.timeline.host), np.bool_)
    launch = evidence.timeline.device.launch[copies]
    found[launch[launch >= 0]] = True
    return found
