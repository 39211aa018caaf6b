"""Reads a table for a program: by key, by condition, in pages, as a stream, by expression and path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

import pyarrow as pa

from millpond.errors import InvalidRecord
from millpond.query import stream
from millpond.query.conditions import Compiler, Condition, UpdateSet, part_of
from millpond.query.stats import Counter
from millpond.query.stream import Stream
from millpond.query.table_queries import TableQueries
from millpond.records import to_arrow, to_rows
from millpond.sql.catalog import Relation
from millpond.tables.base import Found, Snapshot
from millpond.types import Schema

Record = Mapping[str, Any]
Row = dict[str, Any]
Rows = list[Row]
Keys: TypeAlias = Sequence[Any] | pa.Table | pa.RecordBatch


class Reader(TableQueries):
    """Reads rows by key and by condition. A condition is a text, a compiled condition, or equal values by keyword."""

    def __init__(self, compiler: Compiler):
        self._compiler = compiler
        self._lookups = Counter()
        self._queries = Counter()

    @property
    def name(self) -> str:
        return self._compiler.relation.name

    @property
    def relation(self) -> Relation:
        """Declares its columns."""
        return self._compiler.relation

    @property
    def schema(self) -> Schema:
        return self._compiler.relation.schema

    def __len__(self) -> int:
        return len(self._view())

    def __iter__(self) -> Iterator[Row]:
        return iter(self.stream_all())

    # by key and by condition

    def get_record(self, key: Any) -> Row | None:
        """Returns the record with a key: a value, or a tuple for a key of several columns.

        >>> users.get_record(7)
        {'id': 7, 'name': 'Ann', 'tier': 'GOLD'}
        """
        next(self._lookups.step)
        view, columns = self._view(), self._key_columns()
        quick = view.find(columns, (key,))
        found = to_rows(view.get(columns, self._key_table([key]))) if quick is None else quick.records()
        return found[0] if found else None

    def contains(self, key: Any = None, **equal: Any) -> bool:
        """Returns whether there is a record that has the key or these values, or matches a condition.

        A text is the key if the key is one column of text or time, else a condition; ``sql_exists`` always takes a
        condition.

        >>> users.contains(7), users.contains(tier="GOLD"), users.contains("age > 65")
        (True, True, False)
        """
        if isinstance(key, Condition) or (isinstance(key, str) and not self._text_key):
            found = None if equal else self._look("*", key)
            return bool(self._matching(key, equal).num_rows if found is None else len(found))
        if key is None:
            quick = self._quick(equal) if equal else None
            return bool(self._matching(None, equal).num_rows if quick is None else len(quick))
        next(self._lookups.step)
        view, columns = self._view(), self._key_columns()
        quick = view.find(columns, (key,))
        return bool(view.get(columns, self._key_table([key])).num_rows if quick is None else len(quick))

    def find(self, condition: str | Condition | None = None, **equal: Any) -> Rows:
        """Returns the records that match a condition, have these values, or both. None finds NULL.

        >>> users.find("age > 65 AND tier = 'GOLD'")
        >>> users.find(tier="GOLD")
        """
        found = None if equal else self._look("*", condition)
        if found is not None:
            return found.rows()
        compiled = None if condition is None else self._compiler.condition(condition)
        key = self._key_in(compiled, equal)
        if key is not None:
            record = self.get_record(key)
            return [] if record is None else [record]
        quick = self._quick(equal) if condition is None and equal else None
        return to_rows(self._matching(compiled, equal)) if quick is None else quick.records()

    def all_rows(self) -> Rows:
        """Returns all records.

        >>> len(users.all_rows()) == len(users)
        True
        """
        return to_rows(self._view().scan())

    def to_arrow(self, condition: str | Condition | None = None, **equal: Any) -> pa.Table:
        """Returns all rows, or those that match a condition, as an Arrow table.

        >>> users.to_arrow("tier = 'GOLD'").column("name")
        """
        return self._matching(condition, equal)

    @overload
    def find_rows_for_join(
        self, columns: str | Sequence[str], keys: Any, *, arrow: Literal[False] = False
    ) -> Rows: ...
    @overload
    def find_rows_for_join(
        self, columns: str | Sequence[str], keys: Any, *, arrow: Literal[True]
    ) -> pa.Table: ...
    def find_rows_for_join(
        self, columns: str | Sequence[str], keys: Any, *, arrow: bool = False
    ) -> Rows | pa.Table:
        """Returns the rows whose columns equal one of the keys, each row once, found by an index. ``keys`` is a list
        of values or tuples, an Arrow table with a column for each of ``columns``, or one value.

        >>> users.find_rows_for_join("tier", ["GOLD", "SILVER"])
        >>> users.find_rows_for_join(("tier", "city"), [("GOLD", "Oslo")])
        """
        next(self._lookups.step)
        names = [columns] if isinstance(columns, str) else list(columns)
        view = self._view()
        if not isinstance(keys, (pa.Table, pa.RecordBatch)):
            quick = view.find(tuple(names), keys if type(keys) is list else (keys,))
            if quick is not None:
                return quick.table() if arrow else quick.records()
        found = view.get(names, self._join_keys(names, keys))
        return found if arrow else to_rows(found)

    def matching(self, condition: Condition | None, *, numbered: bool) -> pa.Table:
        """Returns the rows that match a condition, with their numbers if requested."""
        return self._compiler.matching(self._view(), condition, {}, rows=numbered)

    def compile_condition(self, text: str) -> Condition:
        """Compiles a condition for frequent use: it is parsed and checked only here.

        >>> old = users.compile_condition("age > 65")
        >>> users.find(old)
        """
        return self._compiler.condition(text)

    def compile_update_set(self, changes: str | Record) -> UpdateSet:
        """Compiles assignments for frequent use. A text may contain any expression; a mapping has values.

        >>> raise_price = items.compile_update_set("price = price * 1.1")
        >>> items.update("category = 'Electronics'", raise_price)
        """
        return self._compiler.update_set(changes)

    # pages and streams

    def query_batch(self, limit: int, offset: int = 0) -> Rows:
        """Returns a page of the records.

        >>> page = users.query_batch(100, 200)
        """
        return to_rows(self._page(self._view(), limit, offset))

    @overload
    def stream_all(self, *, arrow: Literal[False] = False, batch_rows: int = ...) -> Stream[Row]: ...
    @overload
    def stream_all(self, *, arrow: Literal[True], batch_rows: int = ...) -> Stream[pa.RecordBatch]: ...
    def stream_all(
        self, *, arrow: bool = False, batch_rows: int = 65_536
    ) -> Stream[Row] | Stream[pa.RecordBatch]:
        """Returns all records of this snapshot one by one, or as Arrow batches; also with ``async for``.

        >>> for user in users.stream_all(): ...
        >>> async for user in users.stream_all(): ...
        """
        view = self._view()
        return self._stream(view, None, {}, arrow, batch_rows)

    @overload
    def stream_filter(
        self,
        condition: str | Condition | None = ...,
        *,
        arrow: Literal[False] = False,
        batch_rows: int = ...,
        **equal: Any,
    ) -> Stream[Row]: ...
    @overload
    def stream_filter(
        self,
        condition: str | Condition | None = ...,
        *,
        arrow: Literal[True],
        batch_rows: int = ...,
        **equal: Any,
    ) -> Stream[pa.RecordBatch]: ...
    def stream_filter(
        self,
        condition: str | Condition | None = None,
        *,
        arrow: bool = False,
        batch_rows: int = 65_536,
        **equal: Any,
    ) -> Stream[Row] | Stream[pa.RecordBatch]:
        """Streams like ``stream_all``, the records that match a condition.

        >>> for user in users.stream_filter("tier = 'GOLD'"): ...
        """
        compiled = None if condition is None else self._compiler.condition(condition)
        return self._stream(self._view(), compiled, equal, arrow, batch_rows)

    # within

    def _key_in(self, condition: Condition | None, equal: Record) -> Any:
        """Returns the key, if the condition is only that the key columns equal values, else None."""
        if condition is not None:
            if equal or not condition.exact:
                return None
            equal = condition.equal
        key = self.schema.key
        if not key or len(equal) != len(key):
            return None
        if condition is None and not all([name in equal for name in key]):
            equal = {c.name: value for name, value in equal.items() if (c := self.schema.find(name))}
        parts = tuple([equal.get(name) for name in key])
        return None if None in parts else parts[0] if len(parts) == 1 else parts

    def _quick(self, equal: Record) -> Found | None:
        """Returns the records with these values on a fast path, if there is one."""
        values = tuple(equal.values())
        found = self._view().find(tuple(equal), (values if len(values) > 1 else values[0],))
        if found is not None:
            next(self._lookups.step)
        return found

    def _matching(self, condition: str | Condition | None, equal: Record) -> pa.Table:
        compiled = None if condition is None else self._compiler.condition(condition)
        by_index = equal or (compiled is not None and compiled.equal)
        next(self._lookups.step if by_index else self._queries.step)
        return self._compiler.matching(self._view(), compiled, equal)

    def _stream(
        self, view: Snapshot, condition: Condition | None, equal: Record, arrow: bool, batch_rows: int
    ) -> Stream[Row] | Stream[pa.RecordBatch]:
        def rows() -> pa.Table:
            return self._compiler.matching(view, condition, equal)

        next(self._queries.step)
        return stream.batches(rows, batch_rows) if arrow else stream.records(rows)

    def _page(self, view: Snapshot, limit: int, offset: int) -> pa.Table:
        if limit < 0 or offset < 0:
            raise InvalidRecord(f"limit {limit} and offset {offset} of a page cannot be negative")
        return view.scan().slice(offset, limit)

    @property
    def _text_key(self) -> bool:
        """Returns whether a text may be a key."""
        key = [c for k in self.schema.key if (c := self.schema.find(k))]
        t = pa.types
        return len(key) == 1 and (
            t.is_string(key[0].type) or t.is_date(key[0].type) or t.is_timestamp(key[0].type)
        )

    def _key_columns(self) -> tuple[str, ...]:
        if not self.schema.key:
            raise InvalidRecord(
                f'table "{self.name}" has no primary key', hint="use find(…) with a condition"
            )
        return self.schema.key

    def _key_table(self, keys: Sequence[Any]) -> pa.Table:
        return self._join_keys(list(self._key_columns()), list(keys), of_key=True)

    def _join_keys(self, names: list[str], keys: Any, *, of_key: bool = False) -> pa.Table:
        """Returns the keys as Arrow, in the types of the columns of those names."""
        if isinstance(keys, pa.RecordBatch):
            return pa.Table.from_batches([keys])
        if isinstance(keys, pa.Table):
            return keys
        given = keys if isinstance(keys, list) else [keys]
        records = []
        for key in given:
            parts = key if isinstance(key, tuple) and (len(names) > 1 or of_key) else (key,)
            if len(parts) != len(names):
                which = f'the key of table "{self.name}"' if of_key else "a key"
                raise InvalidRecord(
                    f"{which} has {len(names)} columns ({', '.join(names)}), {len(parts)} values are given"
                )
            records.append(dict(zip(names, parts, strict=True)))
        part = part_of(self.schema, dict.fromkeys(names))
        return to_arrow(part, records, what=self._compiler.what)


class TableSnapshot(Reader):
    """Represents a table as of one commit, for reading."""

    def __init__(self, compiler: Compiler, view: Snapshot):
        super().__init__(compiler)
        self._snapshot = view

    def _view(self) -> Snapshot:
        return self._snapshot

    def __repr__(self) -> str:
        return f"<TableSnapshot {self.name}: {len(self)} rows>"
