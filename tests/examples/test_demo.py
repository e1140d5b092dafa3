"""The demo's run, recorded for real: needs torch, and takes whatever device is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from whyidle.ledger.cpu import host_account
from whyidle.readers import open_trace
from whyidle.timeline.nesting import nest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_planted_fault_is_in_the_trace(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the demo records a PyTorch run, and torch is missing")
    trace = tmp_path / "out" / "demo.pt.trace.json.gz"
    run = subprocess.run(
        [sys.executable, str(DEMO), str(trace)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # the host's share is the same anywhere
    )
    assert run.returncode == 0, run.stderr
    assert "Recorded on CPU" in run.stdout
    timeline = open_trace(trace)
    assert not len(timeline.device)
    account = host_account(timeline, nest(timeline.host, len(timeline.threads)))
    assert account is not None
    assert account.steps == 8
    assert next(iter(account.ns)) == "input"
    assert account.share("input") > 0.4
