"""Interval algebra on sorted half-open intervals [start, end), as pure vectorised functions.

An interval set is a pair (start, end) of int64 arrays of equal shape (n,), sorted, disjoint and
without empty members; ``union`` makes one from anything. Every function returns new arrays.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from whyidle.timeline.columns import I64

Intervals = tuple[I64, I64]
Integer = TypeVar("Integer", bound=np.integer[Any])


def empty() -> Intervals:
    """The set of nothing."""
    return np.empty(0, np.int64), np.empty(0, np.int64)


def union(start: I64, end: I64) -> Intervals:
    """Merge intervals in any order, overlapping or touching, into an interval set."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return empty()
    if len(start) > 1 and (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.empty(len(start), np.bool_)
    first[0] = True
    np.greater(start[1:], reach[:-1], out=first[1:])
    begins = np.flatnonzero(first)
    last = np.append(begins[1:], len(start)) - 1
    return start[begins], reach[last]


def total(intervals: Intervals) -> int:
    """Length of an interval set in ns."""
    return int((intervals[1] - intervals[0]).sum())


def clip(intervals: Intervals, low: int, high: int) -> Intervals:
    """The part of an interval set inside [low, high)."""
    start, end = np.clip(intervals[0], low, high), np.clip(intervals[1], low, high)
    keep = end > start
    return start[keep], end[keep]


def complement(intervals: Intervals, low: int, high: int) -> Intervals:
    """What [low, high) holds outside the interval set."""
    start, end = clip(intervals, low, high)
    gaps = np.append(low, end).astype(np.int64), np.append(start, high).astype(np.int64)
    keep = gaps[1] > gaps[0]
    return gaps[0][keep], gaps[1][keep]


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """What both sets hold."""
    left, right = overlaps(a, b)
    return np.maximum(a[0][left], b[0][right]), np.minimum(a[1][left], b[1][right])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """What ``a`` holds and ``b`` does not."""
    if not len(a[0]) or not len(b[0]):
        return a
    low, high = int(a[0][0]), int(a[1][-1])
    return intersect(a, complement(b, low, high))


def overlaps(a: Intervals, b: Intervals) -> tuple[I64, I64]:
    """Index pairs (i, j) of all overlapping members, ordered by i, then j.

    ``b`` must be sorted and disjoint; ``a`` may be any list of intervals.
    """
    first = np.searchsorted(b[1], a[0], side="right")
    after = np.searchsorted(b[0], a[1], side="left")
    count = np.maximum(after - first, 0)
    left = np.repeat(np.arange(len(count)), count)
    return left, ragged_ranges(first, count)


def distinct(values: npt.NDArray[Integer]) -> npt.NDArray[Integer]:
    """Sorted distinct values. numpy 2.4's ``unique`` hashes and is many times slower on times."""
    ordered = np.sort(values, kind="stable")
    keep = np.empty(len(ordered), np.bool_)
    keep[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered[keep]


def coded(values: npt.NDArray[Integer]) -> tuple[I64, I64]:
    """Sorted distinct values, and each value's place among them, for small numbers from 0 on.

    Counts instead of sorting, which ``numpy.unique`` does. Shapes (k,) and (n,).
    """
    unique = np.flatnonzero(np.bincount(values))
    place = np.zeros(int(unique[-1]) + 1 if len(unique) else 0, np.int64)
    place[unique] = np.arange(len(unique))
    return unique, place[values]


def ragged_ranges(first: I64, count: I64) -> I64:
    """Concatenate ``arange(first[i], first[i] + count[i])`` for all i."""
    ends = np.cumsum(count)
    if not len(ends) or not ends[-1]:
        return np.empty(0, np.int64)
    return np.arange(ends[-1]) - np.repeat(ends - count, count) + np.repeat(first, count)


def coverage(layers: list[Intervals]) -> list[Intervals]:
    """What each interval set adds to those before it: disjoint sets, the first layer wins.

    The results are disjoint, and their union is the union of all layers.
    """
    covered = empty()
    exclusive = []
    for layer in layers:
        exclusive.append(subtract(layer, covered))
        covered = union(
            np.concatenate([covered[0], layer[0]]), np.concatenate([covered[1], layer[1]])
        )
    return exclusive
