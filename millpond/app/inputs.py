"""Sources outside that a query meets beside tables and streams: kept whole, and read again when they have changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.app.living import News
from millpond.app.loading import read_range
from millpond.changes import Offset
from millpond.sources.base import Source
from millpond.sql.catalog import Relation

if TYPE_CHECKING:
    from millpond.app.app import App


class Inputs:
    """The rows of some sources, by view; ``changed`` is told when those of one are others than before."""

    def __init__(self, sources: Mapping[str, Source], changed: Callable[[str, pa.Table], None]):
        self.sources = sources
        self._changed = changed
        self._at: dict[str, Offset] = {}
        self.rows: dict[str, pa.Table] = {}
        for view, source in sources.items():
            self._at[view] = source.latest(None)
            self.rows[view] = read_range(source, None, self._at[view])

    reads: Sequence[Relation] = ()

    @property
    def follows(self) -> bool:
        return any(source.follows for source in self.sources.values())

    def news(self) -> list[News]:
        return [source.changes for source in self.sources.values() if source.follows]

    def close(self) -> None:
        for source in self.sources.values():
            source.close()

    @property
    def settled(self) -> bool:
        return all(source.settled(self._at[view]) for view, source in self.sources.items())

    def advance(self) -> int:
        count = 0
        for view, source in self.sources.items():
            at = self._at[view]
            end = source.latest(at)
            if end == at:
                continue
            if source.replaced(at, end):
                rows = read_range(source, None, end)
            else:
                rows = pa.concat_tables([self.rows[view], read_range(source, at, end)])
            self._at[view] = end
            if rows.num_rows != self.rows[view].num_rows or not rows.equals(self.rows[view]):
                self.rows[view] = rows
                self._changed(view, rows)
                count += int(rows.num_rows)
        return count


def keep_beside(app: App, relation: Relation) -> None:
    """Keeps the rows of a source that running statements meet in a table that nobody sees."""
    name, source = relation.name, app._source(relation)

    def renew(_: str, rows: pa.Table) -> None:
        own = app._backend(name).snapshot().scan(rows=True)
        app._store.commit({name: app._evaluator.difference(own, rows, ())})

    inputs = Inputs({name: source}, renew)
    app._store.create_hidden(name, relation.schema, inputs.rows[name])
    if inputs.follows:
        app._living.add(name.lower(), inputs)
