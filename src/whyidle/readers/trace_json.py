"""Chrome-trace JSON as batches of typed events, in bounded memory.

The text is cut at event borders into pieces that are decoded whole; what surrounds the events is
decoded as metadata, before or after them. Broken text is repaired where its meaning is plain (bad
escapes, NaN, Infinity, control characters), and otherwise left out event by event and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from whyidle.errors import WhyidleError
from whyidle.readers.bytestream import CHUNK, Damage, Progress, chunks

HEAD_LIMIT = 64 << 20  # metadata before or after the events larger than this is no trace
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BORDER = re.compile(rb"\}\s*,\s*\{")
_ARRAY_END = re.compile(rb'(?:\}\s*|\A\s*)(?=\]\s*(?:\}\s*\Z|,\s*"[^"\\]{1,80}"\s*:|\Z))')
_BORDER_TRIES = 8
# From 2^43 us a double can no longer hold every nanosecond: its step is 2^(43-52) us = 1.95 ns.
_EXACT_FROM_US = 2**43
_LARGE_FRACTION = re.compile(rb'"ts"\s*:\s*"?(\d{13,})\.\d')
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Args(
    msgspec.Struct,
    gc=False,
    rename={
        "call_stack": "Call stack",
        "total_reserved": "Total Reserved",
        "device_id": "Device Id",
        "in_nelems": "In msg nelems",
        "event_index": "Ev Idx",
        "old_event_index": "Profiler Event Index",
    },
):
    """The arguments that are read; all others are skipped unparsed."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    size: Any = None
    grid: Any = None
    name: Any = None
    call_stack: Any = None
    total_reserved: Any = None
    device_id: Any = None
    in_nelems: Any = None
    dtype: Any = None
    event_index: Any = None
    old_event_index: Any = None


class Event(msgspec.Struct, gc=False):
    """One trace event as written. Values keep the JSON type that the file gave them."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: int | float | str | None = None
    args: Args | None = None


class _LooseEvent(msgspec.Struct):
    """The same for files whose ``dur`` or ``args`` have another type."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Any = None


@dataclass
class TraceText:
    """What was learned of a file while its batches were read."""

    metadata: dict[str, Any] = field(default_factory=dict)
    damage: Damage = field(default_factory=Damage)
    repaired: int = 0  # pieces of text that needed repair
    lost: int = 0  # events that could not be decoded
    cut_off: bool = False  # the text ends before the list of events does


def batches(path: Path, text: TraceText, progress: Progress | None = None) -> Iterator[list[Event]]:
    """Yield the events of the file in batches, in file order.

    Raises WhyidleError when the file is empty, unreadable or holds no trace events.
    """
    yield from _batches(path, text, Decoder, progress)


def raw_batches(
    path: Path, text: TraceText, progress: Progress | None = None
) -> Iterator[list[bytes]]:
    """Yield the events of the file as the text that each is written in, valid JSON one by one.

    Like ``batches`` in everything else; ``text.metadata`` is complete when the iteration ends.
    """
    yield from _batches(path, text, _RawDecoder, progress)


def _batches(
    path: Path, text: TraceText, kind: type[Decoder], progress: Progress | None
) -> Iterator[list[Any]]:
    stream = chunks(path, text.damage, progress)
    buffer = skip_head(path, stream, text)
    decoder: Decoder | None = None
    ended = False
    for piece in stream:
        buffer += piece
        if len(buffer) < CHUNK:
            continue
        if ended:
            if len(buffer) > HEAD_LIMIT:
                buffer = b""
            continue
        decoder = decoder or kind(needs_exact_times(buffer), text)
        events, buffer, ended = decoder.take(buffer)
        yield events
    if not ended:
        decoder = decoder or kind(needs_exact_times(buffer), text)
        events, buffer = decoder.finish(buffer)
        yield events
    read_tail(buffer, text)


