"""Picking host events by name, by what they lie under, and finding the code line they came from."""

from __future__ import annotations

import re
import sys

import numpy as np

from whyidle.timeline.columns import I32, Bool, HostKind, Timeline
from whyidle.timeline.nesting import Nesting

# "path/file.py(12): function", as the profiler names a Python call.
_FRAME = re.compile(r"^(?P<file>.+?\.pyx?)\((?P<line>\d+)\): (?P<function>.+)$")
# Code the user does not edit: installed packages, the interpreter's library, the launcher.
# The profiler cuts off where packages are installed, so well-known ones are listed.
_LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python[\d.]+)/"
    r"|^(torch\w*|transformers|accelerate|(pytorch_)?lightning(_\w+)?|deepspeed|megatron|apex|peft|trl"
    r"|diffusers|timm|datasets|tokenizers|fairscale|fairseq2?|composer|ray|wandb|mlflow|tensorboardX?"
    r"|comet_ml|neptune|numpy|scipy|pandas|sklearn|PIL|cv2|tqdm|triton|flash_attn|xformers|jax|keras"
    r"|tensorflow|mmcv|mmengine|detectron2|fbgemm_gpu|vllm|einops|safetensors|huggingface_hub|evaluate"
    r"|fsspec|dill|psutil)/"
    r"|^<"
)


def name_mask(names: list[str], pattern: str | re.Pattern[str]) -> Bool:
    """Which of ``names`` the regular expression is found in, shape (len(names),)."""
    found = re.compile(pattern).search
    return np.fromiter((found(name) is not None for name in names), np.bool_, len(names))


def events_named(
    timeline: Timeline, pattern: str | re.Pattern[str], kinds: tuple[HostKind, ...] | None = None
) -> Bool:
    """Host events whose name the regular expression is found in, shape (len(host),).

    ``kinds`` keeps only events of these kinds.
    """
    host = timeline.host
    if not len(host):
        return np.zeros(0, np.bool_)
    names = name_mask(timeline.names, pattern)
    if not names.any():
        return np.zeros(len(host), np.bool_)
    chosen: Bool = names[host.name]
    if kinds is not None:
        wanted = np.zeros(256, np.bool_)
        wanted[list(kinds)] = True
        chosen &= wanted[host.kind]
    return chosen


def under(nesting: Nesting, roots: Bool) -> Bool:
    """Host events that are roots or have a root among their ancestors, shape (len(host),)."""
    inside = roots.copy()
    if not roots.any():
        return inside
    for rows in nesting.levels:
        inside[rows] |= of_host(inside, nesting.parent[rows])
    return inside


def innermost(nesting: Nesting, chosen: Bool) -> I32:
    """For each host event the innermost chosen one at or around it, -1 none, shape (len(host),)."""
    found = np.where(chosen, np.arange(len(chosen)), -1).astype(np.int32)
    if not chosen.any():
        return found
    for rows in nesting.levels:
        parent = nesting.parent[rows]
        above = np.where(parent >= 0, found[parent], -1)
        found[rows] = np.where(found[rows] >= 0, found[rows], above)
    return found


def outermost(nesting: Nesting, chosen: Bool) -> I32:
    """For each host event the outermost chosen one at or around it, -1 none, shape (len(host),)."""
    found = np.where(chosen, np.arange(len(chosen)), -1).astype(np.int32)
    if not chosen.any():
        return found
    for rows in nesting.levels:
        parent = nesting.parent[rows]
        above = np.where(parent >= 0, found[parent], -1)
        found[rows] = np.where(above >= 0, above, found[rows])
    return found


def of_host(mask: Bool, index: I32) -> Bool:
    """``mask`` over host events looked up at host indices; -1 (no event) gives False."""
    if not len(mask):
        return np.zeros(len(index), np.bool_)
    found: Bool = mask[np.maximum(index, 0)] & (index >= 0)
    return found


def chain(nesting: Nesting, host_index: int) -> list[int]:
    """The event and its ancestors, innermost first."""
    found = []
    while host_index >= 0:
        found.append(host_index)
        host_index = int(nesting.parent[host_index])
    return found


def location(timeline: Timeline, nesting: Nesting, host_index: int) -> str | None:
    """The code line an event came from, as "file.py:12 (function)", or None.

    The innermost line outside torch and installed packages, from Python calls around the event or
    from the call stack of it or an event around it; the innermost library line where no other is
    recorded.
    """
    library = None
    for index in chain(nesting, host_index):
        for frame in _frames(timeline, index):
            match = _FRAME.match(frame)
            if match is None:
                continue
            text = place(frame)
            if not _is_library(match["file"]):
                return text
            library = library or text
    return library


def place(frame: str) -> str:
    """A profiler's frame "file.py(12): function" as "file.py:12 (function)"; others unchanged."""
    match = _FRAME.match(frame)
    return f"{match['file']}:{match['line']} ({match['function']})" if match else frame


def _frames(timeline: Timeline, index: int) -> list[str]:
    """Frames recorded at one host event, innermost first."""
    host = timeline.host
    if host.kind[index] == HostKind.PYTHON:
        return [timeline.names[host.name[index]]]
    if host.stack[index] >= 0:
        stack: str = timeline.stacks[int(host.stack[index])]
        return stack.split(";")
    return []


def user_frames(timeline: Timeline) -> Bool:
    """Host events that name a code line outside torch and installed packages.

    Python calls by their own name, others by the call stack recorded with them; shape (len(host),).
    """
    host = timeline.host
    names = np.array([_is_user_frame(n) for n in timeline.names], np.bool_)
    found: Bool = (host.kind == HostKind.PYTHON) & names[host.name]
    if timeline.stacks:
        own = [any(_is_user_frame(f) for f in s.split(";")) for s in timeline.stacks]
        found = found | of_host(np.array(own, np.bool_), host.stack)
    return found


def _is_user_frame(frame: str) -> bool:
    match = _FRAME.match(frame)
    return match is not None and not _is_library(match["file"])


def _is_library(file: str) -> bool:
    # The profiler cuts the interpreter's own path off: "threading.py", "asyncio/events.py".
    top = file.partition("/")[0].removesuffix(".py")
    return bool(_LIBRARY.search(file)) or top in sys.stdlib_module_names


def user_code(text: str) -> bool:
    """Whether a place given by ``location`` is outside torch and installed packages."""
    return not _is_library(text.rpartition(" (")[0].rpartition(":")[0])
