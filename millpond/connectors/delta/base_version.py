"""Reads the rows of one version of a Delta table. Files whose statistics or partitions exclude what is looked for are
not opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.delta.client import explained
from millpond.connectors.delta.dataset import dataset_of, is_filtered, is_pruned, some_of
from millpond.connectors.delta.layer import among
from millpond.connectors.delta.row_cache import RowCache
from millpond.errors import SourceChanged
from millpond.predicates import All, Any_, Compare, IsNull, OneOf, Predicate
from millpond.tables.base import Found
from millpond.types import Column

if TYPE_CHECKING:
    from deltalake import DeltaTable


Of = Callable[[pa.DataType], bool]
"""Says whether columns of a type may be in a condition."""


class FileGone(Exception):
    """Reports that a file of a version is not there any more."""


class BaseVersion:
    """Represents a version, with the columns of a table here, ``_row`` included if it has no key.

    ``newer`` returns a later version, if there is one with the same changes of this app: it is read if files of this
    one are gone, as they are after OPTIMIZE and VACUUM. ``cache`` has rows that were looked up before.
    """

    def __init__(
        self,
        table: DeltaTable,
        place: str,
        storage: Mapping[str, str],
        columns: Sequence[Column],
        newer: Callable[[], BaseVersion | None],
        cache: RowCache | None = None,
    ):
        self._cache = cache
        self._place = place
        self._newer = newer
        self._columns = tuple(columns)
        with explained(place):
            files = pa.table(table.get_add_actions(flatten=True))
            names = pa.schema(table.schema().to_arrow()).names
        types = {c.name.lower(): stored_type(c.type) for c in columns}
        names = [name for name in names if name.lower() in types]  # another engine may have added others
        schema = pa.schema([pa.field(name, types[name.lower()]) for name in names])
        self._dataset = dataset_of(place, storage, files, schema)
        self.number = int(table.version())
        self.listed = files
        known = not files["num_records"].null_count
        self.count = int(pc.sum(files["num_records"]).as_py() or 0) if known else self._dataset.count_rows()
        self.bytes = int(pc.sum(files["size_bytes"]).as_py() or 0)
        self.files = files.num_rows
        self._spelled = {n.lower(): n for n in names}

    def scan(self, names: Sequence[str] | None = None) -> pa.Table:
        return self._read(self._named(names), lambda of: None)

    def get(self, names: Sequence[str], keys: pa.Table, *, nulls: bool) -> pa.Table:
        """Returns the rows whose columns equal one of the keys, which have the types of the columns."""
        columns = self._named(None)
        if not keys.num_rows or not self.count:
            return _empty(columns)
        wanted = [self._column(name) for name in names]
        known, keys = (None, keys) if self._cache is None else self._cache.get(self, names, keys)
        if known is not None and not keys.num_rows:
            return pa.table(known.columns, _fields(columns))

        def condition(of: Of) -> pc.Expression | None:
            filters = [self._within(c, keys[c.name]) for c in wanted if of(c.type)]
            return reduce(and_, filters) if filters else None

        found = self._read(columns, condition)
        found = found.filter(among(found, keys, names))
        if self._cache is not None:
            self._cache.add(self, names, found)
        return found if known is None else pa.concat_tables([pa.table(known.columns, found.schema), found])

    def find(self, columns: Sequence[str], keys: Sequence[Any]) -> Found | None:
        """Returns rows by their key, if all of them were looked up before."""
        return None if self._cache is None else self._cache.find(self, columns, keys)

    def filtered(self, where: Predicate) -> pa.Table:
        """Returns rows that include all that match."""
        return self._read(self._named(None), lambda of: self._expression(where, of))

    def _read(self, columns: Sequence[Column], where: Callable[[Of], pc.Expression | None]) -> pa.Table:
        """Returns rows of the files that can have some that meet a condition; ``where`` makes it of the columns that
        may be in it.
        """
        try:
            return self.read_now(columns, where)
        except FileGone as error:
            gone = error
        newer = self._newer()
        if newer is not None:
            with suppress(FileGone):
                return newer.read_now(columns, where)
        raise SourceChanged(
            f'Delta table "{self._place}" does not have a file of version {self.number} any more: {gone}',
            hint="try again; VACUUM must keep what is read",
        )

    def read_now(self, columns: Sequence[Column], where: Callable[[Of], pc.Expression | None]) -> pa.Table:
        """Returns rows of this version. Raises FileGone if it lacks a file."""
        if not self.count:
            return _empty(columns)
        names = [self._spelled[c.name.lower()] for c in columns]
        with explained(self._place):
            try:
                found = some_of(self._dataset, where(is_pruned)).to_table(
                    columns=list(dict.fromkeys(names)), filter=where(is_filtered)
                )
            except FileNotFoundError as error:
                raise FileGone(str(error)) from None
        return pa.table(
            [_decoded(found[n], c.type) for n, c in zip(names, columns, strict=True)], _fields(columns)
        )

    def _named(self, names: Sequence[str] | None) -> list[Column]:
        return list(self._columns) if names is None else [self._column(name) for name in names]

    def _column(self, name: str) -> Column:
        return next(c for c in self._columns if c.name.lower() == name.lower())

    def _field(self, column: Column) -> pc.Expression:
        return pc.field(self._spelled[column.name.lower()])

    # conditions that leave out files and parts of them; what they leave in is compared afterwards

    def _within(self, column: Column, values: pa.ChunkedArray) -> pc.Expression:
        """Returns a condition for the rows with one of the values, with their range, by which files are left out."""
        field, known = self._field(column), values.drop_null().unique()
        found = field.isin(known)
        if len(known):
            found = (field >= pc.min(known)) & (field <= pc.max(known)) & found
        return found | field.is_null() if values.null_count else found

    def _expression(self, where: Predicate, of: Of) -> pc.Expression | None:
        """Returns a condition that all matching rows meet; None for one that excludes nothing."""
        match where:
            case All(parts):
                found = [e for p in parts if (e := self._expression(p, of)) is not None]
                return reduce(and_, found) if found else None
            case Any_(parts):
                every = [self._expression(p, of) for p in parts]
                return reduce(or_, every) if every and None not in every else None
            case IsNull(name, is_null):
                field = self._field(self._column(name))
                return field.is_null() if is_null else field.is_valid()
            case OneOf(name, values, False):
                return self._compared(name, values, self._within_values, of)
            case Compare(name, operator, value) if operator != "!=":
                return self._compared(
                    name,
                    (value,),
                    lambda column, given: _OPERATORS[operator](self._field(column), given[0]),
                    of,
                )
        return None

    def _within_values(self, column: Column, given: pa.Array) -> pc.Expression:
        return self._within(column, pa.chunked_array([given]))

    def _compared(self, name: str, values: Sequence[Any], make: Any, of: Of) -> pc.Expression | None:
        column = self._column(name)
        if not of(column.type):
            return None
        try:
            given = pa.array(values, column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return None
        found: pc.Expression = make(column, given)
        return found


_OPERATORS = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def stored_type(dtype: pa.DataType) -> pa.DataType:
    """Returns the type of a column in the files: Delta has no intervals, which are microseconds there."""
    return pa.int64() if pa.types.is_duration(dtype) else dtype


def _decoded(values: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    if values.type == dtype:
        return values
    if pa.types.is_duration(dtype):
        return pa.chunked_array([chunk.view(dtype) for chunk in values.chunks], dtype)
    return values.cast(dtype)


def _fields(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type) for c in columns])


def _empty(columns: Sequence[Column]) -> pa.Table:
    return _fields(columns).empty_table()
