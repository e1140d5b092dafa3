"""Is a change larger than the step-to-step spread: exactness, coverage, and when it cannot tell."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whyidle.spread import compare_steps

STEPS = st.lists(st.integers(1, 10**12), min_size=4, max_size=6)


def permutation_p(a: list[int], b: list[int]) -> float:
    """The one-sided tests by brute force, doubled: an independent way to the same p."""
    pooled, n = a + b, len(a)
    observed = sum(b) * len(a) - sum(a) * len(b)
    low = high = total = 0
    for chosen in itertools.combinations(range(len(pooled)), n):
        left = sum(pooled[i] for i in chosen)
        difference = (sum(pooled) - left) * len(a) - left * len(b)
        low += difference <= observed
        high += difference >= observed
        total += 1
    return min(1.0, 2 * min(low, high) / total)


@given(STEPS, STEPS)
@settings(max_examples=60, deadline=None)
def test_p_value_is_that_of_the_permutation_test(a: list[int], b: list[int]) -> None:
    assert compare_steps(a, b).p_value == pytest.approx(permutation_p(a, b))


@given(STEPS, STEPS, st.integers(-(10**12), 10**12))
@settings(max_examples=60, deadline=None)
def test_interval_moves_with_the_data(a: list[int], b: list[int], d: int) -> None:
    before, after = compare_steps(a, b), compare_steps(a, [x + d for x in b])
    assert before.interval_ns
    assert after.interval_ns
    for x, y in zip(before.interval_ns, after.interval_ns, strict=True):
        assert abs(y - x - d) <= 1


@given(STEPS, STEPS)
@settings(max_examples=60, deadline=None)
def test_interval_holds_exactly_the_shifts_that_the_test_does_not_refuse(
    a: list[int], b: list[int]
) -> None:
    interval = compare_steps(a, b).interval_ns
    assert interval
    low, high = interval
    for d in (low - 2, high + 2):
        assert permutation_p(a, [x - d for x in b]) <= 0.05
    if low + 2 < high - 2:
        for d in (low + 2, high - 2):
            assert permutation_p(a, [x - d for x in b]) > 0.05


def test_clear_change_and_no_change() -> None:
    a = [100, 101, 99, 100, 102]
    assert compare_steps(a, [80, 81, 79, 80, 82]).answer == "larger"
    assert compare_steps(a, [101, 99, 102, 100, 98]).answer == "within"
    assert compare_steps(a, a).answer == "within"


def test_interval_is_in_ns_of_the_shift() -> None:
    shift = compare_steps([100] * 6, [90] * 6)
    assert shift.interval_ns == (-10, -10)
    assert shift.p_value == pytest.approx(2 / 924)


@pytest.mark.parametrize(
    ("n", "m", "enough"),
    [(3, 3, False), (3, 4, False), (2, 7, False), (4, 4, True), (3, 5, True), (2, 8, True)],
)
def test_too_few_steps_are_told(n: int, m: int, enough: bool) -> None:
    shift = compare_steps([100 + i for i in range(n)], [200 + i for i in range(m)])
    assert shift.answer == ("larger" if enough else "cannot_tell")
    assert (shift.interval_ns is not None) == enough
    assert ("too few steps" in shift.why) != enough


def test_one_step_cannot_tell() -> None:
    assert compare_steps([5], [1, 2, 3, 4, 5, 6]).why == "one step"
    assert compare_steps([], [1, 2]).why == "no steps"


def test_many_steps_are_sampled_the_same_way_each_time() -> None:
    draw = random.Random(7)
    a = [round(draw.gauss(100e6, 5e6)) for _ in range(3000)]
    b = [round(draw.gauss(102e6, 5e6)) for _ in range(300)]
    first = compare_steps(a, b)
    assert first == compare_steps(a, b)
    assert first.answer == "larger"
    assert first.interval_ns
    assert first.interval_ns[0] < 2_000_000 < first.interval_ns[1]
    assert first.interval_ns[1] - first.interval_ns[0] < 2_500_000  # 2 * 1.96 * 5e6 / sqrt(~190)


def test_false_alarms_stay_below_five_percent() -> None:
    draw = random.Random(11)
    alarms = 0
    for _ in range(300):
        a, b = ([round(draw.expovariate(1e-8)) for _ in range(6)] for _ in range(2))
        alarms += compare_steps(a, b).answer == "larger"
    assert alarms <= 0.05 * 300 + 3 * (300 * 0.05 * 0.95) ** 0.5
