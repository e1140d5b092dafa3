"""Interval algebra against sets of integer points."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whyidle.timeline import intervals
from whyidle.timeline.intervals import Intervals

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def _arrays(rows: list[tuple[int, int]]) -> Intervals:
    start = np.array([a for a, _ in rows], np.int64)
    return start, start + np.array([n for _, n in rows], np.int64)


def _points(s: Intervals) -> set[int]:
    return {p for a, b in zip(s[0].tolist(), s[1].tolist(), strict=True) for p in range(a, b)}


def _is_set(s: Intervals) -> bool:
    return bool((s[1] > s[0]).all() and (s[0][1:] > s[1][:-1]).all())


@given(pairs)
def test_union_holds_the_same_points_merged(rows: list[tuple[int, int]]) -> None:
    merged = intervals.union(*_arrays(rows))
    assert _is_set(merged)
    assert _points(merged) == _points(_arrays(rows))
    assert intervals.total(merged) == len(_points(merged))


@given(pairs, pairs)
def test_intersect_and_subtract(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = intervals.union(*_arrays(a)), intervals.union(*_arrays(b))
    assert _points(intervals.intersect(left, right)) == _points(left) & _points(right)
    assert _points(intervals.subtract(left, right)) == _points(left) - _points(right)


@given(pairs, st.integers(0, 30), st.integers(0, 30))
def test_complement_and_clip_split_the_window(
    rows: list[tuple[int, int]], low: int, length: int
) -> None:
    s = intervals.union(*_arrays(rows))
    window = set(range(low, low + length))
    inside = intervals.clip(s, low, low + length)
    outside = intervals.complement(s, low, low + length)
    assert _points(inside) == _points(s) & window
    assert _points(outside) == window - _points(s)


@given(st.lists(pairs, max_size=5))
def test_coverage_gives_each_point_to_the_first_layer(layers: list[list[tuple[int, int]]]) -> None:
    sets = [intervals.union(*_arrays(rows)) for rows in layers]
    seen: set[int] = set()
    for layer, exclusive in zip(sets, intervals.coverage(sets), strict=True):
        assert _points(exclusive) == _points(layer) - seen
        seen |= _points(layer)


@given(pairs, pairs)
def test_overlaps_names_every_overlapping_pair(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    left, right = _arrays([(s, n + 1) for s, n in a]), intervals.union(*_arrays(b))
    i, j = intervals.overlaps(left, right)
    expected = {
        (x, y)
        for x in range(len(left[0]))
        for y in range(len(right[0]))
        if left[0][x] < right[1][y] and right[0][y] < left[1][x]
    }
    assert set(zip(i.tolist(), j.tolist(), strict=True)) == expected


def test_ragged_ranges() -> None:
    got = intervals.ragged_ranges(np.array([5, 0, 9]), np.array([2, 0, 3]))
    assert got.tolist() == [5, 6, 9, 10, 11]
