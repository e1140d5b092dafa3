"""What recording costs: step time and trace size by the profiler's options.

The worst case on purpose: many small operators, so that the host has no slack. Needs torch. Prints
the table of docs/recording.md.

    .venv/bin/python benchmarks/recording_cost.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

WAIT, WARMUP, ACTIVE, ROUNDS = 2, 2, 20, 5
OPTIONS: dict[str, dict[str, bool] | None] = {
    "no profiler": None,
    "plain": {},
    "record_shapes": {"record_shapes": True},
    "with_stack": {"with_stack": True},
    "profile_memory": {"profile_memory": True},
    "all three": {"record_shapes": True, "with_stack": True, "profile_memory": True},
}


def train(options: dict[str, bool] | None, trace: Path) -> list[float]:
    """Train for a few steps; returns the seconds of each recorded one."""
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(40)))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    batch = torch.randn(16, 64)
    recorded = nullcontext()
    if options is not None:
        recorded = profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(trace)),
            **options,
        )
    seconds = []
    with recorded as profiler:
        for _ in range(WAIT + WARMUP + ACTIVE):
            begin = time.perf_counter()
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seconds.append(time.perf_counter() - begin)
            if profiler:
                profiler.step()
    return seconds[WAIT + WARMUP :]


def main() -> None:
    """Run all options in turn, several times, and print medians."""
    seconds: dict[str, list[float]] = {name: [] for name in OPTIONS}
    size: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json.gz"
        for _ in range(ROUNDS):
            for name, options in OPTIONS.items():
                seconds[name] += train(options, trace)
                size[name] = trace.stat().st_size / ACTIVE if options is not None else 0
    base = statistics.median(seconds["no profiler"])
    print("| recorded with | step | against no profiler | trace per step (.gz) |")
    print("| --- | ---: | ---: | ---: |")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"| {name} | {1000 * median:.2f} ms | x {median / base:.2f} "
              f"| {size[name] / 1000:.0f} kB |")  # fmt: skip


if __name__ == "__main__":
    main()
