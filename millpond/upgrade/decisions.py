"""Defines what an upgrade does with each statement of a state directory and of a changed file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from millpond.alterations import ColumnChange
from millpond.errors import CheckFailed, Error, Place, StateForeign, UpgradeNeeded
from millpond.sql.reserved_names import shadow_of

Action = Literal["kept", "altered", "rebuilt", "dropped", "new", "refused"]
_ROWS_A_SECOND = 250_000
"""About how many rows of a stream one running statement applies in a second."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Says that a statement means the same: it goes on from its position with its state."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Altered:
    """Says that what is stored is changed where it is, and goes on. ``changes`` are those of a table's columns;
    ``loses`` says that values are lost.
    """

    why: str
    changes: tuple[ColumnChange, ...] = ()
    loses: bool = False


@dataclass(frozen=True, slots=True)
class Regrouped:
    """Says that a live aggregate goes on with its state, from which its rows are made again. ``columns`` are those of
    the state that it needs, in their new order, ``rows`` those of its tables, when they are made.
    """

    columns: tuple[str, ...]
    rows: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Says that what is stored is made again from what it reads."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Says why the file cannot be used with this state directory, and what to do."""

    why: str
    hint: str | None = None


Difference = Kept | Altered | Regrouped | Rebuilt | Refused


@dataclass(frozen=True, slots=True)
class Decision:
    """Contains what happens to one statement. ``rows`` are those that are read again or removed, if they are known;
    ``asks`` says that somebody must agree to it.
    """

    action: Action
    kind: str
    name: str
    why: str = ""
    hint: str | None = None
    rows: int | None = None
    asks: bool = False
    place: Place | None = None

    @property
    def seconds(self) -> float | None:
        """Returns about how long it takes."""
        if self.action != "rebuilt" or self.rows is None:
            return None
        return round(0.1 + self.rows / _ROWS_A_SECOND, 1)

    def line(self) -> str:
        """Returns the decision as a line of text."""
        parts = [f"{self.action:<8}{self.kind} {self.name}"]
        if self.why:
            parts.append(self.why)
        if self.rows is not None:
            parts.append(f"{self.rows:,} rows" if self.rows != 1 else "1 row")
        if self.seconds is not None:
            parts.append(f"about {self.seconds:g} s")
        return ": ".join((parts[0], ", ".join(parts[1:]))) if parts[1:] else parts[0]


def decision_of(
    difference: Difference,
    kind: str,
    name: str,
    rows: int | None,
    place: Place | None,
    *,
    filled: bool = True,
) -> Decision:
    """Returns the decision about a statement that is in the file and in the state directory. ``filled`` says that it
    has rows, or had.
    """
    match difference:
        case Kept(why):
            return Decision("kept", kind, name, why, place=place)
        case Regrouped():
            return Decision("kept", kind, name, "its rows are made from its state", place=place)
        case Altered(why, _, loses):
            return Decision("altered", kind, name, why, asks=loses, place=place)
        case Rebuilt(why):
            return Decision("rebuilt", kind, name, why, rows=rows, asks=filled or rows != 0, place=place)
        case Refused(why, hint):
            return Decision("refused", kind, name, why, hint, place=place)


def revalued(difference: Kept, kind: str) -> Difference:
    """Returns what becomes of a statement that means the same but for the values of variables in it."""
    why = "a variable in its query, or in a view that it reads, has another value"
    return Kept(why) if kind == "view" else Rebuilt(why)


def being_built(decision: Decision, *, shadowed: bool) -> Decision:
    """Returns the decision about a table whose new form is being built."""
    if shadowed:
        return replace(decision, why=f'its new form is beside it, as "{shadow_of(decision.name)}"')
    return replace(decision, action="rebuilt", why="it is being rebuilt")


def kept_as_shadow(decision: Decision, *, possible: bool) -> Decision:
    """Returns the decision about what is rebuilt, if the old one must stay until somebody swaps both."""
    if possible:
        stays = f'the old one stays, and "{shadow_of(decision.name)}" is built beside it'
        return replace(decision, why=f"{decision.why}; {stays}", asks=False)
    return replace(
        decision,
        action="refused",
        why=f"{decision.why}, and it cannot be built beside the old one",
        hint="leave out --shadow; or change it, and what it reads, in a file of its own change",
    )


def as_table(decisions: Sequence[Decision]) -> pa.Table:
    """Returns decisions as the rows of EXPLAIN UPGRADE."""
    rows = [
        {
            "action": d.action,
            "kind": d.kind,
            "name": d.name,
            "reason": d.why if d.hint is None else f"{d.why} ({d.hint})",
            "rows": d.rows,
            "seconds": d.seconds,
            "asks": d.asks,
        }
        for d in decisions
    ]
    return pa.Table.from_pylist(rows, SHOWN)


def decisions_in(shown: pa.Table) -> list[Decision]:
    """Returns the decisions that the rows of EXPLAIN UPGRADE show."""
    return [
        Decision(r["action"], r["kind"], r["name"], r["reason"], rows=r["rows"], asks=r["asks"])
        for r in shown.to_pylist()
    ]


SHOWN = pa.schema(
    [
        ("action", pa.string()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("reason", pa.string()),
        ("rows", pa.int64()),
        ("seconds", pa.float64()),
        ("asks", pa.bool_()),
    ]
)


def raise_refused(decisions: Sequence[Decision]) -> None:
    """Raises an error if the file cannot be used: with all reasons."""
    errors: list[Error] = [
        StateForeign(
            f'{d.kind} "{d.name}" cannot become what the file says: {d.why}', hint=d.hint, place=d.place
        )
        for d in decisions
        if d.action == "refused"
    ]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise CheckFailed(errors)


def raise_unasked(decisions: Sequence[Decision], hint: str) -> None:
    """Raises an error if somebody must agree first."""
    asked = [d for d in decisions if d.asks]
    if asked:
        listed = "; ".join(" ".join(d.line().split()) for d in asked)
        raise UpgradeNeeded(
            f"the file has changed, and something would be dropped or rebuilt, or run again: {listed}",
            hint=hint,
        )
