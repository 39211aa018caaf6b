"""Names the fields of a table's rows, and makes documents of them."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millpond.changes import ROW
from millpond.connectors.databases.texts import to_texts
from millpond.connectors.mongodb.database import MongoBacked
from millpond.connectors.mongodb.names import field_name
from millpond.connectors.mongodb.values import encoded, rest_field, rests
from millpond.types import Column, whole


class MongoRows(MongoBacked):
    """Represents a table whose rows are documents."""

    name: str
    """The name of its collection."""

    @property
    def natural(self) -> str | None:
        """Returns the column that ``_id`` is: the key, or the row number."""
        if not self.schema.key:
            return ROW
        column = self.column(self.schema.key[0])
        t, dtype = pa.types, column.type
        plain = t.is_integer(dtype) or t.is_string(dtype) or t.is_date(dtype)
        return column.name if len(self.schema.key) == 1 and plain and not self.null_keys else None

    def field(self, column: Column) -> str:
        return "_id" if column.name == self.natural else field_name(column.name)

    def field_of(self, name: str) -> tuple[Column, str]:
        column = self.column(name)
        return column, self.field(column)

    def ids(self, columns: Sequence[pa.Array]) -> list[Any]:
        """Returns what identifies the rows with these keys."""
        if self.natural is not None:
            (values,) = columns
            number = pa.types.is_integer(values.type)
            return encoded(values.cast(pa.int64()), pa.int64()) if number else encoded(values, values.type)
        texts = [to_texts(c, c.type).to_pylist() for c in columns]
        return [json.dumps(parts, ensure_ascii=False) for parts in zip(*texts, strict=True)]

    def documents(self, rows: pa.Table) -> list[dict[str, Any]]:
        """Returns the documents of rows."""
        ids = self.ids([whole(rows.column(self.column(n).name)) for n in self.identity])
        names, cells, times = ["_id"], [ids], []
        for column in self.columns:
            field, values = self.field(column), whole(rows.column(column.name))
            if field == "_id":
                continue
            names.append(field)
            cells.append(encoded(values, column.type))
            if pa.types.is_timestamp(column.type):
                times.append((rest_field(field), rests(values)))
        made = [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
        for field, more in times:
            for document, rest in zip(made, more, strict=True):
                if rest:
                    document[field] = rest
        return made

    @abstractmethod
    def want_index(self, columns: Sequence[Column]) -> None:
        """Requests an index for equal values of these columns."""
