"""A keyed topic as a table: the last message of a key is its row, and one without a value ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.app.running import Rows
from millpond.app.store import Moment
from millpond.changes import Changes, Position
from millpond.errors import BadData
from millpond.formats.messages import JsonMessages
from millpond.formats.text import Misfit, convert
from millpond.sources.base import DELETED, SEQ
from millpond.types import Schema, type_name, whole

if TYPE_CHECKING:
    from millpond.engine.batch import Batch

_KEY = "_key"


class Keyed(Rows):
    """A query whose rows go to a keyed table, over a stream whose messages may end a row.

    A message that ends a row passes by the query: its key says which. The rows of that key that come before it in the
    batch need not be looked at.
    """

    def evaluate(self, batch: Batch, moment: Moment) -> pa.Table:
        rows = batch.read()
        ends = rows[DELETED]
        if not pc.any(ends).as_py():
            return _marked(super().evaluate(batch, moment), ended=False)
        ended = rows.filter(ends)
        keys = self._keys(ended)
        left = _after(rows.filter(pc.invert(ends)), self.plan.keys, keys, ended[SEQ])
        found = super().evaluate(self._part(left), moment)
        return pa.concat_tables([_filled(keys, found.schema), _marked(found, ended=False)])

    def _keys(self, ended: pa.Table) -> pa.Table:
        """The keys of the rows that are ended: from what they were, where the messages say, else from their keys."""
        schema = self._key_schema
        first = ended[self.plan.keys[0]]
        if ended.num_rows and not first.null_count:
            columns = {c.name: ended[n].cast(c.type) for c, n in zip(schema, self.plan.keys, strict=True)}
            return pa.table(columns)
        return keys_of(ended[_KEY], schema)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        name = self.plan.target.name
        changes = Changes(rows.drop_columns([DELETED]), rows[DELETED].combine_chunks())
        self.write(lambda moment: ({name: changes}, None), position, into=(name,))
        return int(rows.num_rows)

    @property
    def _key_schema(self) -> Schema:
        """The columns of the key as the target has them."""
        relation = self.app._catalog.find(self.plan.target.name)
        assert relation is not None
        found = [relation.schema.find(name) for name in relation.schema.key]
        return Schema(tuple(c for c in found if c is not None))


def keys_of(texts: pa.ChunkedArray, schema: Schema) -> pa.Table:
    """The columns of the key that message keys hold: an object of JSON, or for one column its text. Raises BadData."""
    if texts.null_count:
        raise BadData("a message without a value has no key: which row it ends is not known")
    texts = whole(texts).cast(pa.string())
    if len(schema) == 1 and not pc.any(pc.starts_with(texts, pattern="{")).as_py():
        column = schema.columns[0]
        assert column.type is not None
        try:
            return pa.table({column.name: convert(texts, column.type, empty_is_null=False)})
        except Misfit as error:
            raise BadData(f'the key "{error.value}" of a message is not a {type_name(column.type)}') from None
    return pa.Table.from_batches([JsonMessages(schema, {}).read(texts.cast(pa.binary()))])


def _after(rows: pa.Table, columns: tuple[str, ...], keys: pa.Table, seqs: pa.ChunkedArray) -> pa.Table:
    """The rows that no message of their key ends later."""
    names = [f"k{i}" for i in range(len(columns))]
    ends = keys.rename_columns(names).append_column("end", seqs).group_by(names).aggregate([("end", "max")])
    own = rows.select(list(columns)).rename_columns(names)
    own = pa.table(
        {n: c.cast(ends[n].type) for n, c in zip(names, own.columns, strict=True)}
        | {"at": rows[SEQ], "place": pa.array(np.arange(rows.num_rows))}
    )
    met = own.join(ends, names, join_type="inner")
    over = met.filter(pc.less(met["at"], met["end_max"]))["place"].to_numpy()
    mask = np.ones(rows.num_rows, dtype=bool)
    mask[over] = False
    return rows.filter(pa.array(mask))


def _marked(rows: pa.Table, *, ended: bool) -> pa.Table:
    return rows.append_column(DELETED, pa.array(np.full(rows.num_rows, ended)))


def _filled(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows that end those of the keys."""
    by_name = {n.lower(): c for n, c in zip(keys.column_names, keys.columns, strict=True)}
    arrays = [
        by_name[f.name.lower()].cast(f.type) if f.name.lower() in by_name else pa.nulls(keys.num_rows, f.type)
        for f in schema
    ]
    return _marked(pa.table(arrays, schema=schema), ended=True)
