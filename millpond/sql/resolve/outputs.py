"""What a SELECT gives: its list, `*`, GROUP BY, ORDER BY."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import NotSupported, SqlError, UnknownName, did_you_mean
from millpond.sql.autoname import auto_name
from millpond.sql.grouping import contains_aggregate
from millpond.sql.resolve.expressions import Columns, column_node
from millpond.sql.resolve.inputs import Inputs
from millpond.sql.scope import Scope


class Outputs(Inputs):
    """Resolves the list of a SELECT and the clauses that may name its columns."""

    def _projections(self, node: exp.Select, scope: Scope) -> list[exp.Alias]:
        outputs: list[exp.Alias] = []
        for projection in node.expressions:
            star = _star_of(projection)
            if star is not None and not self._is_path(projection, scope):
                outputs.extend(self._expand(projection, star, scope))
                continue
            name = projection.alias if isinstance(projection, exp.Alias) else auto_name(projection)
            value = projection.this if isinstance(projection, exp.Alias) else projection
            if isinstance(projection, exp.Aliases):
                self.errors.append(
                    NotSupported("several aliases for one expression", place=self.place(projection))
                )
            resolved = self._expr(value, scope, outputs)
            self._type(resolved)
            outputs.append(exp.Alias(this=resolved, alias=exp.to_identifier(name, quoted=True)))
        node.set("expressions", outputs)
        return outputs

    def _is_path(self, projection: exp.Expr, scope: Scope) -> bool:
        """Whether ``x.*`` is a path: x is no input of the query, but a column."""
        table = projection.table if isinstance(projection, exp.Column) else ""
        return bool(table) and scope.item(table) is None and bool(scope.matches(table))

    def _expand(self, projection: exp.Expr, star: exp.Star, scope: Scope) -> list[exp.Alias]:
        """The columns of `*` or `x.*`; a name that several inputs have comes out as alias_name."""
        table = projection.table if isinstance(projection, exp.Column) else ""
        dropped = {c.name.lower() for c in star.args.get("except_") or ()}
        items = scope.items
        merged: dict[str, exp.Expr] = {}
        if table:
            item = scope.item(table)
            if item is None:
                self.errors.append(
                    UnknownName(
                        f'"{table}" is not an input of this query',
                        hint=did_you_mean(table, [i.alias for i in scope.items]),
                        place=self.place(projection),
                    )
                )
                return []
            items = [item]
        else:
            merged = scope.merged
            if not items:
                self.errors.append(SqlError("SELECT * needs a FROM", place=self.place(projection)))
        everything = [c for i in items for c in i.columns if not c.hidden]
        unknown = dropped - {c.name.lower() for c in everything}
        for name in sorted(unknown):
            self.errors.append(
                UnknownName(
                    f'column "{name}" of EXCEPT is not there',
                    hint=did_you_mean(name, [c.name for c in everything]),
                    place=self.place(star),
                )
            )
        counts: dict[str, int] = {}
        for column in everything:
            counts[column.name.lower()] = counts.get(column.name.lower(), 0) + 1
        outputs: list[exp.Alias] = []
        done: set[str] = set()
        for column in everything:
            key = column.name.lower()
            if key in dropped or (key in merged and key in done):
                continue
            done.add(key)
            value = merged[key].copy() if key in merged else column_node(column)
            twice = counts[key] > 1 and key not in merged
            name = f"{column.alias}_{column.name}" if twice else column.name
            outputs.append(exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True)))
        return outputs

    def _group_by(self, node: exp.Select, scope: Scope, outputs: list[exp.Alias]) -> None:
        group = node.args.get("group")
        if group is None:
            return
        if group.args.get("all"):
            group.set("all", None)
            group.set("expressions", [o.this.copy() for o in outputs if not contains_aggregate(o.this)])
            return
        if group.args.get("rollup") or group.args.get("cube"):
            # GROUP BY a, b WITH ROLLUP is GROUP BY ROLLUP (a, b).
            several = exp.Rollup if group.args.get("rollup") else exp.Cube
            group.set("rollup", None)
            group.set("cube", None)
            group.set("expressions", [several(expressions=group.expressions)])
        keys: list[exp.Expr] = []
        for key in group.expressions:
            if isinstance(key, exp.Literal) and not key.is_string:
                index = int(key.this)
                if not 1 <= index <= len(outputs):
                    self.errors.append(
                        SqlError(f"GROUP BY {index} is not a column of the query", place=self.place(key))
                    )
                    continue
                keys.append(outputs[index - 1].this.copy())
            else:
                keys.append(self._expr(key, scope, outputs))
        group.set("expressions", keys)

    def _order_by(self, node: exp.Expr, scope: Scope, columns: Columns, outputs: list[exp.Alias]) -> None:
        for key in ("order", "sort"):
            order = node.args.get(key)
            for ordered in order.expressions if order is not None else ():
                value = ordered.this
                index = _output_index(value, columns)
                if index is not None:
                    ordered.set("this", exp.Literal.number(index + 1))
                elif isinstance(value, exp.Literal) and not value.is_string:
                    if not 1 <= int(value.this) <= len(columns):
                        self.errors.append(
                            SqlError(
                                f"ORDER BY {value.this} is not a column of the query", place=self.place(value)
                            )
                        )
                else:
                    resolved = self._expr(value, scope, outputs)
                    if node.args.get("distinct") is not None:
                        resolved = self._of_distinct(resolved, outputs, value)
                    ordered.set("this", resolved)

    def _of_distinct(self, resolved: exp.Expr, outputs: list[exp.Alias], value: exp.Expr) -> exp.Expr:
        """The place of what orders SELECT DISTINCT in its list: it cannot stand elsewhere."""
        for number, output in enumerate(outputs, 1):
            if output.this == resolved:
                return exp.Literal.number(number)
        self.errors.append(
            SqlError(
                "ORDER BY of SELECT DISTINCT names what is not in its list: rows that become one may differ in it",
                hint="put it into the list, or use GROUP BY with an aggregate",
                place=self.place(value),
            )
        )
        return resolved

    def _limits(self, node: exp.Expr, scope: Scope) -> None:
        for key in ("limit", "offset"):
            clause = node.args.get(key)
            if clause is None:
                continue
            self._children(clause, scope)
            value = clause.expression
            if isinstance(value, exp.Neg) or (
                isinstance(value, exp.Literal) and not str(value.this).isdigit()
            ):
                self.errors.append(
                    SqlError(f"{key.upper()} takes a whole number from 0 on", place=self.place(clause))
                )


def _star_of(node: exp.Expr) -> exp.Star | None:
    if isinstance(node, exp.Star):
        return node
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) and not node.args.get("db"):
        return node.this
    return None


def _output_index(node: exp.Expr, columns: Columns) -> int | None:
    if not isinstance(node, exp.Column) or node.args.get("table"):
        return None
    hits = [i for i, (name, _) in enumerate(columns) if name.lower() == node.name.lower()]
    return hits[0] if hits else None
