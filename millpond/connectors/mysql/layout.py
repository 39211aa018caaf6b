"""Finds the columns of a table in the rows of its log, however the table was altered meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from millpond.connectors.mysql import capture_check
from millpond.connectors.mysql.charsets import Charsets
from millpond.connectors.mysql.gather import Layout, Reading
from millpond.connectors.mysql.statements import TableName
from millpond.connectors.mysql.table_map import Field, TableMap
from millpond.errors import SourceChanged
from millpond.types import Column, Schema, type_name

_AGAIN = "make the table anew, so that it is loaded again"


class Layouts:
    """Queries the server for what its log does not contain; ``discover`` returns the current columns of the table."""

    def __init__(self, discover: Callable[[], Schema], ask: capture_check.Ask, name: Callable[[], TableName]):
        self._discover = discover
        self._ask = ask
        self._name = name
        self._charsets = Charsets(ask)
        self._natural: Schema | None = None
        self._last: tuple[TableMap, Schema, Layout] | None = None

    def of(self, schema: Schema, table: TableMap) -> Layout:
        if self._last is not None and self._last[0] is table and self._last[1] is schema:
            return self._last[2]
        capture_check.refuse_unnamed(table)
        at = {f.name.lower(): i for i, f in enumerate(table.fields)}
        fields = [table.fields[at[c.name.lower()]] if c.name.lower() in at else None for c in schema]
        columns = tuple(None if f is None else self._reading(f) for f in fields)
        places = tuple(at[f.name.lower()] for f in fields if f is not None)
        if not places:
            raise SourceChanged(f'"{self._name()}" has none of the columns that are read', hint=_AGAIN)
        keys = tuple(at[k.lower()] for k in schema.key if k.lower() in at)
        whole = len(keys) == len(schema.key) and set(keys) <= set(places)
        found = Layout(table, columns, places, keys if whole else ())
        self._last = table, schema, found
        return found

    def _reading(self, field: Field) -> Reading:
        made = capture_check.made_of(self._ask, self._name(), field)
        return Reading(field, made, self._charsets.decoder(field))

    def fresh(self, schema: Schema, maps: Iterable[TableMap]) -> Schema:
        """Returns columns that some maps have and the schema does not. Raises SourceChanged for one whose type has
        changed to one that the schema cannot represent.
        """
        natural = self._natural or self._discovered()
        new: set[str] = set()
        for table in maps:
            capture_check.refuse_unnamed(table)
            for field in table.fields:
                known, before = schema.find(field.name), natural.find(field.name)
                if known is None:
                    new.add(field.name.lower())
                elif before is None or before.type != self._type(field):
                    self._refuse_other(known, self._type(field))
        return Schema(tuple(c for c in self._discovered() if c.name.lower() in new) if new else ())

    def _type(self, field: Field) -> pa.DataType:
        return pa.string() if self._reading(field).made in capture_check.AS_TEXT else field.arrow

    def _refuse_other(self, known: Column, found: pa.DataType) -> None:
        assert known.type is not None
        if not capture_check.holds(known.type, found):
            raise SourceChanged(
                f'column "{known.name}" of "{self._name()}" has become {type_name(found)};'
                f" here it is {type_name(known.type)}",
                hint=_AGAIN,
            )

    def _discovered(self) -> Schema:
        found = self._natural = self._discover()
        return found
