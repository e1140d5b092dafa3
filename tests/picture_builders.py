"""Reports with a picture, and reports full of hostile names, for the tests of the HTML face."""

from __future__ import annotations

import dataclasses
from typing import Any

from builders import TraceBuilder
from report_builders import MS, STEP, device, finding, report
from whyidle.ledger.build import build_ledgers
from whyidle.reports.model import KernelLine, Picture, Report, Verdict
from whyidle.timeline.columns import Source
from whyidle.timeline.nesting import nest

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
HOSTILE = "</script><img src=x onerror=\"document.body.dataset.pwned='1'\"><!--&lt;\u202e\x1b[31m"
SHOWN = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")


def builder(name: str = "load", steps: int = 3) -> TraceBuilder:
    """Steps of 1.0, 1.2 and 1.1 ms (then again) that wait for a loader and for dispatch."""
    trace = TraceBuilder(rank=0, world_size=1)
    trace.properties(0)
    at = 5_000_007
    for i in range(steps):
        end = at + (1_000_000, 1_200_000, 1_100_000)[i % 3]
        trace.step(i, at, end)
        trace.annotation(LOADER, at, at + 400_000)
        trace.python(f"{name}.py(7): collate", at + 10, at + 399_000)
        trace.op("aten::mm", at + 401_000, at + 430_000)
        trace.launch(f"sgemm {name}", at + 410_000, at + 420_000, at + 425_000, at + 600_000)
        trace.op("aten::add", at + 600_500, at + 800_000)
        trace.launch("add_kernel", at + 780_000, at + 790_000, at + 800_003, at + 900_000, stream=9)
        at = end
    return trace


def picture(trace: TraceBuilder | None = None) -> Picture:
    timeline = (trace or builder()).build()
    nesting = nest(timeline.host, len(timeline.threads))
    return Picture(timeline, nesting, build_ledgers(timeline, nesting))


def with_picture(**changes: Any) -> Report:
    return dataclasses.replace(report(**changes), picture=picture())


def hostile_report() -> Report:
    trace = builder(HOSTILE)
    trace.thread(HOSTILE)
    made = report(
        devices=(dataclasses.replace(device([dict(STEP)] * 4, name=HOSTILE), window_how=HOSTILE),),
        findings=(
            finding(HOSTILE, evidence=(HOSTILE,), disproof=HOSTILE, notes=(HOSTILE,),
                    devices=(HOSTILE, HOSTILE)),
        ),
        verdict=Verdict("finding", "input", HOSTILE),
        warnings=(HOSTILE,),
    )  # fmt: skip
    return dataclasses.replace(
        made,
        sources=(Source(HOSTILE, "kineto", 0, 1, HOSTILE),),
        kernels=(KernelLine(HOSTILE, "compute.matmul", 40, 160 * MS, 4 * MS),),
        picture=picture(trace),
    )
