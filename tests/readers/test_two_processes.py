"""Reading in two processes: the same as reading alone, whatever the file and the worker do."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from whyidle.diagnosis import diagnose
from whyidle.readers import kineto, trace_json, two_processes
from whyidle.reports.json import to_dict

_STEPS = 2600  # about 8 MB: several pieces for either process


def _events() -> list[dict[str, Any]]:
    """Steps of ten launches; no numbered event, no thread name in the first pieces."""
    events: list[dict[str, Any]] = []
    for step in range(_STEPS):
        t = 1000 * step
        name = f"ProfilerStep#{step}"
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": t,
             "dur": 990}
        )  # fmt: skip
        for i in range(10):
            ts, number = t + 90 * i, 10 * step + i + 1
            numbered = {"Ev Idx": number * (1 if step < 0.6 * _STEPS else 90)}
            call = {"correlation": number, **(numbered if step > 0.4 * _STEPS else {})}
            events.append(
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1,
                 "tid": str(1), "ts": ts, "dur": 5, "args": call}
            )  # fmt: skip
            where = {"device": 0, "stream": 7, "correlation": number}
            events.append(
                {"ph": "X", "cat": "kernel", "name": f"sgemm_{number % 700}", "pid": 0, "tid": 7,
                 "ts": ts + 10, "dur": 40 + i, "args": where}
            )  # fmt: skip
        if step % 100 == 50:
            cat = f"other{step % 1100}"
            events.append({"ph": "X", "cat": cat, "name": "x", "ts": t, "dur": 1})
            events.append(
                {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1,
                 "args": {"name": f"thread {step * 7919 % 100}"}}
            )  # fmt: skip
    return events


@pytest.fixture(scope="module")
def text() -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": _events()}).encode()


def _both(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, bool]:
    """Report read by two, report read alone, and whether the two went through with it."""
    through = []

    def spied(*args: Any) -> Any:
        found = two_processes.read_in_two(*args)
        through.append(found is not None)
        return found

    monkeypatch.setattr(kineto, "read_in_two", spied)
    monkeypatch.setattr(two_processes, "_cores", lambda: 2)
    reports = []
    for least in (0, 1 << 60):
        monkeypatch.setattr(two_processes, "MIN_PLAIN", least)
        reports.append(to_dict(diagnose([path])))
    assert through[1] is False
    return reports[0], reports[1], through[0]


def test_gives_the_same_report(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(text)
    two, alone, went_through = _both(path, monkeypatch)
    assert went_through
    assert two == alone
    assert two["devices"][0]["steps"]["count"] == _STEPS
    assert any("other" in warning for warning in two["warnings"])


@pytest.mark.parametrize("damage", ["cut", "noise", "borders after the end", "no border after it"])
def test_gives_the_same_report_of_damaged_text(
    damage: str, text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    middle = len(text) // 2
    damaged = {
        "cut": text[: middle + 17],
        "noise": text[:middle] + b"\\q}}{" * 9 + text[middle:],
        "borders after the end": text[:-1] + b', "more": [' + b"{}, " * 900_000 + b"{}]}",
        "no border after it": text[:-1] + b', "more": "' + b"x" * (5 << 20) + b'"}',
    }[damage]
    path = tmp_path / "t.json"
    path.write_bytes(damaged)
    two, alone, _ = _both(path, monkeypatch)
    assert two == alone


def test_long_text_without_a_border_is_left_to_one(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (trace_json, two_processes):
        monkeypatch.setattr(module, "HEAD_LIMIT", 4 << 20)
    path = tmp_path / "t.json"
    path.write_bytes(text[:-1] + b', "more": "' + b"x" * (9 << 20) + b'"}')
    two, alone, went_through = _both(path, monkeypatch)
    assert not went_through
    assert two == alone


def test_worker_imports_nothing_from_the_working_directory(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("open('imported', 'w')")
    (tmp_path / "pickle.py").write_text("open('imported', 'w')")
    path = tmp_path / "t.json"
    path.write_bytes(text)
    monkeypatch.chdir(tmp_path)
    two, alone, went_through = _both(path, monkeypatch)
    assert went_through
    assert two == alone
    assert not (tmp_path / "imported").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs POSIX signals")
def test_worker_that_dies_with_a_full_queue_does_not_hang() -> None:
    worker = two_processes._Worker()
    try:
        worker.begin(exact=False)
        os.kill(worker.process.pid, signal.SIGSTOP)
        piece = b'{"ph":"X"}' + b" " * (1 << 20)
        number = 0
        while worker.offer(number, piece):
            number += 1
            time.sleep(0.02)  # until its feeder is stuck in the pipe and the queue is full
        worker.process.kill()
        with pytest.raises(two_processes._NotThisWayError):
            worker.result()
    finally:
        worker.close()


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2])
def test_killed_worker_costs_nothing_but_time(
    after_s: float, text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = two_processes._Worker.begin

    def begin_and_die(worker: two_processes._Worker, exact: bool) -> None:
        begin(worker, exact)
        time.sleep(after_s)
        worker.process.kill()

    monkeypatch.setattr(two_processes._Worker, "begin", begin_and_die)
    path = tmp_path / "t.json"
    path.write_bytes(text)
    two, alone, went_through = _both(path, monkeypatch)
    assert not went_through
    assert two == alone
