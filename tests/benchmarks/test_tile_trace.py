"""A tiled trace must be a valid longer trace, or the benchmark would measure something else."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from whyidle.readers import open_trace

TILE = Path(__file__).parents[2] / "benchmarks" / "tile_trace.py"
FLOOR = TILE.with_name("parse_floor.py")

# Kineto's own layout: two steps, each with a launch and its kernel.
_HEAD = '{\n  "schemaVersion": 1,\n  "distributedInfo": {"rank": 3},\n  "traceEvents": ['
_STEP = """
  {{
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 7, "tid": 7,
    "ts": {ts}.500, "dur": 90.000, "args": {{ "External id": {id} }}
  }},
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7,
    "ts": {launch}.250, "dur": 5, "args": {{ "External id": {id}, "correlation": {id} }}
  }},
  {{
    "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7,
    "ts": {kernel}.125, "dur": 20, "args": {{ "device": 0, "stream": 7, "correlation": {id} }}
  }},"""
_TAIL = """
  {
    "name": "process_name", "ph": "M", "ts": 100, "pid": 7, "tid": 0, "args": { "name": "python" }
  }
  ],
  "traceName": "t.json"
}
"""


@pytest.fixture
def tiled(tmp_path: Path) -> Path:
    steps = [
        _STEP.format(step=5 + i, ts=1000 + 100 * i, launch=1010 + 100 * i,
                     kernel=1020 + 100 * i, id=40 + i)
        for i in range(2)
    ]  # fmt: skip
    source, out = tmp_path / "one.json.gz", tmp_path / "many.json.gz"
    source.write_bytes(gzip.compress((_HEAD + "".join(steps) + _TAIL).encode()))
    command = [sys.executable, str(TILE), str(source), str(out), "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return out


def test_every_launch_still_finds_its_own_kernel(tiled: Path) -> None:
    timeline = open_trace(tiled)
    kernels, host = timeline.device, timeline.host
    assert len(kernels) > 1000
    assert len(np.unique(kernels.correlation)) == len(kernels)
    assert (kernels.launch >= 0).all()
    # 1020.125 us - 1010.250 us, in every copy.
    assert (kernels.start - host.start[kernels.launch] == 9_875).all()


def test_steps_are_numbered_on_and_do_not_overlap(tiled: Path) -> None:
    timeline = open_trace(tiled)
    named = [(n, i) for i, n in enumerate(timeline.names) if n.startswith("ProfilerStep#")]
    numbers = sorted(int(name[13:]) for name, _ in named)
    assert numbers == list(range(5, 5 + len(timeline.device)))
    steps = np.isin(timeline.host.name, [i for _, i in named])
    start, end = timeline.host.start[steps], timeline.host.end[steps]
    assert (start[1:] >= end[:-1]).all()


def test_what_stands_around_the_events_is_kept_once(tiled: Path) -> None:
    text = gzip.decompress(tiled.read_bytes()).decode()
    assert text.count('"process_name"') == 1
    assert text.count('"schemaVersion"') == 1
    assert open_trace(tiled).source.rank == 3


def test_the_floor_reads_the_same_events(tiled: Path) -> None:
    command = [sys.executable, str(FLOOR), str(tiled)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    timeline = open_trace(tiled)
    assert int(run.stdout.split()[0]) == len(timeline.host) + len(timeline.device)
