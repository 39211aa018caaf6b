"""Implements ``redis``: a hash for each row, in a Redis database.

<prefix><table>:row:<key>         the row: a field for each column that is not NULL
<prefix><table>:rows              the keys of all rows, in order
<prefix><table>:range:<column>    the keys by the value of a column of ``range.columns``
<prefix><table>:until             with ``ttl``, the keys by the millisecond in which their rows expire
<prefix><table>:next              the next number of a row, for a table without a primary key
millpond:positions                how far running statements were applied
millpond:version                  a number that grows with every commit
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from millpond.alterations import TableChange
from millpond.changes import ROW
from millpond.connectors.databases.records import converters, quick_reads
from millpond.connectors.databases.texts import equal_rows, from_texts, to_texts
from millpond.connectors.redis.fields import CHANGE_FIELDS, changed_fields
from millpond.connectors.redis.scores import score_bounds, score_text, scores_of
from millpond.connectors.redis.transactions import RedisBacked, RedisDatabase, RedisWriting, driver, spot
from millpond.connectors.table import shared, url_of
from millpond.errors import InvalidOption, NotSupported, TypeMismatch, UnknownName, did_you_mean
from millpond.options import Option
from millpond.predicates import Predicate
from millpond.records.lookup_keys import fitting_keys
from millpond.retry import for_connections
from millpond.tables.base import Get, Has, Snapshot
from millpond.types import Column, Schema, type_name

_THERE = "_"
"""A field of a row in which every column is NULL, so that a hash exists."""

# Returns the version, then the requested fields of each existing row; the ids are given, or all, or those of a range.
_ROWS = """
local found, ids = {redis.call('GET', KEYS[1]) or '0'}, {}
local how, width = ARGV[1], tonumber(ARGV[2])
local fields = {}
for i = 1, width do fields[i] = ARGV[2 + i] end
if how == 'all' then ids = redis.call('ZRANGE', KEYS[2], 0, -1)
elseif how == 'range' then ids = redis.call('ZRANGEBYSCORE', KEYS[2], ARGV[3 + width], ARGV[4 + width])
else for i = 3 + width, #ARGV do ids[#ids + 1] = ARGV[i] end end
for _, id in ipairs(ids) do
  local row = redis.call('HMGET', KEYS[3] .. id, unpack(fields))
  for i = 1, width do
    if row[i] then found[#found + 1] = row; break end
  end
end
return found
"""
_COUNT = """
local now = redis.call('TIME')
local gone = redis.call('ZCOUNT', KEYS[2], '-inf', now[1] * 1000 + math.floor(now[2] / 1000))
return redis.call('ZCARD', KEYS[1]) - gone
"""


class RedisTable(RedisBacked):
    """Represents a table of a Redis database. Its keys belong to Millpond: others may read them, and must not write."""

    schemes = ("rediss",)
    abilities = frozenset({"lasting", "null_keys", "every_key", "every_float", "alter"})
    options = (
        Option(
            "url",
            "secret",
            "The database: `redis://user:password@host:6379/0`.",
            default="redis://localhost:6379/0",
        ),
        Option("table", "text", "Its name in the keys. By default its name here."),
        Option(
            "prefix",
            "text",
            "The prefix of all keys; tables with the same prefix change together.",
            default="millpond:",
        ),
        Option("ttl", "duration", "How long a row stays after it was last written.", aliases=("retention",)),
        Option(
            "range.columns",
            "text",
            "Columns with numbers or times, separated by commas, that range conditions can use "
            "without reading all rows.",
        ),
        Option("retry.timeout", "duration", "How long a lost connection is retried.", default=30.0),
    )

    database: RedisDatabase

    @classmethod
    def open(
        cls,
        name: str,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        null_keys: bool = False,
        home: Path | None = None,
    ) -> Self:
        url = url_of(name, values, ("redis", "rediss", "unix"), "Redis", "redis://host:6379/0")
        driver()
        timeout = float(values.get("retry.timeout") or 0)
        prefix = str(values.get("prefix") or "")
        database = shared(f"{url} {prefix}", lambda: RedisDatabase(url, prefix, retry_timeout=timeout))
        database.patience = for_connections(max(database.patience.timeout, timeout))
        table = cls(name, schema, database, null_keys=null_keys)
        with table.closed_on_error():
            table._set_up(f"{prefix}{values.get('table') or _in_keys(name)}", values)
        return table

    @classmethod
    def stored_in(cls, values: Mapping[str, Any]) -> str | None:
        return f"{spot(str(values.get('url') or ''))} {values.get('prefix') or ''}"

    def _set_up(self, base: str, values: Mapping[str, Any]) -> None:
        self.base = base
        self.row_key = f"{base}:row:"
        self.rows_key = f"{base}:rows"
        ttl = values.get("ttl")
        self.ttl = None if ttl is None else max(1, round(float(ttl) * 1000))
        wanted = [n.strip() for n in str(values.get("range.columns") or "").split(",") if n.strip()]
        self.ranges = [self._range_column(name) for name in wanted]
        about = self.about()
        there = self.database.ask("GET", f"{base}:about")
        if there is None:
            self.database.write(lambda writing: writing.add("SET", f"{base}:about", about))
        elif there != about:
            raise TypeMismatch(
                f'{self.what}: the keys "{base}:…" in {self.database.name} hold another table: {there}',
                hint="declare the same columns, key and range.columns, or give it another 'table' or 'prefix'",
            )

    def about(self) -> str:
        """Returns what the table is, as Redis stores it."""
        return json.dumps(
            {
                "columns": {c.name.lower(): type_name(c.type) for c in self.columns},
                "key": [k.lower() for k in self.schema.key],
                "range": sorted(c.name.lower() for c in self.ranges),
            },
            sort_keys=True,
        )

    @property
    def stored_name(self) -> str:
        return self.base.removeprefix(self.database.prefix)

    def alter(self, change: TableChange) -> RedisTable:
        made = copy(self)
        made.schema = change.schema(self.schema)
        fields = changed_fields(self, change, [c.name for c in self.ranges])

        def work(writing: RedisWriting) -> None:
            if fields is not None:
                writing.add("EVAL", CHANGE_FIELDS, 1, self.rows_key, self.row_key, *fields)
            writing.add("SET", f"{self.base}:about", made.about())

        self.database.write(work)
        return made

    def _range_column(self, name: str) -> Column:
        column = self.schema.find(name)
        if column is None:
            raise UnknownName(
                f'column "{name}" of range.columns is not in {self.what}',
                hint=did_you_mean(name, self.schema.names),
            )
        t, dtype = pa.types, column.type
        if not (t.is_integer(dtype) or t.is_floating(dtype) or t.is_decimal(dtype) or t.is_temporal(dtype)):
            raise InvalidOption(
                f'column "{column.name}" of {self.what} is {type_name(dtype)}, which has no ranges in Redis',
                hint="range.columns are numbers and times",
            )
        return column

    def range_key(self, column: str) -> str:
        return f"{self.base}:range:{column}"

    # changes

    def put(self, session: Any, rows: pa.Table) -> None:
        writing: RedisWriting = session
        ids = self.ids([rows.column(self.column(n).name) for n in self.identity])
        until = None if self.ttl is None else round(time.time() * 1000) + self.ttl
        self._purge(writing)
        texts = [to_texts(rows.column(c.name), c.type).to_pylist() for c in self.columns]
        names = [c.name for c in self.columns]
        for id_, values in zip(ids, zip(*texts, strict=True), strict=True):
            key = self.row_key + id_
            there = [(n, v) for n, v in zip(names, values, strict=True) if v is not None]
            fields = [part for pair in there for part in pair]
            writing.add("DEL", key)
            writing.add("HSET", key, *(fields or (_THERE, "1")))
            if until is not None:
                writing.add("PEXPIREAT", key, until)
        order = rows[ROW].to_pylist() if not self.schema.key else [0] * len(ids)
        self._add_scores(writing, self.rows_key, ids, order)
        if until is not None:
            self._add_scores(writing, f"{self.base}:until", ids, [until] * len(ids))
        for column in self.ranges:
            scores = scores_of(rows.column(column.name)).to_pylist()
            pairs = [(i, s) for i, s in zip(ids, scores, strict=True) if s is not None and s == s]
            writing.add("ZREM", self.range_key(column.name), *ids)
            self._add_scores(
                writing, self.range_key(column.name), [i for i, _ in pairs], [s for _, s in pairs]
            )

    def _add_scores(self, writing: RedisWriting, key: str, ids: Sequence[str], scores: Sequence[Any]) -> None:
        if ids:
            writing.add(
                "ZADD", key, *(part for i, s in zip(ids, scores, strict=True) for part in (score_text(s), i))
            )

    def _purge(self, writing: RedisWriting) -> None:
        """Removes the keys of expired rows from the sets; Redis has removed the rows."""
        if self.ttl is not None:
            over = self.database.ask("ZRANGEBYSCORE", f"{self.base}:until", "-inf", round(time.time() * 1000))
            self._forget(writing, over)

    def end(self, session: Any, keys: pa.Table) -> None:
        ids = self.ids([keys.column(self.column(n).name) for n in self.identity])
        if ids:
            session.add("DEL", *(self.row_key + i for i in ids))
            self._forget(session, ids)

    def _forget(self, writing: RedisWriting, ids: Sequence[str]) -> None:
        if ids:
            sets = [self.rows_key, f"{self.base}:until", *(self.range_key(c.name) for c in self.ranges)]
            for key in sets:
                writing.add("ZREM", key, *ids)

    def take_numbers(self, session: Any, count: int, highest: int) -> int:
        first = max(int(self.database.ask("GET", f"{self.base}:next") or 0), highest + 1)
        session.add("SET", f"{self.base}:next", first + count)
        return first

    def ids(self, columns: Sequence[pa.ChunkedArray | pa.Array]) -> list[str]:
        """Returns the identities of the rows with these keys."""
        texts = [to_texts(c, c.type).to_pylist() for c in columns]
        if len(texts) == 1 and not self.null_keys:
            return [str(text) for text in texts[0]]
        return [json.dumps(parts, ensure_ascii=False) for parts in zip(*texts, strict=True)]

    # reading

    def quick_reads(self, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
        if self.null_keys or not self.schema.key:
            return get, has
        names = self.schema.names
        key = [names.index(self.column(k).name) for k in self.identity]

        def fetch(parts: tuple[Any, ...]) -> Sequence[Any] | None:
            self.check_open()
            id_ = (
                str(parts[0]) if len(parts) == 1 else json.dumps([str(p) for p in parts], ensure_ascii=False)
            )
            cells: list[Any] = self.database.ask("HMGET", self.row_key + id_, *names)
            return None if any(cells[at] is None for at in key) else cells

        return quick_reads(self.schema, converters(self.schema, "text"), fetch, step, get, has)

    def reader(self, version: int) -> Snapshot:
        self.check_open()
        return RedisSnapshot(self, version)

    def remove(self) -> None:
        def work(writing: RedisWriting) -> None:
            ids = self.database.ask("ZRANGE", self.rows_key, 0, -1)
            if ids:
                writing.add("DEL", *(self.row_key + i for i in ids))
            ranges = [self.range_key(c.name) for c in self.ranges]
            parts = [f"{self.base}:{part}" for part in ("rows", "until", "next", "about")]
            writing.add("DEL", *parts, *ranges)

        self.database.write(work)

    def stats(self) -> dict[str, Any]:
        used = self.database.ask("INFO", "memory")
        return {
            "rows": len(self.snapshot()),
            "bytes": int(used["used_memory"]) if isinstance(used, dict) else 0,
            "changed_at": self.changed_at,
            "range_columns": [c.name for c in self.ranges],
            "where": f"{self.database.name}, keys {self.base}:…",
        }


class RedisSnapshot(Snapshot):
    """Represents the current table: each read sees one point in time, and two reads may see two."""

    remote = True

    def __init__(self, table: RedisTable, version: int):
        self.schema = table.schema
        # Rows with a ``ttl`` expire without a commit, so that no version represents them.
        self.version = version if table.ttl is None else time.monotonic_ns()
        self._table = table

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        table = self._table
        wanted = [table.column(name) for name in columns]
        fitting = fitting_keys([c.type for c in wanted], keys, nulls=nulls)
        names = self._names(None, rows)
        if not fitting or not len(fitting[0]):
            return self._decoded(names, [])
        identity = [table.column(n).name for n in table.identity]
        if {c.name for c in wanted} == set(identity):
            by_name = dict(zip((c.name for c in wanted), fitting, strict=True))
            return self._read(names, "ids", *table.ids([by_name[n] for n in identity]))
        return equal_rows(self.scan(rows=rows), wanted, fitting)

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        return self._read(self._names(columns, rows), "all")

    def filtered(self, where: Predicate, *, rows: bool = False) -> pa.Table:
        for column in self._table.ranges:
            bounds = score_bounds(where, column)
            if bounds is not None:
                return self._read(self._names(None, rows), "range", *bounds, source=column)
        return self.scan(rows=rows)

    def _names(self, columns: Sequence[str] | None, rows: bool) -> list[str]:
        if rows and self.schema.key:
            raise NotSupported(f"{self._table.what} has a primary key: its rows have no numbers")
        names = list(self.schema.names) if columns is None else [self._table.column(n).name for n in columns]
        return [*names, ROW] if rows else names

    def _read(self, names: Sequence[str], how: str, *values: str, source: Column | None = None) -> pa.Table:
        table = self._table
        table.check_open()
        ids_of = table.rows_key if source is None else table.range_key(source.name)
        # A row exists if it has one of these fields; a key is never NULL, else there is the last.
        fields = [*names, *(k for k in map(self._stored, table.identity) if k not in names), _THERE]
        found = table.database.script(
            _ROWS, [table.database.version_key, ids_of, table.row_key], [how, len(fields), *fields, *values]
        )
        return self._decoded(names, [row[: len(names)] for row in found[1:]])

    def _stored(self, name: str) -> str:
        return self._table.column(name).name

    def _decoded(self, names: Sequence[str], found: list[list[str | None]]) -> pa.Table:
        columns = [self._table.column(name) for name in names]
        lists = list(zip(*found, strict=True)) if found else [()] * len(names)
        arrays = [from_texts(list(v), c.type) for c, v in zip(columns, lists, strict=True)]
        return pa.table(arrays, schema=pa.schema([pa.field(c.name, c.type) for c in columns]))

    def __len__(self) -> int:
        table = self._table
        table.check_open()
        if table.ttl is None:
            return int(table.database.ask("ZCARD", table.rows_key))
        return int(table.database.script(_COUNT, [table.rows_key, f"{table.base}:until"], []))


def _in_keys(name: str) -> str:
    """Returns a name within keys, whose parts are separated by colons: no other table has keys that begin so."""
    own = next((start for start in ("table:", "stream:") if name.startswith(start)), "")
    return own + name.removeprefix(own).replace("%", "%25").replace(":", "%3A")


BACKEND = RedisTable
