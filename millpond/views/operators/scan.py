"""Passes the changes of a table."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from millpond.sql.incremental.nodes import ScanNode
from millpond.views.operators.base import Operator, Round
from millpond.views.rows import Delta, Row, net, rows_of, table_of


class Scan(Operator):
    def __init__(self, node: ScanNode):
        super().__init__(node)
        self._scan = node

    def changed(self, round_: Round) -> Delta:
        return net(round_.changes(self._scan.table, self._scan.names))

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        snapshot = round_.snapshot(self._scan.table, old=old)
        if columns:
            names = [self._scan.names[c] for c in columns]
            wanted = table_of(list(keys), names, [_compared(self._scan.types[c]) for c in columns])
            found = snapshot.get(names, wanted, nulls=True)
            round_.expect(found.num_rows, (self._scan.view, found))
        else:
            round_.expect(len(snapshot))
            found = snapshot.scan()
        return [(row, 1) for row in rows_of(found, self._scan.names)]


def _compared(dtype: pa.DataType) -> pa.DataType:
    """Returns the type of keys that are compared with a column: integers of any width are."""
    return pa.int64() if pa.types.is_integer(dtype) else dtype
