"""Decode one large file in two processes: this one and a worker that runs the same code.

This process decompresses and cuts the text at event borders; whoever is free decodes the next
piece into columns. The worker is a plain child with pipes (no fork of a program with threads, no
second import of the caller's main module). Anything unusual, such as broken text, ends the attempt,
and the caller reads the file alone.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from whyidle.readers.bytestream import CHUNK, Progress, chunks
from whyidle.readers.kineto_columns import Columns, Interner, add
from whyidle.readers.trace_json import (
    HEAD_LIMIT,
    Decoder,
    TraceText,
    needs_exact_times,
    read_tail,
    skip_head,
)

# Below these sizes the worker's start costs more than it saves (docs/benchmarks.md).
MIN_PACKED = 6 << 20  # gzip, which packs traces about 15 times
MIN_PLAIN = 96 << 20
_WAITING = 4  # pieces that may wait for the worker: bounds memory
# The worker imports from where this process does, and never from the working directory, which
# ``python -c`` would look into first: it may hold anybody's numpy.py.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; "
_PROGRAM += "from whyidle.readers.two_processes import serve; serve()"


class _NotThisWayError(Exception):
    """The file or the machine is not fit for two processes."""


def read_in_two(path: Path, progress: Progress | None) -> tuple[TraceText, Columns] | None:
    """Read a file with the help of a worker; None where it is better or necessary to read alone."""
    if not _worth_it(path):
        return None
    try:
        worker = _Worker()
    except OSError:
        return None
    try:
        return _read(path, worker, progress)
    except (_NotThisWayError, OSError, EOFError, pickle.UnpicklingError):
        return None
    finally:
        worker.close()


def _worth_it(path: Path) -> bool:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            return False  # a pipe can be read only once
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
    except OSError:
        return False
    large = about.st_size >= (MIN_PACKED if packed else MIN_PLAIN)
    return large and _cores() > 1 and bool(sys.executable)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read(path: Path, worker: _Worker, progress: Progress | None) -> tuple[TraceText, Columns]:
    text, columns = TraceText(), Columns()
    stream = chunks(path, text.damage, progress)
    decoder: Decoder | None = None
    buffer = skip_head(path, stream, text)
    number = 0
    for chunk in stream:
        buffer += chunk
        if len(buffer) < CHUNK:
            continue
        if decoder is None:
            exact = needs_exact_times(buffer)
            decoder = Decoder(exact, text)
            worker.begin(exact)
        cut = next(iter(decoder.borders(buffer)), None)
        if cut is None:
            if len(buffer) > HEAD_LIMIT:
                raise _NotThisWayError  # long metadata, or no trace: reading alone bounds memory
            continue
        piece, buffer = buffer[: cut + 1], buffer[buffer.index(b"{", cut) :]
        if not worker.offer(number, piece):
            events = decoder.decode(piece)
            if events is None:
                raise _NotThisWayError
            _add_numbered(columns, events, number)
        number += 1
    decoder = decoder or Decoder(needs_exact_times(buffer), text)
    events, buffer = decoder.finish(buffer)
    _add_numbered(columns, events, number)
    read_tail(buffer, text)
    _merge(columns, worker.result())
    for parts in (columns.host, columns.device):
        parts.sort(key=lambda part: part[0])
        parts[:] = [part[1:] for part in parts]
    return text, columns


def _add_numbered(columns: Columns, events: list[Any], number: int) -> None:
    """Add a batch, and put its number in front of its columns."""
    host, device = len(columns.host), len(columns.device)
    measured = columns.recorded_share is not None
    add(columns, events)
    for parts, before in ((columns.host, host), (columns.device, device)):
        parts[before:] = [(number, *part) for part in parts[before:]]
    if not measured and columns.recorded_share is not None:
        columns.recorded_batch = number


def _merge(columns: Columns, other: Columns) -> None:
    """Add the worker's columns: its own numbers of names become this process's."""
    names = _renumbering(columns.names, other.names)
    threads = _renumbering(columns.threads, other.threads)
    stacks = _renumbering(columns.stacks, other.stacks)
    streams = _renumbering(columns.streams, other.streams)
    for number, start, end, name, kind, thread, correlation, stack in other.host:
        if len(stacks):
            stack = np.where(stack >= 0, stacks[stack], -1).astype(np.int32)
        part = (number, start, end, names[name], kind, threads[thread], correlation, stack)
        columns.host.append(part)
    for number, start, end, name, kind, device, stream, *rest in other.device:
        columns.device.append(
            (number, start, end, names[name], kind, device, streams[stream], *rest)
        )
    for key, label in other.labels.items():
        columns.labels[key] = max(label, columns.labels.get(key, ""))
    for index, total in other.reserved.items():
        columns.reserved[index] = max(columns.reserved.get(index, 0), total)
    columns.unknown += other.unknown
    columns.whole_us &= other.whole_us
    columns.begin_end += other.begin_end
    columns.untimed += other.untimed
    columns.bad_values += other.bad_values
    if other.recorded_share is not None and (
        columns.recorded_share is None or other.recorded_batch < columns.recorded_batch
    ):
        columns.recorded_share = other.recorded_share  # as measured in the first batch that tells


def _renumbering(own: Interner, other: Interner) -> Any:
    return np.array([own[value] for value in other], np.int32)


class _Worker:
    """The child process, fed by a thread so that this process never waits for the pipe."""

    def __init__(self) -> None:
        package = str(Path(__file__).resolve().parents[2])
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, package, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which then ends the worker
        )
        self.waiting: queue.Queue[tuple[int, bytes] | None] = queue.Queue(_WAITING)
        self.feeder: threading.Thread | None = None

    def begin(self, exact: bool) -> None:
        """Say how times are to be read, and start to feed."""
        self.feeder = threading.Thread(target=self._feed, args=(exact,), daemon=True)
        self.feeder.start()

    def offer(self, number: int, piece: bytes) -> bool:
        """Hand a piece over, unless the worker has enough to do."""
        if self.feeder is None or not self.feeder.is_alive():
            raise _NotThisWayError
        try:
            self.waiting.put_nowait((number, piece))
        except queue.Full:
            return False
        return True

    def result(self) -> Columns:
        """What the worker decoded."""
        if self.feeder is None:
            return Columns()
        while True:
            try:
                self.waiting.put(None, timeout=0.1)
                break
            except queue.Full:
                if not self.feeder.is_alive():  # the worker died: nobody will make room
                    raise _NotThisWayError from None
        assert self.process.stdout is not None
        found = pickle.load(self.process.stdout)
        if not isinstance(found, Columns):
            raise _NotThisWayError
        return found

    def close(self) -> None:
        """End the worker, whatever it does."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what it had buffered has nowhere to go
                    continue

    def _feed(self, exact: bool) -> None:
        pipe = self.process.stdin
        assert pipe is not None
        try:
            pipe.write(bytes([exact]))
            while (item := self.waiting.get()) is not None:
                number, piece = item
                pipe.write(number.to_bytes(8, "little") + len(piece).to_bytes(8, "little"))
                pipe.write(piece)
            pipe.close()
        except (OSError, ValueError):
            return  # the worker is gone; result() and offer() notice


def serve() -> None:
    """The worker: decode the pieces that come in, then hand the columns back."""
    gc.disable()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    columns = Columns()
    flag = source.read(1)
    decoder = Decoder(flag == b"\x01", TraceText())
    for number, piece in _pieces(source):
        events = decoder.decode(piece)
        if events is None:
            pickle.dump(None, sink)
            return
        _add_numbered(columns, events, number)
    pickle.dump(columns, sink, protocol=pickle.HIGHEST_PROTOCOL)
    sink.flush()


def _pieces(source: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    while len(head := source.read(16)) == 16:
        size = int.from_bytes(head[8:], "little")
        piece = source.read(size)
        if len(piece) < size:
            return
        yield int.from_bytes(head[:8], "little"), piece
