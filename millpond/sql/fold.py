"""Describes how a running UPDATE, DELETE, MERGE or UPSERT applies events of a stream, one by one, to table rows.

A batch delivers events: rows with the columns c0, c1, …, in stream order. A fold over them finds the changes, for each
row of the table (``RowFold``) or for all rows that have the key of an event (``KeyFold``). The expressions of a fold
read an event as the columns of ``E``, and the current row as the columns r0, r1, … of ``T``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from sqlglot import exp

from millpond.changes import ROW
from millpond.sql.catalog import Relation
from millpond.sql.resolve import Input, Resolved
from millpond.types import Column, Schema

T = "__t"
E = "__e"
EVENTS = "__events"
"""The view of a batch's events; in addition to their columns it has ``seq``, their order."""
ROWS = "__rows"
"""The view of the table's rows: their identity as i0, i1, …, and their columns as r0, r1, …"""
PAIRS = "__pairs"
"""The view of the pairs of row and event: i0, i1, …, what is read of the event, and ``seq``."""
SEQ = "seq"
TURN = "turn"
"""In PAIRS, where events return something: the ordinal of the event for its row."""

SAME, CHANGED, NEW, GONE, NEVER = range(5)
"""The result for a row, in the column ``st`` of the fold's output. NEVER: created and deleted in the same batch."""


def identity_columns(target: Relation) -> tuple[Column, ...]:
    """Returns the columns that identify a row of the target."""
    if target.schema.key:
        return tuple(c for k in target.schema.key if (c := target.schema.find(k)) is not None)
    return (Column(ROW, pa.int64(), nullable=False),)


@dataclass(frozen=True, slots=True)
class Returning:
    """Describes a row for each applied event, in the columns of a stream."""

    into: Relation
    values: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class RowFold:
    """Describes UPDATE and DELETE. ``pairs`` finds which events can concern which rows, by the conditions that read no
    assigned column; the other conditions are ``rest``, which is tested at the turn of the event. ``values`` are the new
    row, empty for DELETE. ``lookup`` are columns of the target that equal columns of an event.
    """

    target: Relation
    events: Resolved
    pairs: Resolved
    read: Schema
    rest: exp.Expr | None
    values: tuple[exp.Expr, ...]
    lookup: tuple[tuple[str, str], ...]
    returning: Returning | None = None

    @property
    def tables(self) -> tuple[Input, ...]:
        """Returns the tables that are read when the events are applied, other than the target."""
        return tuple(i for i in self.pairs.inputs if i.view != EVENTS and i.relation.rows_of is None)


@dataclass(frozen=True, slots=True)
class When:
    """Describes what happens to the matched rows or, for insert, to an event without a match."""

    action: Literal["update", "delete", "insert"]
    condition: exp.Expr | None
    values: tuple[exp.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyFold:
    """Describes MERGE and UPSERT. Rows and events with equal ``lookup`` columns are folded together: no event of
    another key can concern such a row. Without such columns, all rows and events are folded together.
    """

    target: Relation
    events: Resolved
    on: exp.Expr
    whens: tuple[When, ...]
    lookup: tuple[tuple[str, str], ...]
    returning: None = None

    @property
    def single(self) -> bool:
        """Returns whether at most one row has the key of an event."""
        return bool(self.target.schema.key) and {mine for mine, _ in self.lookup} >= set(
            self.target.schema.key
        )

    @property
    def read(self) -> Schema:
        return self.events.schema

    @property
    def tables(self) -> tuple[Input, ...]:
        return ()


Fold = RowFold | KeyFold
