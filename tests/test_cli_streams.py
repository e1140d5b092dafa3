"""Streams that are closed or full, terminals without width, inputs and outputs that are pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from builders import TraceBuilder

_WHYIDLE = f"{sys.executable} -m whyidle"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    builder = TraceBuilder()
    for step in range(3):
        t = 1_000_000 * step
        builder.step(step, t, t + 1_000_000)
        builder.launch("sgemm", t, t + 10_000, t + 20_000, t + 620_000)
    return builder.write_kineto(tmp_path / "trace.json")


def _shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("trace trace.json >&-", 2),
        ("trace trace.json --json - >&-", 2),
        ("trace trace.json --quiet >&-", 0),
        ("compare trace.json trace.json >&-", 2),
    ],
)
def test_closed_stdout(command: str, code: int, trace: Path) -> None:
    done = _shell(f"{_WHYIDLE} {command}", trace.parent)
    assert done.returncode == code
    assert done.stderr.count("\n") == (1 if code else 0)
    assert "internal error" not in done.stderr


@pytest.mark.parametrize(
    ("command", "code"), [("trace trace.json --json -", 0), ("trace no.json --json -", 2)]
)
def test_closed_stderr_puts_nothing_into_stdout(command: str, code: int, trace: Path) -> None:
    done = _shell(f"{_WHYIDLE} {command} 2>&-", trace.parent)
    assert done.returncode == code
    assert json.loads(done.stdout)["devices"] if code == 0 else done.stdout == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_stderr_keeps_the_exit_code(trace: Path) -> None:
    done = _shell(f"{_WHYIDLE} trace no.json 2>/dev/full", trace.parent)
    assert done.returncode == 2


@pytest.mark.parametrize("columns", ["0", "1", "20"])
def test_no_number_is_cut_on_a_terminal_without_width(columns: str, trace: Path) -> None:
    done = _shell(f"COLUMNS={columns} {_WHYIDLE} trace trace.json", trace.parent)
    assert done.returncode == 0
    busy = next(line for line in done.stdout.splitlines() if line.startswith("█ compute"))
    assert " us " in busy
    assert " % " in busy


def test_pipes_are_read_but_not_twice(trace: Path) -> None:
    once = _shell(f"{_WHYIDLE} trace <(cat trace.json) --json - --html o.html", trace.parent)
    assert json.loads(once.stdout)["devices"][0]["steps"]["count"] == 3
    twice = _shell(f"{_WHYIDLE} trace <(cat trace.json) --perfetto o.json", trace.parent)
    assert twice.returncode == 2
    assert "read it twice" in twice.stderr


def test_empty_output_name_is_refused(trace: Path) -> None:
    done = _shell(f"{_WHYIDLE} trace trace.json --html ''", trace.parent)
    assert done.returncode == 2
    assert "empty" in done.stderr
