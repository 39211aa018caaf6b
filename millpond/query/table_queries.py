"""Implements the SQL methods of a table: by condition, by expression, by path into nested values."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from millpond.errors import QueryFailed
from millpond.query.conditions import Compiler, Condition
from millpond.query.paths import Path, parse_path
from millpond.query.result import LookupResult
from millpond.query.stats import Counter
from millpond.query.wildcards import columns_of, parse_aggregate, path_values
from millpond.records import to_rows
from millpond.records.outgoing import to_values
from millpond.sql.filters import resolve_outputs, resolve_over_path
from millpond.sql.resolve import Resolved
from millpond.tables.base import Snapshot

_SUM = re.compile(r"\s*SUM\s*\(\s*(?P<column>[^\W\d]\w*)\s*\)\s*", re.IGNORECASE)


class TableQueries(ABC):
    """Implements the ``sql_…`` methods of a table and of its snapshots."""

    _compiler: Compiler
    _queries: Counter

    @abstractmethod
    def _view(self) -> Snapshot:
        """Returns the rows to read."""

    @abstractmethod
    def _matching(self, condition: str | Condition | None, equal: Mapping[str, Any]) -> pa.Table:
        """Returns the rows that match a condition."""

    def _look(self, output: str, condition: str | Condition | None) -> LookupResult | None:
        """Returns the result of a cached plan, if there is one."""
        return None

    def sql_filter(self, condition: str | Condition) -> list[dict[str, Any]]:
        """Returns the records that match a condition.

        >>> users.sql_filter("tier IN ('GOLD', 'SILVER') AND name LIKE 'A%'")
        """
        found = self._look("*", condition)
        return to_rows(self._matching(condition, {})) if found is None else found.rows()

    def sql_exists(self, condition: str | Condition) -> bool:
        """Returns whether a record matches the condition.

        >>> users.sql_exists("tier = 'GOLD'")
        True
        """
        found = self._look("*", condition)
        return bool(self._matching(condition, {}).num_rows if found is None else len(found))

    def sql_column_values(self, column: str, condition: str | Condition | None = None) -> list[Any]:
        """Returns the values of a column, or of an expression, one for each record.

        >>> users.sql_column_values("name", "tier = 'GOLD'")
        ['Ann', 'Bob']
        """
        quick = self._look(column, condition)
        if quick is not None:
            return quick.values()
        return to_values(self._ask(column, condition).column(0))

    def sql_scalar(self, expression: str, condition: str | Condition | None = None) -> Any:
        """Returns the one value of an aggregate; NULL if there is no row. Two rows are an error.

        >>> users.sql_scalar("COUNT(*)", "tier = 'GOLD'")
        2
        """
        whole = _SUM.fullmatch(expression) if condition is None else None
        if whole is not None and whole["column"] in self._compiler.relation.schema:
            total = self._view().decimal_sum(whole["column"])
            if total is not None:
                next(self._queries.step)
                return total[0]
        quick = self._look(expression, condition)
        if quick is not None and len(quick) < 2:
            values = quick.values()
            return values[0] if values else None
        found = self._ask(expression, condition)
        if found.num_rows > 1:
            raise QueryFailed(
                f'"{expression}" gives {found.num_rows} values, and one is expected',
                hint="use an aggregate, a narrower condition, or sql_column_values",
            )
        return to_values(found.column(0))[0] if found.num_rows else None

    def sql_wildcard_values(self, path: str, condition: str | Condition | None = None) -> list[Any]:
        """Returns the values that a path finds in nested columns or JSON text, of all records; with a comparison, those
        that satisfy it.

        >>> accounts.sql_wildcard_values("positions.*.shares > 100")
        [150]
        """
        return list(self._path_values(parse_path(path), condition))

    def sql_wildcard_aggregate(self, expression: str, condition: str | Condition | None = None) -> Any:
        """Returns COUNT, SUM, MIN, MAX or AVG, also with DISTINCT, over the values that a path finds, as in SQL. With a
        comparison, over those that satisfy it.

        >>> accounts.sql_wildcard_aggregate("SUM(positions.*.shares)")
        250
        """
        name, distinct, path = parse_aggregate(expression)
        relation = self._compiler.relation
        compiled = None if condition is None else self._compiler.condition(condition)
        if path.column is not None and path.column not in relation.schema:
            return 0 if name == "COUNT" else None
        where = None if compiled is None else compiled.filter
        query = resolve_over_path(relation, name, distinct, path.steps, path.compared, where)
        return to_values(self._answer(query, compiled).column(0))[0]

    def _ask(self, expression: str, condition: str | Condition | None) -> pa.Table:
        compiled = None if condition is None else self._compiler.condition(condition)
        where = None if compiled is None else compiled.filter
        return self._answer(resolve_outputs(self._compiler.relation, (expression,), where), compiled)

    def _answer(self, query: Resolved, condition: Condition | None) -> pa.Table:
        next(self._queries.step)
        rows = self._compiler.narrowed(self._view(), condition)
        return self._compiler.evaluator.answer(query, {query.inputs[0].view: rows})

    def _path_values(self, path: Path, condition: str | Condition | None) -> Iterator[Any]:
        columns = columns_of(path, self._compiler.relation.schema)
        rows = self._view().scan(columns) if condition is None else self._matching(condition, {})
        return path_values(path, rows.select(columns))
