"""How fast traces are read and diagnosed: against the parse floor, and against HTA.

Everything is timed in one run, as whole processes from start to exit, in turn, medians of several;
peak memory is the process's largest resident set as the kernel counted it (wait4). Prints the
tables of docs/benchmarks.md.

    make bench
    python benchmarks/trace_speed.py --sizes 50 --hta PYTHON_WITH_HTA
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
HERE = Path(__file__).parent
SHARED = HERE.parent.parent / "shared" / "traces"
SOURCE = SHARED / "hta" / "v100_ddp_rank1of2.json.gz"  # 54 MB of JSON: the largest real one here
TARGETS = (
    "Targets: whyidle at most 1.5 times the floor; below 1 GB of memory at 1 GB of JSON; at least "
    "10 times faster than HTA."
)


@dataclass(frozen=True)
class Run:
    """One process from start to exit: wall seconds and peak resident memory in bytes."""

    seconds: float
    peak: int


@dataclass(frozen=True)
class Subject:
    """What is measured: a name, and the command for a trace (its folder holds nothing else)."""

    name: str
    command: tuple[str, ...]
    runs: int


class Failed(Exception):
    """A process ended with an error or not in time; the message says which."""


def run_once(command: tuple[str, ...], limit: float) -> Run:
    """Run a command to its end. Raises Failed when it fails or takes longer than ``limit`` s."""
    with tempfile.TemporaryFile() as log:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            seconds = time.perf_counter() - begin
            if pid:
                break
            if seconds > limit:
                os.killpg(process.pid, signal.SIGKILL)
                os.wait4(process.pid, 0)
                process.returncode = -signal.SIGKILL
                raise Failed(f"not finished within {limit:.0f} s")
            time.sleep(min(0.002 + seconds / 1000, 0.1))
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise Failed(f"exit {process.returncode}: {last[:120]}")
    return Run(seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def measure(subjects: list[Subject], limit: float) -> dict[str, Run | str]:
    """Median time and largest peak of each subject; runs take turns, so that noise hits all."""
    done: dict[str, list[Run]] = {subject.name: [] for subject in subjects}
    failed: dict[str, str] = {}
    for turn in range(max((subject.runs for subject in subjects), default=0)):
        for subject in subjects:
            if turn >= subject.runs or subject.name in failed:
                continue
            try:
                done[subject.name].append(run_once(subject.command, limit))
            except Failed as error:
                failed[subject.name] = str(error)
    return {
        name: failed.get(name)
        or Run(statistics.median(r.seconds for r in runs), max(r.peak for r in runs))
        for name, runs in done.items()
    }


def subjects_for(
    trace: Path, out: Path, hta: str | None, runs: int, hta_runs: int
) -> list[Subject]:
    """The floor, whyidle and HTA on one trace."""
    python = sys.executable
    trace_command = ("-m", "whyidle", "trace", "--json", str(out), str(trace))
    subjects = [
        Subject("floor", (python, str(HERE / "parse_floor.py"), str(trace)), runs),
        Subject("whyidle", (python, *trace_command), runs),
    ]
    if hta:
        hta_command = (hta, str(HERE / "run_hta.py"), str(trace.parent))
        subjects.append(Subject("HTA", hta_command, hta_runs))
    return subjects


def row(name: str, result: Run | str, results: dict[str, Run | str]) -> str:
    """A table row: seconds, times the floor, HTA's time over it, peak memory."""
    if isinstance(result, str):
        return f"| {name} | {result} | | | |"

    def ratio(other: str, invert: bool) -> str:
        reference = results.get(other)
        if not isinstance(reference, Run) or other == name:
            return ""
        quotient = result.seconds / reference.seconds
        return f"{1 / quotient if invert else quotient:.2f}"

    return (
        f"| {name} | {result.seconds:.2f} s | {ratio('floor', False)} | {ratio('HTA', True)} "
        f"| {result.peak / MB:.0f} MB |"
    )


def trace_tables(options: argparse.Namespace, folder: Path) -> None:
    """Print a table for each size of trace."""
    for size in options.sizes:
        trace = folder / str(size) / "trace_rank_1.json.gz"  # HTA reads whole folders
        if not trace.exists():
            _make(options.source, trace, size)
        json_bytes = _uncompressed(trace)
        long = json_bytes > 500 * MB
        results = measure(
            subjects_for(
                trace,
                folder / "report.json",
                options.hta,
                options.runs,
                1 if long else min(options.runs, 3),
            ),
            options.limit,
        )
        compressed = trace.stat().st_size / MB
        print(f"\n### {json_bytes / MB:.0f} MB of JSON ({compressed:.0f} MB as .gz)\n")
        print("| | time | x floor | HTA's time / this | peak memory |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for name, result in results.items():
            print(row(name, result, results), flush=True)


def _make(source: Path, trace: Path, size: int) -> None:
    """Make a long trace in a process of its own: a child starts with its parent's peak memory as
    its own (Linux keeps it over exec), so this process must stay small."""
    written = trace.with_name("unfinished")
    command = (sys.executable, str(HERE / "tile_trace.py"), str(source), str(written), str(size))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    written.rename(trace)


def _uncompressed(trace: Path) -> int:
    """The size that the gzip file gives of its content (below 4 GB)."""
    with trace.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(), "little")


def start_table(runs: int) -> None:
    """Print how long it takes to start."""
    python = sys.executable
    results = measure(
        [
            Subject("`python -c pass`", (python, "-c", "pass"), runs),
            Subject("`import whyidle`", (python, "-c", "import whyidle"), runs),
            Subject("`whyidle --help`", (python, "-m", "whyidle", "--help"), runs),
        ],
        60,
    )
    print("\n### Start (target: below 0.3 s)\n")
    print("| | time |\n| --- | ---: |")
    for name, result in results.items():
        print(f"| {name} | {result if isinstance(result, str) else f'{result.seconds:.3f} s'} |")


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, default=SOURCE, help="a real trace to make long")
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 200, 1000], help="MB of JSON")
    parser.add_argument("--runs", type=int, default=5, help="medians are of so many")
    parser.add_argument("--hta", help="interpreter of an environment with HolisticTraceAnalysis")
    parser.add_argument("--limit", type=float, default=600, help="seconds a process may take")
    parser.add_argument("--folder", type=Path, default=HERE.parent / "bench-out")
    options = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}; medians of {options.runs} runs (HTA: at most 3, above 500 MB 1). {TARGETS}")
    start_table(max(options.runs, 3))
    if not options.source.is_file():
        print(f"\nSkipped: no trace at {options.source}; name a real one with --source.")
        return 0
    if options.hta and not shutil.which(options.hta):
        print(f"\nHTA is left out: no interpreter at {options.hta}.")
        options.hta = None
    elif not options.hta:
        print("\nHTA is left out: name the interpreter of an environment that has it with --hta.")
    trace_tables(options, options.folder / options.source.name.partition(".")[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
