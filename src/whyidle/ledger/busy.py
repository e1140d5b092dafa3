"""Busy time: at each instant the first account, in the ledger's order, that something runs for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whyidle.timeline.columns import I32, I64, U8
from whyidle.timeline.intervals import distinct


@dataclass(frozen=True, eq=False)
class BusyPieces:
    """Disjoint sorted pieces of busy time, each with its account and one activity behind it."""

    start: I64
    end: I64
    account: U8
    activity: I32


def busy_pieces(start: I64, end: I64, account: U8, activity: I32) -> BusyPieces:
    """Split the union of the activities into pieces of one account each.

    All arguments have shape (n,) and are sorted by start; ``activity`` holds the numbers to give
    back. Of several activities of one account at an instant, the one that started last is named.
    """
    keep = end > start
    start, end, account, activity = start[keep], end[keep], account[keep], activity[keep]
    if not len(start):
        none = np.empty(0, np.int64)
        return BusyPieces(none, none, np.empty(0, np.uint8), np.empty(0, np.int32))
    if (start[1:] >= end[:-1]).all():
        return BusyPieces(start, end, account, activity)
    edges = distinct(np.concatenate([start, end]))
    low = np.searchsorted(edges, start)
    high = np.searchsorted(edges, end)
    n = len(edges) - 1
    winner = np.full(n, -1, np.int64)
    # Paint from the last account to the first, so that the first stays on top.
    for layer in np.flatnonzero(np.bincount(account))[::-1]:
        members = np.flatnonzero(account == layer)
        opened = np.zeros(n + 1, np.int32)
        np.add.at(opened, low[members], 1)
        np.add.at(opened, high[members], -1)
        latest = np.full(n, -1, np.int64)
        latest[low[members]] = members  # members are in order of start: the last one stays
        latest = np.maximum.accumulate(latest)
        running = np.cumsum(opened[:-1]) > 0
        winner[running] = latest[running]
    held = winner >= 0
    first = held & np.append(True, winner[1:] != winner[:-1])
    begins = np.flatnonzero(first)
    last = held & np.append(winner[1:] != winner[:-1], True)
    chosen = winner[begins]
    return BusyPieces(
        edges[:-1][begins], edges[1:][np.flatnonzero(last)], account[chosen], activity[chosen]
    )
