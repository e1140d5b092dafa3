"""Mutated real traces end in a report or in one error line, never in a traceback."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from whyidle.diagnosis import diagnose
from whyidle.errors import WhyidleError

NAMES = (
    "hta/mi250_toy_train.json.gz",
    "hta/a100_event_sync.json.gz",
    "hta/cpu_only_rank34of300.json.gz",
    "tracelens/mi300_compile_triton.json.gz",
    "hta/a100_alexnet.json.gz",
)
TOKENS = (
    b"null", b"NaN", b"-Infinity", b"true", b'"x"', b"[]", b"{}", b"-1", b"1e400", b"1e18",
    b"99999999999999999999999", b"0.0000001", b"\\u12", b"\\", b'"', b"}", b"]", b"{", b",", b":",
    b"\x00", b"\xff", b"",
)  # fmt: skip


def _mutate(data: bytes, random_: random.Random) -> bytes:
    kind = random_.randrange(7)
    at = random_.randrange(len(data))
    to = min(at + random_.randrange(1, 2_000), len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[to:]
    if kind == 2:
        return data[:at] + data[at:to] * 3 + data[to:]
    if kind == 3:
        noise = bytes(random_.randrange(256) for _ in range(random_.randrange(1, 40)))
        return data[:at] + noise + data[at:]
    for _ in range(random_.randrange(1, 30)):
        at = random_.randrange(len(data))
        if kind == 4:  # one token at any place
            data = data[:at] + random_.choice(TOKENS) + data[at + 1 :]
        else:  # the value behind a colon
            colon = data.find(b":", at)
            stop = min((p for p in (data.find(b",", colon), data.find(b"}", colon)) if p > 0),
                       default=-1)  # fmt: skip
            if 0 <= colon < stop:
                data = data[: colon + 1] + b" " + random_.choice(TOKENS) + data[stop:]
    return data


@pytest.mark.parametrize("name", NAMES)
def test_mutated_traces(traces: Path, tmp_path: Path, name: str) -> None:
    original = gzip.decompress((traces / name).read_bytes())
    random_ = random.Random(name)
    reports = 0
    messages = []
    for i in range(60):
        data = _mutate(original, random_)
        if i % 10 == 9:  # damage the compression instead
            packed = bytearray(gzip.compress(original, 1))
            packed[random_.randrange(20, len(packed))] ^= 1 << random_.randrange(8)
            data = bytes(packed)
        path = tmp_path / f"m{i}.json"
        path.write_bytes(data)
        try:
            report = diagnose([path])
            assert report.verdict.sentence
            for device in report.devices:
                assert (
                    sum(line.ns for line in device.accounts) == device.window[1] - device.window[0]
                )
            reports += 1
        except WhyidleError as error:
            messages.append(str(error))
    assert all("\n" not in message and str(tmp_path) in message for message in messages)
    assert reports > 20, "a mutation is survived more often than not"
