"""The timeline: the events of one process's trace as columns.

All times are integer nanoseconds of the trace's own clock. Names are interned: columns hold
indices into ``Timeline.names``. Host events are sorted by (thread, start, longest first), device
events by (device, start, end); -1 means "none" in every index column.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]


class HostKind(IntEnum):
    """What recorded a host event. At equal times the smaller kind is the outer one."""

    ANNOTATION = 0  # record_function, ProfilerStep, optimizer and loader annotations
    PYTHON = 1  # with_stack=True: one event a Python function call
    OPERATOR = 2  # aten::..., autograd nodes
    RUNTIME = 3  # CUDA/HIP/XPU runtime and driver calls
    OVERHEAD = 4  # the profiler's own work
    GC = 5  # Python garbage collection


class DeviceKind(IntEnum):
    """What kept the device busy."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


@dataclass(frozen=True, eq=False)
class HostEvents:
    """Host rows. All arrays have shape (n,)."""

    start: I64
    end: I64
    name: I32
    kind: U8
    thread: I32
    correlation: I64
    stack: I32  # index into Timeline.stacks (old profiler's "Call stack"), -1 none

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class DeviceEvents:
    """Device activity: kernels, copies and memsets, nothing else. All arrays have shape (n,)."""

    start: I64
    end: I64
    name: I32
    kind: U8
    device: I32
    stream: I64
    correlation: I64
    bytes: I64  # of a copy, memset or collective; -1 unknown
    blocks: I64  # thread blocks of a kernel's grid; -1 unknown
    launch: I32  # index into HostEvents of the call that launched it; -1 not recorded

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Thread:
    """A host thread. ``pid`` and ``tid`` are kept as text: traces mix numbers and names."""

    pid: str
    tid: str
    name: str = ""


@dataclass(frozen=True)
class DeviceProperties:
    """What the trace says of a device. ``sms`` is 0 and ``memory_bytes`` 0 where unknown."""

    index: int
    name: str
    sms: int = 0
    memory_bytes: int = 0
    compute_capability: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Source:
    """Where a timeline came from."""

    path: str
    format: str
    rank: int | None = None
    world_size: int | None = None
    device_name: str | None = None


@dataclass(frozen=True, eq=False)
class Timeline:
    """One process's trace."""

    source: Source
    names: list[str]
    stacks: list[str]
    threads: list[Thread]
    main_thread: int  # index into threads; -1 where there is no host row
    host: HostEvents
    device: DeviceEvents
    devices: tuple[DeviceProperties, ...] = ()
    resolution_ns: int = 1  # 1000 where the trace counts whole microseconds
    has_operators: bool = True
    has_python: bool = False
    recorded_share: float = 1.0  # of the events that the profiler recorded, those in the file
    cut_off: bool = False  # the file ends before its list of events does
    peak_reserved_bytes: dict[int, int] = field(default_factory=dict)  # per device, profile_memory
    warnings: tuple[str, ...] = ()

    def properties(self, device: int) -> DeviceProperties | None:
        """The recorded properties of ``device``, or None."""
        return next((p for p in self.devices if p.index == device), None)
