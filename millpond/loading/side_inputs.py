"""Maintains side inputs: outside sources that a query joins, stored completely in memory and read again when they
change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.source import SEQ, Source
from millpond.errors import BadData
from millpond.formats.read_records import none_rejected
from millpond.loading.bulk_load import last_of_each
from millpond.loading.followers import Followers, Mask, OverSources
from millpond.query.evaluate import Evaluator
from millpond.query.row_matches import aligned
from millpond.sql.catalog import Relation
from millpond.store.store import Store

log = logging.getLogger("millpond")


class SideInputs(OverSources):
    """Stores the rows of some sources, by view; ``changed`` is called when those of one have changed.

    The columns are those of the relations: other columns that appear in a source, also because another statement reads
    them, are left out. Records that cannot be read are counted and left out too.
    """

    def __init__(
        self,
        relations: Mapping[str, Relation],
        open_source: Callable[[Relation], Source],
        mask: Mask,
        changed: Callable[[str, pa.Table], None],
    ):
        self._mask = mask
        self._changed = changed
        self._sources = {view: open_source(relation) for view, relation in relations.items()}
        self._schemas = {
            view: relation.schema.arrow().append(pa.field(SEQ, pa.int64()))
            for view, relation in relations.items()
        }
        self._keys = {view: relation.schema.key for view, relation in relations.items()}
        self._at: dict[str, Offset] = {}
        self._damaged: set[str] = set()
        """Why parts of the sources could not be read completely."""
        self._numbered: dict[str, pa.Table] = {}
        """The rows with their sequence numbers, which identify the part of the source of each."""
        for view, source in self.sources.items():
            self._at[view] = source.latest(None)
            self._numbered[view] = self._read(view, None, self._at[view])

    @property
    def rows(self) -> dict[str, pa.Table]:
        return {view: rows.drop_columns([SEQ]) for view, rows in self._numbered.items()}

    @property
    def sources(self) -> dict[str, Source]:
        return self._sources

    @property
    def reads(self) -> Sequence[Relation]:
        """Returns nothing: it uses the columns that it began with."""
        return ()

    @property
    def settled(self) -> bool:
        return all(abilities.settled(source, self._at[view]) for view, source in self.sources.items())

    def advance(self) -> int:
        count = 0
        for view, source in self.sources.items():
            at = self._at[view]
            end = source.latest(at)
            if end == at:
                continue
            if abilities.replaced(source, at, end):
                rows = self._read(view, None, end, reload=True)
                rows = pa.concat_tables([self._left(view, end), rows])
            else:
                rows = pa.concat_tables([self._numbered[view], self._read(view, at, end)])
            if self._keys[view]:
                rows = last_of_each(rows, self._keys[view])
            before, self._at[view], self._numbered[view] = self._numbered[view], end, rows
            plain = rows.drop_columns([SEQ])
            if rows.num_rows != before.num_rows or not plain.equals(before.drop_columns([SEQ])):
                self._changed(view, plain)
                count += int(rows.num_rows)
        return count

    def _read(self, view: str, start: Offset | None, end: Offset, *, reload: bool = False) -> pa.Table:
        """Returns the rows between two offsets. On a ``reload``, what could be read before must exist:
        else BadData.
        """
        source, schema, rejected_parts = self.sources[view], self._schemas[view], [none_rejected()]
        found = [schema.empty_table()]
        for split in source.splits(start, end):
            for part in abilities.receive(source, split):
                numbered = part.rows.append_column(SEQ, part.places)
                found.append(aligned(pa.Table.from_batches([numbered]), schema))
                rejected_parts.append(part.rejected)
        rejected = pa.concat_tables(rejected_parts)
        reasons = set(rejected.filter(rejected["value"].is_null())["reason"].to_pylist())
        if reload and (fresh := reasons - self._damaged):
            raise BadData(min(fresh))
        self._damaged |= reasons
        if rejected.num_rows:
            said = "%s: %s records cannot be read and are left out: %s"
            uri, reason = (self._mask(text) for text in (source.uri, rejected["reason"][0].as_py()))
            log.warning(said, uri, rejected.num_rows, reason)
        return pa.concat_tables(found)

    def _left(self, view: str, end: Offset) -> pa.Table:
        """Returns the earlier rows that remain valid, although their origin cannot be read any more."""
        rows, source = self._numbered[view], self.sources[view]
        parts = abilities.part_of(source, rows[SEQ].to_numpy())
        return rows.filter(pa.array(np.isin(parts, sorted(abilities.left(source, end) or ()))))


def keep_side_input(
    relation: Relation,
    open_source: Callable[[Relation], Source],
    store: Store,
    evaluator: Evaluator,
    followers: Followers,
    mask: Mask,
) -> None:
    """Stores the rows of a source that running statements join in an internal table."""
    name = relation.name

    def renew(_: str, rows: pa.Table) -> None:
        key = relation.schema.key
        own = store.backend(name).snapshot().scan(rows=not key)
        store.commit({name: evaluator.difference(own, rows, key)})

    inputs = SideInputs({name: relation}, open_source, mask, renew)
    followers.side_tables.add(name.lower())
    store.create_hidden(name, relation.schema, inputs.rows[name])
    if inputs.follows:
        followers.add(name.lower(), inputs)