def skip_head(path: Path, stream: Iterator[bytes], text: TraceText) -> bytes:
    """Read up to the first event; returns the text from there on."""
    buffer = b""
    for piece in stream:
        buffer += piece
        plain = buffer.removeprefix(b"\xef\xbb\xbf").lstrip()
        if plain.startswith(b"["):
            return plain[1:]
        if plain[:1] not in (b"{", b""):
            break
        if match := _EVENTS.search(buffer):
            head = _loads(_repair(buffer[: match.start()].rstrip().rstrip(b",") + b"}"))
            if isinstance(head, dict):
                text.metadata.update(head)
            return buffer[match.end() :]
        if len(buffer) > HEAD_LIMIT:
            break
    if not buffer.strip(b"\0 \t\r\n"):
        why = text.damage.what or "it is empty"
        raise WhyidleError(f"{path}: no trace in it, {why}; record it again")
    if text.damage.what:
        raise WhyidleError(f"{path}: {text.damage.what} before any event; copy or record it again")
    raise WhyidleError(
        f'{path}: not a PyTorch profiler (Kineto) trace, it has no "traceEvents"; '
        "give the .json or .json.gz that torch.profiler exported"
    )


def read_tail(tail: bytes, text: TraceText) -> None:
    """Metadata written after the events: ``], "key": ... }``."""
    tail = tail.strip().removeprefix(b"]").strip().removeprefix(b",")
    if tail and (more := _loads(_repair(b"{" + tail))) and isinstance(more, dict):
        text.metadata.update(more)


