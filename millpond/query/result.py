"""Returns the rows of a result to a person, a program or a notebook."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond import allowance
from millpond.errors import PackageMissing
from millpond.lookup import Answer
from millpond.records import to_rows

if TYPE_CHECKING:
    import pandas
    import polars


EXPLAINED = "millpond.explained"
"""In the metadata of a schema: says that the rows are the text of a plan, in this form."""


_NOTHING = pa.table({})
_PIECE = 2_048
"""Rows that are read at a time if their bytes are counted."""
SHOWN = 100
"""Rows that a notebook shows."""


def drawn(rows: pa.Table, count: int) -> str:
    """Returns the first of ``count`` rows as an HTML table."""
    head = "".join(f"<th>{html.escape(c)}</th>" for c in rows.column_names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(v))}</td>" for v in row.values()) + "</tr>"
        for row in to_rows(rows.slice(0, SHOWN))
    )
    more = f"<p>{count - SHOWN:,} more rows</p>" if count > SHOWN else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


class Result:
    """Represents the result of a statement.

    ``count`` is the number of rows that the statement changed; None for a query.
    """

    def __init__(self, table: pa.Table, *, count: int | None = None):
        self._table = table
        self.count = count

    def to_arrow(self) -> pa.Table:
        """Returns the rows as an Arrow table; equal column names keep their place."""
        return self._table

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows as dicts. Of equal column names the later ones become ``id_1``, ``id_2``, …"""
        return to_rows(self.to_arrow())

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Returns the rows as a Polars DataFrame; needs the extra ``polars``."""
        try:
            import polars
        except ImportError:
            raise PackageMissing("Polars is not installed", hint="pip install 'millpond[polars]'") from None
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    @property
    def columns(self) -> list[str]:
        return list(self.to_arrow().column_names)

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        if self.count is not None:
            return f"<Result: {self.count} rows>"
        return f"<Result: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """Shows a table in a notebook, at most 100 rows of it; for EXPLAIN its text or picture."""
        if self.count is not None:
            return f"<p>{self.count} rows</p>"
        table = self.to_arrow()
        form = (table.schema.metadata or {}).get(EXPLAINED.encode())
        if form is not None:
            text = "\n".join(table["plan"].to_pylist())
            return text if form == b"svg" else f"<pre>{html.escape(text)}</pre>"
        return drawn(table, table.num_rows)


class Count(Result):
    """Represents the result of a statement that only changed rows."""

    _table = _NOTHING

    def __init__(self, count: int):
        self.count = count


class LookupResult(Result):
    """Represents the rows that a lookup found, read on demand; they do not change."""

    count = None

    def __init__(self, answer: Answer, source: Any, found: Any):
        self._answer = answer
        self._source = source
        self._found = found

    def rows(self) -> list[dict[str, Any]]:
        return self._answer.rows(self._source, self._found)

    @property
    def schema(self) -> pa.Schema:
        return self._answer.schema

    def values(self) -> list[Any]:
        """Returns the values of the first column."""
        return self._answer.values(self._source, self._found)

    def to_arrow(self) -> pa.Table:
        limit = allowance.current()
        if limit is None or len(self) <= _PIECE:
            return self._answer.table(self._source, self._found)
        limit.check_size(len(self), 0)
        pieces: list[pa.Table] = []
        size = 0
        for at in range(0, len(self), _PIECE):
            pieces.append(self._answer.table(self._source, self._found[at : at + _PIECE]))
            size += pieces[-1].nbytes
            limit.check_size(len(self), size)
        return pa.concat_tables(pieces)

    def __len__(self) -> int:
        return 1 if self._found is None else len(self._found)


class RunningResult(Result):
    """Represents the result of a running query: what it has emitted so far. Threads may add and read."""

    def __init__(self, schema: pa.Schema, name: str):
        super().__init__(schema.empty_table())
        self.name = name
        self._batches: list[pa.Table] = []
        self._lock = threading.Lock()
        self._grew = threading.Condition(self._lock)

    def add(self, table: pa.Table) -> None:
        with self._grew:
            self._batches.append(table)
            self._grew.notify_all()

    def to_arrow(self) -> pa.Table:
        with self._lock:
            if len(self._batches) > 1:
                self._batches = [pa.concat_tables(self._batches, promote_options="permissive")]
            return self._batches[0] if self._batches else self._table

    def since(self, seen: int) -> pa.Table:
        """Returns the rows after the first ``seen``."""
        return self.to_arrow().slice(seen)

    def take(self, timeout: float) -> pa.Table | None:
        """Returns the rows since the last ``take``, which are then removed; None when the time is over."""
        with self._grew:
            if not self._grew.wait_for(lambda: any(b.num_rows for b in self._batches), timeout):
                return None
            taken, self._batches = self._batches, []
        return pa.concat_tables(taken, promote_options="permissive")

    def wait(self, seen: int, timeout: float) -> bool:
        """Waits until there are more than ``seen`` rows; returns False when the time is over."""
        with self._grew:
            return bool(self._grew.wait_for(lambda: sum(b.num_rows for b in self._batches) > seen, timeout))
