"""Whether two runs' step times differ by more than the steps differ among themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whyidle.timeline.columns import I64, Bool

CONFIDENCE = 0.95
_MOST_EXACT = 20_000  # rearrangements that are all looked at
_SAMPLED = 4_999  # drawn where there are more, always the same ones
_MOST_STEPS = 500  # a side; more are thinned evenly
METHOD = (
    "two-sided permutation test of the difference of mean step times, and the 95 % confidence "
    f"interval got by inverting it; exact up to {_MOST_EXACT} rearrangements, {_SAMPLED} seeded "
    "random ones beyond; steps are taken as independent"
)


@dataclass(frozen=True)
class Shift:
    """How far B's values lie from A's.

    ``interval_ns`` covers the true shift of the mean with at least 95 % confidence; it and
    ``p_value`` are None where there are too few values. ``answer`` is "larger" (than the
    step-to-step spread), "within" or "cannot_tell"; ``why`` says why it cannot be told.
    """

    interval_ns: tuple[int, int] | None
    p_value: float | None
    answer: str
    why: str = ""


def compare_steps(a: Sequence[int], b: Sequence[int]) -> Shift:
    """Shift of the values ``b`` against ``a`` (ns, one a step, in any order).

    Under "B is A moved by d", every rearrangement of the steps over A and B is equally likely. A
    rearrangement that swaps k steps beats the observed difference of means exactly if d lies
    beyond the difference of the means of what was swapped; the ordered differences therefore
    bound the interval (Fisher-Pitman test; Maritz, Distribution-Free Statistical Methods, 2nd
    ed., 1995, chapter 3). At least 40 rearrangements are needed for 95 %: 4 and 4 steps, 3 and 5,
    or 2 and 8.
    """
    left, right = _thinned(a), _thinned(b)
    n, m = len(left), len(right)
    if not n or not m:
        return Shift(None, None, "cannot_tell", "no steps")
    if n == 1 or m == 1:
        return Shift(None, None, "cannot_tell", "one step")
    rearrangements = math.comb(n + m, n)
    if (1 - CONFIDENCE) / 2 * rearrangements < 1:
        why = (
            f"too few steps, {n} and {m}: even if all of B lie apart from all of A, "
            f"chance does that in {2 / rearrangements:.0%} of cases"
        )
        return Shift(None, None, "cannot_tell", why)
    swaps = _all_swaps(n, m) if rearrangements <= _MOST_EXACT else _some_swaps(n, m)
    differences = np.sort(_swapped(left, right, swaps))
    size = len(swaps) + 1 if rearrangements > _MOST_EXACT else rearrangements
    outside = int((1 - CONFIDENCE) / 2 * size)
    interval = round(float(differences[outside - 1])), round(float(differences[-outside]))
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    within = interval[0] <= 0 <= interval[1]
    return Shift(interval, min(1.0, 2 * (rarer + 1) / size), "within" if within else "larger")


def _thinned(steps: Sequence[int]) -> I64:
    every = max(-(-len(steps) // _MOST_STEPS), 1)
    return np.array(steps[::every], np.int64)


def _all_swaps(n: int, m: int) -> Bool:
    """All ways but the observed one to choose who is in A: shape (comb - 1, n + m)."""
    chosen = np.array(list(itertools.combinations(range(n + m), n))[1:], np.int64)
    in_a = np.zeros((len(chosen), n + m), np.bool_)
    np.put_along_axis(in_a, chosen, True, axis=1)
    return in_a


def _some_swaps(n: int, m: int) -> Bool:
    """Random ways, the same each time."""
    random = np.random.default_rng(0)
    order = np.tile(np.arange(n + m), (_SAMPLED, 1))
    in_a: Bool = random.permuted(order, axis=1) < n
    return in_a[~in_a[:, :n].all(axis=1)]


def _swapped(a: I64, b: I64, in_a: Bool) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """For each rearrangement, mean of the b's that went to A less mean of the a's that left."""
    to_a, from_a = in_a[:, len(a) :], ~in_a[:, : len(a)]
    moved: I64 = to_a.sum(axis=1)
    # Differences of sums are exact in int64: 500 steps of an hour in ns are 1.8e15.
    return (to_a @ b - from_a @ a) / moved
