"""Two runs side by side: what a step takes, what moved between the accounts, and is it noise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from whyidle.diagnosis import Progress, diagnose
from whyidle.errors import WhyidleError
from whyidle.ledger.accounts import INDEX
from whyidle.reports.json import SCHEMA, to_dict
from whyidle.reports.words import count, duration, percent, signed
from whyidle.spread import Shift, compare_steps

_LOOK = 1 << 16  # bytes at either end of a file in which a report names its schema
_NAMED_MOVES = 2  # accounts that the sentence names


@dataclass(frozen=True)
class Side:
    """One run, as the mean over its devices.

    ``accounts`` maps account to ns per step. ``steps[i]`` is the ledger of step i (ns by account)
    over the devices that have a step i, whose sum is ``step_ns[i]``. ``stepped`` is false where
    some device's steps were not found, so that its one "step" is its whole span.
    """

    label: str
    devices: int
    device_names: tuple[str, ...]
    stepped: bool
    accounts: dict[str, int]
    causes: dict[str, str | None]
    step_ns: tuple[int, ...]
    steps: tuple[dict[str, int], ...]

    @property
    def mean_ns(self) -> int:
        """Mean step time: what the accounts sum to."""
        return sum(self.accounts.values())

    def account_ns(self, account: str) -> tuple[int, ...]:
        """ns of one account in each step."""
        return tuple(step.get(account, 0) for step in self.steps)


@dataclass(frozen=True)
class Move:
    """One account, ns per step on both sides. ``shift`` judges it alone: of twenty accounts that
    did not change, one is expected to look as if it had."""

    account: str
    cause: str | None
    a_ns: int
    b_ns: int
    shift: Shift

    @property
    def difference_ns(self) -> int:
        """What B's step spends more here than A's."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True)
class Comparison:
    """B against A; ``moves`` from the largest change to the smallest, summing to the step's."""

    a: Side
    b: Side
    moves: tuple[Move, ...]
    shift: Shift
    sentence: str
    notes: tuple[str, ...]

    @property
    def difference_ns(self) -> int:
        """Change of the mean step time."""
        return self.b.mean_ns - self.a.mean_ns


def load(path: str, progress: Progress | None = None) -> dict[str, Any]:
    """The report tree of ``path``: a saved ``--json`` report, or traces (a file, a directory or a
    glob) to diagnose now.

    Raises WhyidleError where it is neither.
    """
    if _is_report(Path(path)):
        return _saved(Path(path))
    return to_dict(diagnose([path], progress))


def compare(a: dict[str, Any], b: dict[str, Any], label_a: str, label_b: str) -> Comparison:
    """Compare two report trees. Raises WhyidleError where one is not a whole report."""
    left, right = side_of(a, label_a), side_of(b, label_b)
    shift = _shift(left, right, left.step_ns, right.step_ns)
    names = sorted({*left.accounts, *right.accounts}, key=lambda n: INDEX.get(n, len(INDEX)))
    moves = [
        Move(
            name,
            right.causes.get(name) or left.causes.get(name),
            left.accounts.get(name, 0),
            right.accounts.get(name, 0),
            _shift(left, right, left.account_ns(name), right.account_ns(name)),
        )
        for name in names
    ]
    moves.sort(key=lambda move: -abs(move.difference_ns))
    notes = _notes(left, right)
    return Comparison(left, right, tuple(moves), shift, _sentence(left, right, moves, shift), notes)


def side_of(tree: dict[str, Any], label: str) -> Side:
    """The mean over the devices of a report tree."""
    try:
        devices = [d for d in tree["devices"] if d["steps"]["count"] and d["accounts"]]
        names = tuple(sorted({d.get("name") or "unknown" for d in devices}))
        totals: dict[str, float] = {}
        causes: dict[str, str | None] = {}
        for d in devices:
            for line in d["accounts"]:
                per_step = line["ns"] / d["steps"]["count"] / len(devices)
                totals[line["account"]] = totals.get(line["account"], 0.0) + per_step
                causes[line["account"]] = line["cause"]
        steps = _mean_steps([d.get("by_step") or [] for d in devices])
        stepped = all(d["window_source"] != "span" for d in devices)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise WhyidleError(
            f"{label}: not a whole whyidle report ({type(error).__name__}: {error}); "
            "write it again with whyidle trace --json"
        ) from error
    accounts = {name: round(ns) for name, ns in totals.items()}
    step_ns = tuple(sum(step.values()) for step in steps)
    return Side(label, len(devices), names, stepped, accounts, causes, step_ns, steps)


