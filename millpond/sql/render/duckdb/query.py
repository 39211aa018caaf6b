"""Renders queries: SELECT with its clauses, set operations, CTEs, VALUES, joins."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.render.duckdb import windows
from millpond.sql.render.duckdb.casts import cast
from millpond.sql.render.duckdb.entries import entry_of
from millpond.sql.render.duckdb.expression import Expressions
from millpond.sql.render.duckdb.names import Unrenderable, quoted
from millpond.sql.typing import output_types, type_of
from millpond.sql.typing.coercion import BOOLEAN, is_nested
from millpond.sql.typing.functions import integer_value
from millpond.sql.typing.implicit import has_map

_SELECT = {
    "expressions",
    "distinct",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "qualify",
    "order",
    "limit",
    "offset",
    "with_",
    "kind",
    "hint",
}
_SET = {"this", "expression", "distinct", "order", "limit", "offset", "with_", "side", "kind", "by_name"}
_TABLE = {"this", "alias", "joins"}
_JOIN = {"this", "on", "using", "side", "kind", "method"}
_KINDS = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "CROSS JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("LEFT", "OUTER"): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("RIGHT", "OUTER"): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("FULL", "OUTER"): "FULL JOIN",
    ("", "SEMI"): "SEMI JOIN",
    ("LEFT", "SEMI"): "SEMI JOIN",
    ("", "ANTI"): "ANTI JOIN",
    ("LEFT", "ANTI"): "ANTI JOIN",
}
_SET_WORDS: dict[type[exp.Expr], str] = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


_GROUPINGS: dict[type[exp.Expr], str] = {
    exp.Rollup: "ROLLUP",
    exp.Cube: "CUBE",
    exp.GroupingSets: "GROUPING SETS",
}


class Queries:
    """Renders queries, and through ``expressions`` their expressions."""

    def __init__(self) -> None:
        self.expressions = Expressions(self.query, entry_of)

    def query(self, node: exp.Expr) -> str:
        """Renders any query, without outer parentheses."""
        if isinstance(node, exp.Subquery):
            return self._parenthesised(node)
        if isinstance(node, exp.Select):
            return self._with(node) + self._select(node) + self._tail(node)
        if isinstance(node, exp.SetOperation):
            return self._with(node) + self._set_operation(node) + self._tail(node)
        if isinstance(node, exp.Values):
            return self._values(node)
        raise Unrenderable(f"{node.key.upper()} as a query")

    def _parenthesised(self, node: exp.Subquery) -> str:
        _only(node, {"this", "alias", "with_", "order", "limit", "offset"})
        inner = self.query(node.this)
        if any(node.args.get(k) for k in ("with_", "order", "limit", "offset")):
            return f"{self._with(node)}({inner}){self._tail(node)}"
        return inner

    def _with(self, node: exp.Expr) -> str:
        clause = node.args.get("with_")
        if clause is None:
            return ""
        if clause.args.get("recursive"):
            raise Unrenderable("WITH RECURSIVE")
        parts = [f"{_alias(cte.args['alias'])} AS ({self.query(cte.this)})" for cte in clause.expressions]
        return f"WITH {', '.join(parts)} "

    def _select(self, node: exp.Select) -> str:
        _only(node, _SELECT)
        if node.args.get("kind"):
            raise Unrenderable("SELECT AS")
        parts = ["SELECT", self._distinct(node) + ", ".join(self._projection(e) for e in node.expressions)]
        if node.args.get("from_"):
            parts.append("FROM " + self._source(node.args["from_"].this))
            parts += [self._join(j) for j in node.args.get("joins") or ()]
        for key, word in (("where", "WHERE"), ("having", "HAVING"), ("qualify", "QUALIFY")):
            if key == "having" and node.args.get("group"):
                parts.append(self._group(node.args["group"]))
            conditions = [self._condition(node.args[key].this)] if node.args.get(key) else []
            if key == "having" and _several_groupings(node.args.get("group")):
                conditions.append("count(*) > 0")  # Spark has no group of all rows if there are no rows
            if conditions:
                parts.append(f"{word} {' AND '.join(conditions)}")
        return " ".join(parts)

    def _distinct(self, node: exp.Select) -> str:
        distinct = node.args.get("distinct")
        if distinct is None:
            return ""
        if distinct.args.get("on"):
            raise Unrenderable("DISTINCT ON")
        if any(dtype is not None and has_map(dtype) for dtype in output_types(node)):
            raise Unrenderable("DISTINCT maps")
        return "DISTINCT "

    def _projection(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Star):
            if isinstance(node.find_ancestor(exp.Exists, exp.Select).parent, exp.Exists):  # type: ignore[union-attr]
                return "1"
            raise Unrenderable("a star that is not expanded")
        inner, name = (node.this, node.alias) if isinstance(node, exp.Alias) else (node, node.output_name)
        sql = self.expressions.sql(inner)
        return f"{sql} AS {quoted(name)}" if name else sql

    def _source(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Table):
            _only(node, _TABLE)
            if not isinstance(node.this, exp.Identifier):
                raise Unrenderable("a table function")
            found = quoted(node.this.name)
        elif isinstance(node, exp.Subquery):
            _only(node, {"this", "alias", "joins"})
            if isinstance(node.this, exp.Table | exp.Join):
                raise Unrenderable("joins in parentheses")
            found = f"({self.query(node.this)})"
        elif isinstance(node, exp.Values):
            found = f"({self.query(node)})"
        elif isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
            _only(node, {"this", "alias"})
            found = f"LATERAL ({self.query(node.this)})"
        else:
            raise Unrenderable(f"{node.key.upper()} in FROM")
        alias = node.args.get("alias")
        joins = "".join(" " + self._join(j) for j in node.args.get("joins") or ())
        return found + (f" AS {_alias(alias)}" if alias is not None else "") + joins

    def _join(self, node: exp.Expr) -> str:
        _only(node, _JOIN)
        if node.args.get("method"):
            raise Unrenderable(f"a {node.args['method']} join")
        side, kind = (str(node.args.get(k) or "").upper() for k in ("side", "kind"))
        word = _KINDS.get((side, kind))
        if word is None:
            raise Unrenderable(f"{side} {kind} JOIN")
        on, using = node.args.get("on"), node.args.get("using")
        if isinstance(node.this, exp.Lateral):
            _check_lateral(node, plain=word != "LEFT JOIN" or on is None or on == exp.true())
        if on is None and not using and word == "JOIN":
            word = "CROSS JOIN"
        parts = [word, self._source(node.this)]
        if on is not None:
            parts.append(f"ON {self._condition(on)}")
        elif using:
            parts.append(f"USING ({', '.join(quoted(c.name) for c in using)})")
        elif word != "CROSS JOIN":
            parts.append("ON TRUE")
        return " ".join(parts)

    def _condition(self, node: exp.Expr) -> str:
        """Renders a condition whose parts DuckDB may evaluate where they are cheapest."""
        parts = node.flatten() if isinstance(node, exp.And) else [node]
        return " AND ".join(self.expressions.to(part, BOOLEAN) for part in parts)

    def _group(self, node: exp.Expr) -> str:
        _only(node, {"expressions"})
        return "GROUP BY " + ", ".join(self._grouping(e) for e in node.expressions)

    def _grouping(self, node: exp.Expr) -> str:
        word = _GROUPINGS.get(type(node))
        if word is not None:
            return f"{word} ({', '.join(self._grouping(e) for e in node.expressions)})"
        if isinstance(node, exp.Tuple):
            return f"({', '.join(self._grouping(e) for e in node.expressions)})"
        return self._key(node)

    def _key(self, node: exp.Expr) -> str:
        """Renders a grouping key; a bare name is an output."""
        if isinstance(node, exp.Column) and not node.table and type_of(node) is None:
            return quoted(node.name)
        dtype = type_of(node)
        if dtype is not None and has_map(dtype):
            raise Unrenderable("maps that are grouped by")
        return self.expressions.sql(node)

    def _tail(self, node: exp.Expr) -> str:
        """Renders ORDER BY, LIMIT and OFFSET."""
        parts = []
        order = node.args.get("order")
        if order is not None:
            _only(order, {"expressions"})
            types = output_types(node)
            parts.append(" ORDER BY " + ", ".join(self._sort_key(o, types) for o in order.expressions))
        for key, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
            clause = node.args.get(key)
            if clause is None:
                continue
            count = integer_value(clause.args.get("expression"))
            if not isinstance(clause, exp.Limit | exp.Offset) or count is None or count < 0:
                raise Unrenderable(f"{word} of another form")
            parts.append(f" {word} {count}")
        return "".join(parts)

    def _sort_key(self, node: exp.Expr, types: Sequence[pa.DataType | None]) -> str:
        if not isinstance(node, exp.Ordered) or node.args.get("with_fill"):
            raise Unrenderable("an ORDER BY of another form")
        position = integer_value(node.this)
        if position is None:
            return windows.sort_key(self.expressions, node.this) + windows.direction(node)
        dtype = types[position - 1]
        if dtype is None or is_nested(dtype):
            raise Unrenderable("an order of arrays and structs")
        return f"{position}{windows.direction(node)}"

    def _set_operation(self, node: exp.SetOperation) -> str:
        _only(node, _SET)
        if node.args.get("by_name") or node.args.get("side") or node.args.get("kind"):
            raise Unrenderable("a set operation BY NAME")
        types = output_types(node)
        left, right = (self._side(e, types) for e in (node.this, node.expression))
        return f"({left}) {_SET_WORDS[type(node)]}{'' if node.args.get('distinct') else ' ALL'} ({right})"

    def _side(self, node: exp.Expr, types: Sequence[pa.DataType | None]) -> str:
        """Renders one side of a set operation, with its columns cast to the common types."""
        own = output_types(node)
        if len(own) != len(types) or None in own or None in types:
            raise Unrenderable("a set operation over types that are not known")
        sql = self.query(node)
        if own == list(types):
            return sql
        names = [f"c{i}" for i in range(len(own))]
        outputs = [quoted(name) for name in _output_names(node)]
        columns = ", ".join(
            f"{cast(c, a, b)} AS {o}" for c, a, b, o in zip(names, own, types, outputs, strict=True)
        )
        return f"SELECT {columns} FROM ({sql}) AS s({', '.join(names)})"

    def _values(self, node: exp.Values) -> str:
        types = output_types(node)
        rows = []
        for row in node.expressions:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row]
            if len(cells) != len(types) or None in types:
                raise Unrenderable("VALUES of types that are not known")
            rows.append(
                f"({', '.join(self.expressions.to(c, t) for c, t in zip(cells, types, strict=True))})"
            )
        return "VALUES " + ", ".join(rows)


def _check_lateral(join: exp.Expr, *, plain: bool) -> None:
    """Refuses forms of LATERAL that DuckDB does not have."""
    around = join.find_ancestor(exp.Lateral, exp.Subquery, exp.Exists, exp.In)
    while isinstance(around, exp.Subquery) and isinstance(around.parent, exp.From | exp.Join):
        around = around.find_ancestor(exp.Lateral, exp.Subquery, exp.Exists, exp.In)
    if around is not None:
        raise Unrenderable("LATERAL in a subquery")
    if not plain:
        raise Unrenderable("LEFT JOIN LATERAL with a condition")


def _several_groupings(group: exp.Expr | None) -> bool:
    """Returns whether rows are grouped in several ways: ROLLUP, CUBE, GROUPING SETS of more than ()."""
    sets = [e for e in group.expressions if type(e) in _GROUPINGS] if group is not None else []
    return any(not isinstance(s, exp.GroupingSets) or s.expressions != [exp.Tuple()] for s in sets)


def _output_names(node: exp.Expr) -> list[str]:
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    return [e.alias_or_name for e in node.expressions]


def _alias(node: exp.Expr) -> str:
    """Returns a table's alias with its column names."""
    if not isinstance(node, exp.TableAlias):
        return quoted(node.name)
    columns = node.args.get("columns") or ()
    names = f"({', '.join(quoted(c.name) for c in columns)})" if columns else ""
    return quoted(node.name) + names


def _only(node: exp.Expr, known: set[str]) -> None:
    """Refuses a node with a part that would be dropped."""
    for key, value in node.args.items():
        if value and key not in known:
            raise Unrenderable(f"{key.upper().strip('_')} in {node.key.upper()}")
