"""Finds the changes of a mutation on the current rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from millpond import faults
from millpond.changes import Changes
from millpond.query.row_changes import Piece, combine
from millpond.records.values import Unfit
from millpond.sql.catalog import Relation
from millpond.sql.mutation import Mutation
from millpond.sql.resolve import Resolved
from millpond.store.snapshot import StoreSnapshot
from millpond.tables.base import Snapshot

Answer = Callable[[Resolved], pa.Table]
AnswerAt = Callable[[StoreSnapshot, Resolved], pa.Table]
"""Runs a query on the rows of a snapshot."""
Find = Callable[[StoreSnapshot], tuple[dict[str, Changes], int]]
"""Finds changes on the rows of a snapshot, by table, and the number of rows they change."""


class Outdated(Unfit):
    """Is raised if the target's columns changed since the statement was checked. It must be checked again; nothing was
    done.
    """


def changes_of(mutation: Mutation, answer: Answer, snapshot: Snapshot) -> tuple[Changes, int]:
    """Returns the changes of all parts, which see the same rows, and the number of rows they change.

    ``snapshot`` is the target as the parts see it.
    """
    pieces = [Piece(p.action, p.identified, answer(p.query)) for p in mutation.parts]
    joined = len(pieces) > 1 or any(len(p.query.inputs) > 1 for p in mutation.parts)
    return combine(mutation.target, pieces, snapshot, new_once=True, joined=joined)


def finding(mutation: Mutation, answer: AnswerAt) -> Find:
    """Returns a function that finds the changes of a mutation on the rows of a snapshot, for a commit."""
    name = mutation.target.name

    def find(snapshots: StoreSnapshot) -> tuple[dict[str, Changes], int]:
        snapshot = snapshots.snapshot(name)
        check_columns(mutation.target, snapshot)
        changes, count = changes_of(mutation, partial(answer, snapshots), snapshot)
        faults.reach("rows found")
        return ({name: changes} if len(changes) else {}), count

    return find


def check_columns(target: Relation, snapshot: Snapshot) -> None:
    """Raises Outdated if the table has got other columns than the statement was checked with."""
    if [c.name.lower() for c in snapshot.schema] != [c.name.lower() for c in target.schema]:
        raise Outdated(f'table "{target.name}" has other columns')


def inserting(target: Relation, rows: pa.Table) -> Find:
    """Returns a function that inserts rows into a table, for a commit; it may refuse an existing key."""

    def find(snapshots: StoreSnapshot) -> tuple[dict[str, Changes], int]:
        snapshot = snapshots.snapshot(target.name)
        check_columns(target, snapshot)
        if target.strict:
            snapshot.refuse_taken(rows, f'table "{target.name}"')
        return {target.name: Changes(rows)}, rows.num_rows

    return find
