"""Timestamps as traces write them -> integer nanoseconds, exact to the clock that wrote them.

Kineto writes microseconds: whole numbers, numbers with three decimals, or text. A number read as a
double is exact to the ns below 2^43 us; above that the reader hands over the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from whyidle.timeline.columns import I64, Bool

_INT64 = 2**62  # larger nanoseconds do not fit with room to add durations


@dataclass(frozen=True, eq=False)
class Nanoseconds:
    """Times in ns, shape (n,). ``bad``: which values are no numbers, or too large, and are 0.
    ``given_as_ns``: which are too large for microseconds (since 1970) and were kept as nanoseconds.
    Both are None where there is no such value. ``whole_us``: all are known to be whole us."""

    ns: I64
    bad: Bool | None = None
    given_as_ns: Bool | None = None
    whole_us: bool = False


def microseconds_to_ns(values: list[Any]) -> Nanoseconds:
    """Microseconds, as numbers or text, in ns."""
    if not values or type(values[0]) is str:
        return _from_text(values)
    try:
        us = np.array(values)
    except (ValueError, OverflowError):  # lists of different lengths, numbers beyond any type
        return _from_text(values)
    if us.dtype == np.int64:
        if int(np.abs(us).max()) < _INT64 // 1000:
            return Nanoseconds(us * 1000, whole_us=True)
        return _from_text(values)
    if us.dtype != np.float64 or us.shape != (len(values),):
        return _from_text(values)
    if not (np.abs(us) < 2**53).all():
        return _from_text(values)
    floor = np.floor(us)
    fraction = np.rint((us - floor) * 1000)
    return Nanoseconds(floor.astype(np.int64) * 1000 + fraction.astype(np.int64))


def _from_text(values: list[Any]) -> Nanoseconds:
    fixed = _from_fixed_text(values)
    if fixed is not None:
        return Nanoseconds(fixed)
    result = np.zeros(len(values), np.int64)
    bad, given_as_ns = np.zeros(len(values), np.bool_), np.zeros(len(values), np.bool_)
    for i, value in enumerate(values):
        try:
            us = Decimal(str(value).strip())
            given_as_ns[i] = abs(us) * 1000 >= _INT64
            ns = us if given_as_ns[i] else us * 1000
            bad[i] = abs(ns) >= _INT64
            result[i] = 0 if bad[i] else int(ns.to_integral_value())
        except (InvalidOperation, ValueError, OverflowError):
            bad[i] = True
    given_as_ns &= ~bad
    return Nanoseconds(
        result, bad if bad.any() else None, given_as_ns if given_as_ns.any() else None
    )


def _from_fixed_text(values: list[Any]) -> I64 | None:
    """The fast case: all texts alike, digits with three decimals."""
    first = values[0] if values else None
    if type(first) is not str or not 5 <= len(first) <= 20 or first[-4] != ".":
        return None
    width = len(first)
    if set(map(type, values)) != {str} or set(map(len, values)) != {width}:
        return None
    try:
        text = np.frombuffer("".join(values).encode("ascii"), np.uint8).reshape(-1, width)
    except (UnicodeEncodeError, ValueError):
        return None
    if not (text[:, -4] == ord(".")).all():
        return None
    digits: I64 = np.delete(text, width - 4, axis=1).astype(np.int64) - ord("0")
    if not ((digits >= 0) & (digits <= 9)).all():
        return None
    result: I64 = digits @ (10 ** np.arange(width - 2, -1, -1, dtype=np.int64))
    return result
