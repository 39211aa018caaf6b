"""Writes rows and a position to a Delta table in one commit of it, with delta-rs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millpond import faults
from millpond.changes import Changes, Position
from millpond.connectors.databases.rows_sink import changes_of, taken_over
from millpond.connectors.delta.client import exists, explained, library, quoted
from millpond.connectors.delta.rules import check_entries_stay
from millpond.connectors.source import DELETED
from millpond.errors import (
    BadData,
    ConfigurationIssue,
    ConnectionLost,
    TypeMismatch,
    UnknownName,
    without_passwords,
)
from millpond.records.checks import checked
from millpond.records.last_rows import last_changes
from millpond.types import Schema, type_name

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_QUERY, _POSITION = "millpond.query", "millpond.position"
"""What the commits of a query have in their user metadata."""
_FORGOTTEN = -1
"""The version of the transactions of a query that was dropped."""
_TRIES = 5
"""How often a commit is tried that others' commits come before."""


class WrittenTable:
    """Represents a table, created if it does not exist. The number of a batch is the version of the query's
    transaction (``txn``) in the commit of its rows; the position is in the metadata of that commit.
    """

    def __init__(
        self, place: str, storage: Mapping[str, str], schema: Schema, partitions: Sequence[str] = ()
    ):
        self.place = without_passwords(place)
        self._schema = schema
        self._what = f'Delta table "{self.place}"'
        self._query: str | None = None
        self.owner: int | None = None
        delta, is_there = library(), exists(place, storage)
        with explained(place):
            if is_there:
                self._table: DeltaTable = delta.DeltaTable(place, storage_options=dict(storage))
                self._check_columns(partitions)
            else:
                self._table = delta.DeltaTable.create(
                    place,
                    schema.arrow(),
                    mode="error",
                    partition_by=list(partitions),
                    storage_options=dict(storage),
                )
        self._arrow = pa.schema(self._table.schema().to_arrow())
        self._partitions = frozenset(self._table.metadata().partition_columns)

    def _check_columns(self, partitions: Sequence[str]) -> None:
        there = {f.name.lower(): f for f in pa.schema(self._table.schema().to_arrow())}
        for column in self._schema:
            field = there.get(column.name.lower())
            if field is None:
                names = ", ".join(f.name for f in there.values())
                raise UnknownName(f'{self._what} has no column "{column.name}"', hint=f"its columns: {names}")
            if column.type is not None and not _fits(column.type, field.type):
                raise TypeMismatch(
                    f'column "{field.name}" of {self._what} is {type_name(field.type)}, and the query gives '
                    f"{type_name(column.type)}",
                    hint=f"CAST({column.name} AS {type_name(field.type)})",
                )
        given = {n.lower() for n in self._schema.names}
        for field in there.values():
            if given and not field.nullable and field.name.lower() not in given:
                raise UnknownName(
                    f'column "{field.name}" of {self._what} must not be NULL, and the query does not have it',
                    hint=f"give it a value: SELECT …, … AS {field.name}",
                )
        cut = list(self._table.metadata().partition_columns)
        if partitions and [p.lower() for p in partitions] != [c.lower() for c in cut]:
            raise ConfigurationIssue(
                f"{self._what} is partitioned by {', '.join(cut) or 'nothing'}, not by {', '.join(partitions)}",
                hint="leave 'partition.by' out: it is for tables that are created",
            )

    # the position

    def take_over(self, query: str, known: int | None, owner: int | None) -> Position | None:
        """Makes this the one that writes for a query, under a number that no other has. If it was that as ``owner``, no
        other may have become it since. Returns the position, unless batch ``known`` is as far.
        """
        self._query = query
        check_entries_stay(self._table, self._what)
        with explained(self.place):
            self.owner = self._number(_owner(query))
            if owner is not None and self.owner != owner:
                raise taken_over(self.place)
            mine = secrets.randbelow(1 << 62)
            self._mark({_owner(query): mine})
            self.owner = mine
            batch = self._number(_app(query))
            if batch is None or batch == _FORGOTTEN or (known is not None and known >= batch):
                return None
            for commit in self._table.history():
                if (
                    commit.get(_QUERY) == query
                    and (found := Position(*json.loads(commit[_POSITION]))).batch == batch
                ):
                    return found
        raise ConfigurationIssue(
            f"{self._what} has batch {batch} of this query, and its log does not say any more where that ends",
            hint="the state directory is older than the table: use the newest one, or DROP QUERY and begin again",
        )

    def _number(self, app: str) -> int | None:
        found: int | None = self._table.transaction_version(app)
        return found

    def forget(self, query: str) -> None:
        """Marks the transactions of a query as those of one that was dropped."""
        with explained(self.place):
            if self._number(_app(query)) not in (None, _FORGOTTEN):
                self._mark({_app(query): _FORGOTTEN})

    def _mark(self, numbers: Mapping[str, int]) -> None:
        """Commits the numbers of transactions, without rows."""
        self._commit(lambda properties: self._append(self._arrow.empty_table(), properties), numbers)

    # rows

    def fitting(self, rows: pa.Table) -> Changes:
        """Returns rows as the table takes them: the last of each key. Raises BadData."""
        written = changes_of(rows)
        changes = checked(self._schema, written, what=self._what, null_keys=False)
        names = (n.lower() for n in written.rows.column_names)
        given = dict(zip(names, changes.rows.columns, strict=True))
        columns = [
            self._cast(given[f.name.lower()], f)
            if f.name.lower() in given
            else pa.nulls(len(changes), f.type)
            for f in self._arrow
        ]
        fitted = pa.table(columns, self._arrow)
        keys = {k.lower() for k in self._schema.key}
        return last_changes(
            Changes(fitted, changes.deleted), [n for n in self._arrow.names if n.lower() in keys]
        )

    def _cast(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        if not field.nullable and column.null_count:
            raise BadData(f'{self._what} refuses it: column "{field.name}" must not be NULL')
        if field.name in self._partitions and pa.types.is_string(field.type):
            if pc.any(pc.equal(column, "")).as_py():
                raise BadData(
                    f'{self._what} refuses it: column "{field.name}" is an empty text, which is NULL in the name of'
                    " a partition"
                )
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            raise BadData(f'{self._what} refuses it: column "{field.name}": {error}') from None

    def write(self, rows: pa.Table, position: Position | None) -> None:
        """Writes rows and the position in one commit."""
        changes = self.fitting(rows)
        faults.reach("sink: begun")
        way = self._merge if self._schema.key else self._append_changes
        numbers, notes = {}, {}
        if self._query is not None and self.owner is not None and position is not None:
            numbers = {_app(self._query): position.batch, _owner(self._query): self.owner}
            notes = {_QUERY: self._query, _POSITION: json.dumps(position.parts)}
        with explained(self.place):
            self._commit(lambda properties: way(changes, properties), numbers, notes)
        faults.reach("sink: positioned")

    def _append_changes(self, changes: Changes, properties: CommitProperties) -> None:
        self._append(changes.put, properties)

    def _append(self, rows: pa.Table, properties: CommitProperties) -> None:
        library().write_deltalake(self._table, rows, mode="append", commit_properties=properties)

    def _merge(self, changes: Changes, properties: CommitProperties) -> None:
        deleted = (
            changes.deleted if changes.deleted is not None else pa.array([False] * len(changes), pa.bool_())
        )
        rows = changes.rows.append_column(DELETED, deleted)
        keys = {k.lower() for k in self._schema.key}
        same = " AND ".join(f"t.{quoted(n)} = s.{quoted(n)}" for n in self._arrow.names if n.lower() in keys)
        written = {quoted(n): f"s.{quoted(n)}" for n in self._arrow.names if n in self._given}
        gone = f"s.{quoted(DELETED)}"
        merge = self._table.merge(
            rows, same, source_alias="s", target_alias="t", commit_properties=properties
        ).when_matched_delete(gone)
        merge.when_matched_update(written, f"NOT {gone}").when_not_matched_insert(
            written, f"NOT {gone}"
        ).execute()

    @property
    def _given(self) -> set[str]:
        """Returns the columns of the table that the query gives; the others stay as they are."""
        given = {n.lower() for n in self._schema.names}
        return {n for n in self._arrow.names if n.lower() in given}

    def _commit(
        self,
        work: Callable[[CommitProperties], None],
        numbers: Mapping[str, int],
        notes: Mapping[str, str] | None = None,
    ) -> None:
        """Commits with the numbers of transactions, and notes in the metadata; again if others' commits came before.
        Raises if another process writes for the same query.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        transactions = [Transaction(app, number) for app, number in numbers.items()]
        failed = ""
        for _ in range(_TRIES):
            try:
                work(CommitProperties(custom_metadata=dict(notes or {}), app_transactions=transactions))
                return
            except CommitFailedError as error:
                failed = str(error)
                self._table.update_incremental()
                if numbers and all(self._number(app) == number for app, number in numbers.items()):
                    return  # it was made, and the answer was lost
                if self._query is not None and self._number(_owner(self._query)) != self.owner:
                    raise taken_over(self.place) from None
        raise ConnectionLost(f"{self._what}: others change the same rows: {failed}")

    def close(self) -> None:
        """Releases nothing: files are open only while they are written."""


def _app(query: str) -> str:
    """Returns the name of the query's transactions (``txnAppId``)."""
    return f"millpond {query}"


def _owner(query: str) -> str:
    """Returns the name under which those who write for a query are counted."""
    return f"millpond owner {query}"


def _fits(given: pa.DataType, there: pa.DataType) -> bool:
    """Returns whether values of a type may be written to a column of another: the same, or a wider number."""
    t = pa.types
    if given == there or t.is_null(given):
        return True
    if t.is_integer(given) and t.is_integer(there):
        return bool(given.bit_width <= there.bit_width)
    if t.is_floating(there):
        return bool(t.is_floating(given) and given.bit_width <= there.bit_width)
    if t.is_decimal(given) and t.is_decimal(there):
        return bool(
            given.scale <= there.scale and given.precision - given.scale <= there.precision - there.scale
        )
    if t.is_timestamp(given) and t.is_timestamp(there):
        return (given.tz is None) == (there.tz is None)
    if t.is_struct(given) and t.is_struct(there):
        pairs = zip(given, there, strict=False)
        same = [f.name for f in given] == [f.name for f in there]
        return same and all(_fits(a.type, b.type) for a, b in pairs)
    if t.is_list(given) and t.is_list(there):
        return _fits(given.value_type, there.value_type)
    if t.is_map(given) and t.is_map(there):
        return _fits(given.key_type, there.key_type) and _fits(given.item_type, there.item_type)
    return False
