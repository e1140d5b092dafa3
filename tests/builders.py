"""Synthetic timelines with known nanoseconds, for all tests.

``TraceBuilder`` takes events in any order and gives the same columns the readers give:
host rows sorted by (thread, start, longest first, outer kind first), device rows by (device,
start), interned names, launches found by correlation. ``write_kineto`` writes the same trace as
Kineto JSON (times in us with three decimals), so that a reader can be tested against ``build``.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whyidle.causes.evidence import Evidence
from whyidle.ledger.build import build_ledgers
from whyidle.timeline.columns import (
    DeviceEvents,
    DeviceKind,
    DeviceProperties,
    HostEvents,
    HostKind,
    Source,
    Thread,
    Timeline,
)
from whyidle.timeline.nesting import nest

MAIN = 0  # the thread every builder starts with

_HOST_CATEGORY = {
    HostKind.ANNOTATION: "user_annotation",
    HostKind.PYTHON: "python_function",
    HostKind.OPERATOR: "cpu_op",
    HostKind.RUNTIME: "cuda_runtime",
    HostKind.OVERHEAD: "overhead",
    HostKind.GC: "python_gc",
}
_DEVICE_CATEGORY = {
    DeviceKind.KERNEL: "kernel",
    DeviceKind.MEMCPY: "gpu_memcpy",
    DeviceKind.MEMSET: "gpu_memset",
}


@dataclass(frozen=True)
class _Host:
    name: str
    start: int
    end: int
    kind: HostKind
    thread: int
    correlation: int
    stack: str


@dataclass(frozen=True)
class _Device:
    name: str
    start: int
    end: int
    kind: DeviceKind
    device: int
    stream: int
    correlation: int
    bytes: int
    blocks: int


class TraceBuilder:
    """Collects events; all times are integer ns. Methods return what later calls may need."""

    def __init__(self, rank: int | None = None, world_size: int | None = None) -> None:
        self._host: list[_Host] = []
        self._device: list[_Device] = []
        self._threads = [Thread("1000", "1000", "python")]
        self._properties: list[DeviceProperties] = []
        self._correlation = 0
        self._rank = rank
        self._world_size = world_size

    def thread(self, name: str = "", pid: str = "1000") -> int:
        """Add a host thread and return its index; index 0, the main thread, is always there."""
        self._threads.append(Thread(pid, str(1000 + len(self._threads)), name))
        return len(self._threads) - 1

    def properties(
        self, device: int = 0, name: str = "NVIDIA Test", sms: int = 100, memory_bytes: int = 0
    ) -> None:
        """Record what the trace says of ``device``."""
        self._properties.append(DeviceProperties(device, name, sms, memory_bytes, (9, 0)))

    def host(
        self,
        name: str,
        start: int,
        end: int,
        kind: HostKind = HostKind.OPERATOR,
        thread: int = MAIN,
        stack: str = "",
    ) -> None:
        """Add a host event without a correlation."""
        self._host.append(_Host(name, start, end, kind, thread, -1, stack))

    def op(self, name: str, start: int, end: int, thread: int = MAIN, stack: str = "") -> None:
        """Add a framework operator."""
        self.host(name, start, end, HostKind.OPERATOR, thread, stack)

    def python(self, name: str, start: int, end: int, thread: int = MAIN) -> None:
        """Add a Python call, named as the profiler does: "path/file.py(12): function"."""
        self.host(name, start, end, HostKind.PYTHON, thread)

    def annotation(self, name: str, start: int, end: int, thread: int = MAIN) -> None:
        """Add a ``record_function`` annotation."""
        self.host(name, start, end, HostKind.ANNOTATION, thread)

    def step(self, index: int, start: int, end: int) -> None:
        """Add the ProfilerStep annotation of step ``index`` on the main thread."""
        self.annotation(f"ProfilerStep#{index}", start, end)

    def launch(
        self,
        name: str,
        host_start: int,
        host_end: int,
        device_start: int,
        device_end: int,
        stream: int = 7,
        device: int = 0,
        kind: DeviceKind = DeviceKind.KERNEL,
        runtime: str = "cudaLaunchKernel",
        blocks: int = -1,
        bytes: int = -1,
        thread: int = MAIN,
    ) -> int:
        """Add a runtime call and the device activity it launches; returns the correlation."""
        self._correlation += 1
        correlation = self._correlation
        self._host.append(
            _Host(runtime, host_start, host_end, HostKind.RUNTIME, thread, correlation, "")
        )
        self._device.append(
            _Device(
                name, device_start, device_end, kind, device, stream, correlation, bytes, blocks
            )
        )
        return correlation

    def orphan(
        self,
        name: str,
        device_start: int,
        device_end: int,
        stream: int = 7,
        device: int = 0,
        kind: DeviceKind = DeviceKind.KERNEL,
        blocks: int = -1,
        bytes: int = -1,
    ) -> None:
        """Add a device activity whose launching call was not recorded."""
        self._correlation += 1
        self._device.append(
            _Device(
                name,
                device_start,
                device_end,
                kind,
                device,
                stream,
                self._correlation,
                bytes,
                blocks,
            )
        )

    def memcpy(
        self,
        host_start: int,
        host_end: int,
        device_start: int,
        device_end: int,
        name: str = "Memcpy HtoD (Pageable -> Device)",
        bytes: int = 4,
        stream: int = 7,
        device: int = 0,
        runtime: str = "cudaMemcpyAsync",
        thread: int = MAIN,
    ) -> int:
        """Add a copy call and its copy on the device."""
        return self.launch(
            name,
            host_start,
            host_end,
            device_start,
            device_end,
            stream,
            device,
            DeviceKind.MEMCPY,
            runtime,
            bytes=bytes,
            thread=thread,
        )

    def sync(
        self, start: int, end: int, name: str = "cudaStreamSynchronize", thread: int = MAIN
    ) -> None:
        """Add a runtime call that blocks the host and puts nothing on the device."""
        self._correlation += 1
        self._host.append(_Host(name, start, end, HostKind.RUNTIME, thread, self._correlation, ""))

    def build(self) -> Timeline:
        """The timeline."""
        host_rows = sorted(self._host, key=lambda e: (e.thread, e.start, -e.end, e.kind))
        device_rows = sorted(self._device, key=lambda e: (e.device, e.start, e.end))
        names, name_index = _interned([e.name for e in host_rows] + [e.name for e in device_rows])
        stacks, stack_index = _interned([e.stack for e in host_rows if e.stack])
        launcher = {e.correlation: i for i, e in enumerate(host_rows) if e.correlation >= 0}
        return Timeline(
            source=Source(
                "<builder>",
                "kineto",
                self._rank,
                self._world_size,
                self._properties[0].name if self._properties else None,
            ),
            names=names,
            stacks=stacks,
            threads=list(self._threads),
            main_thread=MAIN if host_rows else -1,
            host=HostEvents(
                start=np.array([e.start for e in host_rows], np.int64),
                end=np.array([e.end for e in host_rows], np.int64),
                name=np.array([name_index[e.name] for e in host_rows], np.int32),
                kind=np.array([e.kind for e in host_rows], np.uint8),
                thread=np.array([e.thread for e in host_rows], np.int32),
                correlation=np.array([e.correlation for e in host_rows], np.int64),
                stack=np.array([stack_index.get(e.stack, -1) for e in host_rows], np.int32),
            ),
            device=DeviceEvents(
                start=np.array([e.start for e in device_rows], np.int64),
                end=np.array([e.end for e in device_rows], np.int64),
                name=np.array([name_index[e.name] for e in device_rows], np.int32),
                kind=np.array([e.kind for e in device_rows], np.uint8),
                device=np.array([e.device for e in device_rows], np.int32),
                stream=np.array([e.stream for e in device_rows], np.int64),
                correlation=np.array([e.correlation for e in device_rows], np.int64),
                bytes=np.array([e.bytes for e in device_rows], np.int64),
                blocks=np.array([e.blocks for e in device_rows], np.int64),
                launch=np.array([launcher.get(e.correlation, -1) for e in device_rows], np.int32),
            ),
            devices=tuple(self._properties),
            has_operators=any(e.kind == HostKind.OPERATOR for e in host_rows),
            has_python=any(e.kind == HostKind.PYTHON for e in host_rows),
        )

    def kineto(self) -> dict[str, Any]:
        """The same trace as the object a Kineto file holds."""
        document: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [
                {
                    "id": p.index,
                    "name": p.name,
                    "totalGlobalMem": p.memory_bytes,
                    "computeMajor": p.compute_capability[0],
                    "computeMinor": p.compute_capability[1],
                    "numSms": p.sms,
                }
                for p in self._properties
            ],
            "displayTimeUnit": "ms",
        }
        if self._rank is not None:
            document["distributedInfo"] = {
                "backend": "nccl",
                "rank": self._rank,
                "world_size": self._world_size or 1,
            }
        document["traceEvents"] = [
            *(self._thread_row(i) for i in range(len(self._threads))),
            *(self._host_row(e) for e in self._host),
            *(_device_row(e) for e in self._device),
        ]
        return document

    def write_kineto(self, path: Path | str) -> Path:
        """Write the trace as Kineto JSON; gzipped where ``path`` ends in ".gz"."""
        path = Path(path)
        # Times are written as literals with three decimals, as Kineto does: floats would round.
        text = re.sub(r'"@(\d+\.\d{3})@"', r"\1", json.dumps(self.kineto(), indent=1))
        data = text.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path

    def _thread_row(self, index: int) -> dict[str, Any]:
        thread = self._threads[index]
        return {
            "name": "thread_name",
            "ph": "M",
            "ts": 0,
            "pid": int(thread.pid),
            "tid": int(thread.tid),
            "args": {"name": f"thread {thread.tid} ({thread.name})"},
        }

    def _host_row(self, event: _Host) -> dict[str, Any]:
        thread = self._threads[event.thread]
        args: dict[str, Any] = {}
        if event.correlation >= 0:
            args["correlation"] = event.correlation
        if event.stack:
            args["Call stack"] = event.stack
        return {
            "ph": "X",
            "cat": _HOST_CATEGORY[event.kind],
            "name": event.name,
            "pid": int(thread.pid),
            "tid": int(thread.tid),
            "ts": _microseconds(event.start),
            "dur": _microseconds(event.end - event.start),
            "args": args,
        }


def _device_row(event: _Device) -> dict[str, Any]:
    args: dict[str, Any] = {
        "device": event.device,
        "stream": event.stream,
        "correlation": event.correlation,
    }
    if event.bytes >= 0:
        args["bytes"] = event.bytes
    if event.blocks >= 0:
        args |= {"grid": [event.blocks, 1, 1], "block": [128, 1, 1]}
    return {
        "ph": "X",
        "cat": _DEVICE_CATEGORY[event.kind],
        "name": event.name,
        "pid": event.device,
        "tid": event.stream,
        "ts": _microseconds(event.start),
        "dur": _microseconds(event.end - event.start),
        "args": args,
    }


def _microseconds(ns: int) -> str:
    """``ns`` in us with three decimals, marked so that the writer can drop the quotes."""
    return f"@{ns // 1000}.{ns % 1000:03d}@"


def _interned(texts: list[str]) -> tuple[list[str], dict[str, int]]:
    unique = list(dict.fromkeys(texts))
    return unique, {text: i for i, text in enumerate(unique)}


def evidence_of(builder: TraceBuilder, device: int = 0) -> Evidence:
    """What the rules read of a built trace: its ledger, checked, with all of its time free."""
    timeline = builder.build()
    nesting = nest(timeline.host, len(timeline.threads))
    ledger = next(x for x in build_ledgers(timeline, nesting) if x.device == device)
    return Evidence(timeline, nesting, ledger, np.ones(len(ledger.segments), np.bool_))
