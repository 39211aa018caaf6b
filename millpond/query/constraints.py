"""Checks that rows meet the constraints of a table whose store has some of its own."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.errors import Error, InvalidRecord, NotSupported
from millpond.query.conditions import Rows, rows_of, with_numbers
from millpond.query.evaluate import Evaluator
from millpond.sql.catalog import Relation
from millpond.sql.constraints import broken_rows
from millpond.sql.filters import resolve_filter


class Constraints:
    """Represents the constraints of one table, compiled once. Raises NotSupported for one that cannot be checked in
    process.
    """

    def __init__(self, relation: Relation, texts: Mapping[str, str], evaluator: Evaluator):
        self._what = f'table "{relation.name}"'
        self._texts = dict(texts)
        self._names = relation.schema.names
        self._broken = {name: self._compiled(relation, name, evaluator) for name in texts}

    def _compiled(self, relation: Relation, name: str, evaluator: Evaluator) -> Rows:
        text = self._texts[name]
        try:
            query = resolve_filter(with_numbers(relation), broken_rows(relation, text))
            engine, why = evaluator.way(query)
            if engine != "duckdb" and evaluator.path == "auto":
                raise NotSupported(f"only Spark can evaluate it: {why}")
        except Error as error:
            raise NotSupported(
                f'{self._what}: its constraint "{name}", {text}, cannot be checked here: {error.message}',
                hint="remove it there: ALTER TABLE … DROP CONSTRAINT; or write it with simple comparisons",
            ) from None
        return rows_of(evaluator, query)

    def check(self, changes: Changes, what: str) -> None:
        """Raises InvalidRecord for the first row that breaks a constraint. Deletes break none; ``what`` names the
        table, which may have another name by now.
        """
        if not len(changes):
            return
        numbers = pa.array(range(len(changes)), pa.int64())
        rows = changes.rows.select(self._names).append_column(pa.field(ROW, pa.int64()), numbers)
        if changes.deleted is not None:
            rows = rows.filter(pc.invert(changes.deleted))
        for name, broken in self._broken.items():
            row = pc.min(broken(rows)[ROW]).as_py()
            if row is not None:
                raise InvalidRecord(
                    f'row {row} for {what} breaks the constraint "{name}": {self._texts[name]}', row=row
                )
