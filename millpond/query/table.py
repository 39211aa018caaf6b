"""A table as a program sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.changes import Changes
from millpond.errors import InvalidRecord
from millpond.query.evaluate import Evaluator
from millpond.records import to_arrow, to_rows
from millpond.sql.catalog import Relation
from millpond.sql.filters import resolve_filter
from millpond.tables.base import Backend
from millpond.types import Schema

Record = Mapping[str, Any]


class Table:
    """Rows by key and by condition. Reading sees committed rows only and never waits for a writer."""

    def __init__(
        self,
        relation: Relation,
        backend: Backend,
        commit: Callable[[Changes], object],
        evaluator: Evaluator,
    ):
        self._relation = relation
        self._backend = backend
        self._commit = commit
        self._evaluator = evaluator

    @property
    def name(self) -> str:
        return self._relation.name

    @property
    def schema(self) -> Schema:
        return self._backend.schema

    def __len__(self) -> int:
        return len(self._backend)

    def insert(self, record: Record) -> None:
        """Adds a record; on a table with a primary key it replaces the one with its key."""
        self.bulk_insert([record])

    def bulk_insert(self, records: Sequence[Record] | pa.Table | pa.RecordBatch) -> int:
        """Adds records, all or none, and answers how many they were."""
        rows = to_arrow(self.schema, records, what=f'table "{self.name}"')
        self._commit(Changes(rows))
        return int(rows.num_rows)

    def get_record(self, key: Any) -> dict[str, Any] | None:
        """The record with a key: a value, or a tuple for a key of several columns."""
        found = to_rows(self._backend.get(self._key_columns(), self._keys(key)))
        return found[0] if found else None

    def contains(self, key: Any = None, **equal: Any) -> bool:
        """Whether there is a record with the key, or with these values: ``contains(id=7)``."""
        if equal:
            keys = to_arrow(self._part(equal), [equal], what=f'table "{self.name}"')
            return bool(self._backend.get(keys.column_names, keys).num_rows)
        return bool(self._backend.get(self._key_columns(), self._keys(key)).num_rows)

    def find(self, condition: str | None = None, **equal: Any) -> list[dict[str, Any]]:
        """The records under a condition: ``find("age > 65")``, ``find(tier="GOLD")``."""
        if condition is None and equal:
            keys = to_arrow(self._part(equal), [equal], what=f'table "{self.name}"')
            return to_rows(self._backend.get(keys.column_names, keys))
        query = resolve_filter(self._relation, condition)
        return to_rows(self._evaluator.answer(query, {query.inputs[0].view: self._backend.scan()}))

    def all_rows(self) -> list[dict[str, Any]]:
        """All records as of now."""
        return to_rows(self._backend.scan())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.all_rows())

    def to_arrow(self) -> pa.Table:
        """All rows as of now, as an Arrow table."""
        return self._backend.scan()

    def get_stats(self) -> dict[str, Any]:
        """Numbers about the table: rows, bytes and what its backend knows."""
        return self._backend.stats()

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self)} rows>"

    def _key_columns(self) -> tuple[str, ...]:
        if not self.schema.key:
            raise InvalidRecord(
                f'table "{self.name}" has no primary key', hint="use find(…) with a condition"
            )
        return self.schema.key

    def _keys(self, key: Any) -> pa.Table:
        columns = self._key_columns()
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) != len(columns):
            raise InvalidRecord(
                f'the key of table "{self.name}" has {len(columns)} columns ({", ".join(columns)}), '
                f"{len(parts)} values are given"
            )
        record = dict(zip(columns, parts, strict=True))
        return to_arrow(self._part(record), [record], what=f'table "{self.name}"')

    def _part(self, names: Mapping[str, Any]) -> Schema:
        """The columns of those names; unknown ones are left to ``to_arrow`` to report."""
        known = [c for n in names if (c := self.schema.find(n)) is not None]
        if len(known) != len(names):
            known = list(self.schema.columns)
        return Schema(tuple(known))