def to_tree(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data: schema "whyidle.compare/1", times in ns."""
    from whyidle import __version__
    from whyidle.spread import CONFIDENCE, METHOD

    shift = comparison.shift
    return {
        "schema": "whyidle.compare/1",
        "whyidle": __version__,
        "a": _side_tree(comparison.a),
        "b": _side_tree(comparison.b),
        "step": {
            "a_ns": comparison.a.mean_ns,
            "b_ns": comparison.b.mean_ns,
            "difference_ns": comparison.difference_ns,
            **_shift_tree(shift),
            "why": shift.why,
            "confidence": CONFIDENCE,
            "method": METHOD,
        },
        "accounts": [
            {
                "account": move.account,
                "cause": move.cause,
                "a_ns": move.a_ns,
                "b_ns": move.b_ns,
                "difference_ns": move.difference_ns,
                **_shift_tree(move.shift),
            }
            for move in comparison.moves
        ],
        "sentence": comparison.sentence,
        "notes": list(comparison.notes),
    }


def _shift_tree(shift: Shift) -> dict[str, Any]:
    return {
        "interval_ns": list(shift.interval_ns) if shift.interval_ns else None,
        "p_value": shift.p_value,
        "answer": shift.answer,
    }


def _side_tree(side: Side) -> dict[str, Any]:
    return {
        "label": side.label,
        "devices": side.devices,
        "device_names": list(side.device_names),
        "steps_found": side.stepped,
        "step_ns": list(side.step_ns),
        "by_step": [dict(step) for step in side.steps],
    }


def _is_report(path: Path) -> bool:
    """Whether the file names our schema near its start or (keys sorted) near its end."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_LOOK)
            file.seek(max(path.stat().st_size - _LOOK, 0))
            tail = file.read(_LOOK)
    except OSError:
        return False  # the reader of traces says what is wrong
    return b'"traceEvents"' not in head and any(b'"whyidle.report/' in end for end in (head, tail))


def _saved(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise WhyidleError(
            f"{path}: a whyidle report that cannot be read ({error}); write it again"
        ) from error
    if not isinstance(tree, dict) or tree.get("schema") != SCHEMA:
        found = tree.get("schema") if isinstance(tree, dict) else None
        raise WhyidleError(f"{path}: its schema is {found!r}, not {SCHEMA!r}; write it again")
    try:
        msgspec.convert(tree, _Saved)
    except msgspec.ValidationError as error:
        raise WhyidleError(
            f"{path}: not a whole whyidle report ({error}); "
            "write it again with whyidle trace --json"
        ) from error
    return tree


# What a comparison needs of a saved report, with the types that it must have.
_Ns = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _SavedAccount(msgspec.Struct):
    account: str
    ns: _Ns
    cause: str | None = None


class _SavedDevice(msgspec.Struct):
    accounts: list[_SavedAccount]
    name: str | None = None
    by_step: list[dict[str, _Ns]] | None = None


class _Saved(msgspec.Struct):
    devices: list[_SavedDevice]


def _mean_steps(devices: list[list[dict[str, int]]]) -> tuple[dict[str, int], ...]:
    """Step i as the mean over the devices that have it: ranks step together, so their equal
    steps are one observation, not several."""
    result = []
    for i in range(max((len(steps) for steps in devices), default=0)):
        having = [steps[i] for steps in devices if i < len(steps)]
        names = dict.fromkeys(name for step in having for name in step)
        result.append(
            {name: round(sum(step.get(name, 0) for step in having) / len(having)) for name in names}
        )
    return tuple(result)


def _shift(a: Side, b: Side, a_ns: tuple[int, ...], b_ns: tuple[int, ...]) -> Shift:
    for side, name in ((a, "A"), (b, "B")):
        if not side.devices:
            return Shift(None, None, "cannot_tell", f"{name} has no GPU activity")
        if not side.stepped:
            return Shift(None, None, "cannot_tell", f"no steps were found in {name}")
        if len(side.step_ns) == 1:
            return Shift(None, None, "cannot_tell", f"one step in {name}")
        if not side.step_ns:
            return Shift(None, None, "cannot_tell", f"the report of {name} holds no single steps")
    return compare_steps(a_ns, b_ns)


def _sentence(a: Side, b: Side, moves: list[Move], shift: Shift) -> str:
    if not a.devices or not b.devices:
        return f"Cannot tell: {shift.why}."
    change = b.mean_ns - a.mean_ns
    share = f" ({100 * change / a.mean_ns:+.1f} %)" if a.mean_ns else ""
    unit = "A step" if a.stepped and b.stepped else "The recorded span"
    text = f"{unit} takes {duration(b.mean_ns)} in B and {duration(a.mean_ns)} in A: "
    text += f"{signed(change)}{share}"
    if shift.interval_ns:
        low, high = (signed(ns) for ns in shift.interval_ns)
        larger = "larger than" if shift.answer == "larger" else "within"
        text += f", {larger} the step-to-step spread (95 % interval {low} to {high})."
    else:
        text += f". Cannot tell whether that is larger than the step-to-step spread: {shift.why}."
    moved = [m for m in moves[:_NAMED_MOVES] if m.difference_ns * change > 0]
    moved = [m for m in moved if m.shift.answer != "within"]
    if moved and shift.answer != "within":
        named = " and ".join(f"{m.account} ({signed(m.difference_ns)})" for m in moved)
        text += f" It moved most in {named}."
    return text


def _notes(a: Side, b: Side) -> tuple[str, ...]:
    notes = []
    if a.device_names != b.device_names:
        notes.append(
            f"the devices differ: {', '.join(a.device_names) or 'none'} in A, "
            f"{', '.join(b.device_names) or 'none'} in B"
        )
    if a.devices != b.devices:
        notes.append(f"A has {count(a.devices, 'device')}, B has {b.devices}; each is a mean")
    for side, name in ((a, "A"), (b, "B")):
        if side.devices and not side.stepped:
            notes.append(f"no steps were found in {name}: its whole span counts as one step")
        slow = max(side.step_ns, default=0)
        if side.stepped and len(side.step_ns) > 1:
            rest = sorted(side.step_ns)[:-1]
            middle = rest[len(rest) // 2]
            if slow > 2 * middle:
                notes.append(
                    f"the slowest step of {name} takes {duration(slow)}, the middle one "
                    f"{duration(middle)}: {percent(slow / sum(side.step_ns))} of its time"
                )
    return tuple(notes)
