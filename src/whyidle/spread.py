"""Whether two runs' step times differ by more than the steps differ among themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

CONFIDENCE = 0.95
METHOD = (
    "Hodges-Lehmann shift with the confidence interval of the Mann-Whitney rank-sum test "
    "(exact up to 100 steps a side, normal approximation beyond), two-sided 95 %; steps are taken "
    "as independent"
)
_EXACT_UP_TO = 100
_MOST_STEPS = 2000  # a side; more are thinned evenly: all pairs of differences are looked at


@dataclass(frozen=True)
class Shift:
    """How far B's steps lie from A's.

    ``shift_ns`` is the median of all differences b - a, None without steps on both sides.
    ``interval_ns`` covers the true shift with at least 95 % confidence, None where there are too
    few steps for that. ``answer`` is "larger" (than the step-to-step spread), "within" or
    "cannot_tell"; ``why`` says why it cannot be told.
    """

    shift_ns: int | None
    interval_ns: tuple[int, int] | None
    answer: str
    why: str = ""


def compare_steps(a: Sequence[int], b: Sequence[int]) -> Shift:
    """Shift of the step times ``b`` against ``a`` (ns), in any order.

    The interval is distribution-free, so one slow step does not widen it much (Hollander, Wolfe
    and Chicken, Nonparametric Statistical Methods, 3rd ed., section 4.3). It needs at least 4
    steps on both sides, or 3 and 5, or 2 and 8: with fewer, even fully separated samples come
    about by chance in more than 5 % of all orders.
    """
    a, b = _thinned(a), _thinned(b)
    if not a or not b:
        return Shift(None, None, "cannot_tell", "no steps")
    differences = sorted(y - x for x in a for y in b)
    n = len(differences)
    shift = (differences[(n - 1) // 2] + differences[n // 2]) // 2
    if min(len(a), len(b)) < 2:
        return Shift(shift, None, "cannot_tell", "one step")
    outside = _rank(len(a), len(b))
    if outside == 0:
        chance = 2 / math.comb(len(a) + len(b), len(a))
        why = f"too few steps: {len(a)} and {len(b)} are apart by chance in {chance:.0%} of cases"
        return Shift(shift, None, "cannot_tell", why)
    interval = differences[outside - 1], differences[n - outside]
    within = interval[0] <= 0 <= interval[1]
    return Shift(shift, interval, "within" if within else "larger")


def _thinned(steps: Sequence[int]) -> list[int]:
    every = -(-len(steps) // _MOST_STEPS)
    return [int(step) for step in steps[:: max(every, 1)]]


@lru_cache(maxsize=64)
def _rank(n: int, m: int) -> int:
    """The largest k with P(U <= k - 1) <= 2.5 % under equal distributions; 0 if there is none.

    The k-th smallest and the k-th largest of the n m differences then bound the interval.
    """
    tail = (1 - CONFIDENCE) / 2
    if max(n, m) > _EXACT_UP_TO:
        # U is close to normal with this mean and variance.
        sigma = math.sqrt(n * m * (n + m + 1) / 12)
        return max(math.floor(n * m / 2 - 1.959964 * sigma), 0)
    allowed = int(tail * math.comb(n + m, n))
    below = 0
    for k, orders in enumerate(_rank_sum_counts(n, m)):
        below += orders
        if below > allowed:
            return k
    return 0


def _rank_sum_counts(n: int, m: int) -> list[int]:
    """Number of orders of n + m distinct values with each U = 0 .. n m / 2, exact.

    Coefficients of the Gaussian binomial (n + m choose n), the product over i of
    (1 - q^(m + i)) / (1 - q^i), up to the middle, beyond which they mirror.
    """
    size = n * m // 2 + 1
    counts = [1] + [0] * (size - 1)
    for i in range(1, n + 1):
        for u in range(size - 1, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, size):
            counts[u] += counts[u - i]
    return counts