def _loads(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except _REFUSED:
        return None


def needs_exact_times(first: bytes) -> bool:
    """Whether doubles are too coarse for the timestamps, judged by the first piece of events."""
    large = max((int(m) for m in _LARGE_FRACTION.findall(first[:CHUNK])), default=0)
    return large >= _EXACT_FROM_US


class Decoder:
    """Cuts text at event borders and decodes it; one for each file."""

    def __init__(self, exact: bool, text: TraceText) -> None:
        self.text = text
        hook = str if exact else None
        self.typed = msgspec.json.Decoder(list[Event], float_hook=hook)
        self.loose = msgspec.json.Decoder(list[_LooseEvent], float_hook=hook)

    def take(self, buffer: bytes) -> tuple[list[Event], bytes, bool]:
        """Decode all whole events; returns them, the rest, and whether the list has ended."""
        cuts = self.borders(buffer)
        for cut in cuts:
            if (events := self.decode(buffer[: cut + 1])) is not None:
                return events, buffer[buffer.index(b"{", cut) :], False
        # Either the list of events ends in here, or the text is broken.
        end = self._split_end(buffer)
        if end is not None:
            return end[0], end[1], True
        if not cuts:
            if len(buffer) > HEAD_LIMIT:
                self.text.lost += 1
                return [], b"", False
            return [], buffer, False  # one event larger than the buffer: wait for its end
        cut = cuts[0]
        return self._salvage(buffer[: cut + 1]), buffer[buffer.index(b"{", cut) :], False

    def finish(self, buffer: bytes) -> tuple[list[Event], bytes]:
        """Decode the last piece; returns the events and the text after the list of events."""
        end = self._split_end(buffer)
        if end is not None:
            return end
        self.text.cut_off = True
        events: list[Event] = []
        cuts = self.borders(buffer)
        for cut in cuts:
            if (decoded := self.decode(buffer[: cut + 1])) is not None:
                events, buffer = decoded, buffer[buffer.index(b"{", cut) :]
                break
        else:
            if cuts:
                cut = cuts[0]
                events = self._salvage(buffer[: cut + 1])
                buffer = buffer[buffer.index(b"{", cut) :]
        last = self.decode(buffer.rstrip().rstrip(b","))
        if last is None and buffer.strip(b" \r\n\t\0],}"):
            self.text.lost += 1
        return events + (last or []), b""

    def _split_end(self, buffer: bytes) -> tuple[list[Event], bytes] | None:
        """Split at the end of the list of events, if it is in the buffer."""
        ends = [match.end() for match in _ARRAY_END.finditer(buffer)]
        for end in ends[-_BORDER_TRIES:]:
            if (events := self.decode(buffer[:end])) is not None:
                return events, buffer[end:]
        # Broken text inside: a list end with whole metadata behind it is still one.
        for end in ends[: -_BORDER_TRIES - 1 : -1]:
            tail = buffer[end + 1 :].strip()
            if not tail.strip(b"}") or isinstance(
                _loads(_repair(b"{" + tail.removeprefix(b","))), dict
            ):
                return self._salvage(buffer[:end]), buffer[end:]
        return None

    def borders(self, buffer: bytes) -> list[int]:
        """Places of a few last event borders, the last one first."""
        for window in (1 << 16, 1 << 20, len(buffer)):
            low = max(len(buffer) - window, 0)
            found = [m.start() + low for m in _BORDER.finditer(buffer[low:])]
            if found:
                return found[: -_BORDER_TRIES - 1 : -1]
        return []

    def decode(self, piece: bytes) -> list[Event] | None:
        """Decode ``piece`` (events with commas between them), or None."""
        data = b"".join((b"[", piece, b"]"))
        try:
            return self.typed.decode(data)
        except msgspec.ValidationError:
            return self._decode_loose(data)
        except _REFUSED:
            return None

    def _decode_loose(self, data: bytes) -> list[Event] | None:
        try:
            events = self.loose.decode(data)
        except msgspec.ValidationError:
            return None
        except _REFUSED:
            return None
        return [_from_loose(e) for e in events]

    def _salvage(self, piece: bytes) -> list[Event]:
        """Repair broken text; failing that, keep the events that can be decoded one by one."""
        repaired = _repair(piece)
        if (events := self.decode(repaired)) is not None:
            self.text.repaired += 1
            return events
        kept: list[Event] = []
        start, open_from = 0, None
        pieces = []
        for match in _BORDER.finditer(repaired):
            pieces.append(repaired[start : match.start() + 1])
            start = match.end() - 1
        pieces.append(repaired[start:])
        for part in pieces:
            candidate = part if open_from is None else open_from + b"," + part
            if (one := self.decode(candidate)) is not None:
                kept += one
                open_from = None
            elif (alone := self.decode(part)) is not None:
                kept += alone
                self.text.lost += 1
                open_from = None
            else:
                # Perhaps a border inside an event: keep it open, but not for long.
                if open_from is not None:
                    self.text.lost += 1
                open_from = part if len(part) < 1 << 16 else None
        if open_from is not None:
            self.text.lost += 1
        return kept


class _RawDecoder(Decoder):
    """Gives each event as its text; msgspec checks that it is JSON without building values."""

    def __init__(self, exact: bool, text: TraceText) -> None:
        super().__init__(exact, text)
        self.raw = msgspec.json.Decoder(list[msgspec.Raw])

    def decode(self, piece: bytes) -> list[Any] | None:
        try:
            piece.decode()  # msgspec does not look at the encoding of what it skips
            return [bytes(event) for event in self.raw.decode(b"".join((b"[", piece, b"]")))]
        except _REFUSED:
            return None


def _from_loose(e: _LooseEvent) -> Event:
    args = None
    if isinstance(e.args, dict):
        args = Args(
            **{
                attribute: e.args[key]
                for attribute, key in zip(
                    Args.__struct_fields__, Args.__struct_encode_fields__, strict=True
                )
                if key in e.args
            }
        )
    dur = e.dur if isinstance(e.dur, int | float | str) and not isinstance(e.dur, bool) else None
    return Event(e.ph, e.cat, e.name, e.pid, e.tid, e.ts, dur, args)


# A pair of surrogates (a character outside the basic plane), one code unit, or another escape.
_ESCAPE = re.compile(
    rb"\\(?:(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(u[0-9a-fA-F]{4})|(.))",
    re.DOTALL,
)
_NOT_A_NUMBER = re.compile(rb"(?<=[:,\[\s])-?(?:nan|inf|NaN|Infinity)(?=\s*[,\]}])")
_CONTROL = re.compile(rb"[\x00-\x1f]")


def _valid_escape(match: re.Match[bytes]) -> bytes:
    """The escape, or what it was meant to be."""
    _, unit, other = match.groups()
    if unit is not None and 0xD800 <= int(unit[1:], 16) < 0xE000:
        return rb"\ufffd"  # half a character, as where a name was cut at some length
    if other is not None and other not in b'"\\/bfnrt':
        return b"\\\\" + other.replace(b'"', b'\\"')
    return match.group()


def _repair(piece: bytes) -> bytes:
    """Make the damage that profilers are known to write into valid JSON."""
    piece = _ESCAPE.sub(_valid_escape, piece)
    piece = _NOT_A_NUMBER.sub(b"null", piece)
    piece = _CONTROL.sub(b" ", piece)
    try:
        piece.decode()
    except UnicodeDecodeError:
        piece = piece.decode(errors="replace").encode()
    return piece
