"""Resolves GROUP BY, HAVING, ORDER BY and LIMIT: the clauses that may name the columns of the SELECT list."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import NotSupported, SqlError, UnknownName
from millpond.sql.grouping import contains_aggregate, contains_window, grouping_keys, keys_of
from millpond.sql.resolve.context import Columns, Context
from millpond.sql.resolve.expressions import Expressions
from millpond.sql.resolve.inputs import column_of
from millpond.sql.resolve.names import Aliases
from millpond.sql.scope import Scope, Visible

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple, exp.Paren)


_OF_INPUT = -1
"""The number of a column that is not in the result."""


class Clauses:
    """Resolves the clauses after the list of a SELECT."""

    def __init__(self, context: Context, expressions: Expressions):
        self._context = context
        self._expressions = expressions

    def group_by(self, node: exp.Select, scope: Scope, outputs: list[exp.Alias]) -> None:
        group = node.args.get("group")
        if group is None:
            return
        keys: list[exp.Expr] = list(group.expressions)
        if group.args.get("all"):
            group.set("all", None)
            if scope.matches("all") or Aliases(outputs).find("all"):
                keys = [exp.column("all")]
            else:
                _group_by_all(node, group, outputs)
                return
        for kind in ("rollup", "cube"):
            if group.args.get(kind):
                # GROUP BY a, b WITH ROLLUP is GROUP BY ROLLUP (a, b).
                keys = [(exp.Rollup if kind == "rollup" else exp.Cube)(expressions=keys)]
                group.set(kind, None)
        if any(isinstance(key, exp.Tuple) and not key.expressions for key in keys):
            self._context.add(SqlError("GROUP BY () is not known", hint="leave it out"), group)
        for key in keys:
            self._no_empty_set(key)
        keys = [self._grouped_by(key, scope, outputs) for key in keys]
        for sets in group.args.get("grouping_sets") or ():
            # GROUP BY a, b GROUPING SETS (…): the sets contain the keys.
            made = self._grouped_by(sets, scope, outputs)
            inside = list(keys_of(made))
            if all(key in inside for key in keys):
                keys = [made]
                group.set("grouping_sets", None)
            else:
                group.set("grouping_sets", [made])
        group.set("expressions", keys)

    def _no_empty_set(self, key: exp.Expr) -> None:
        if isinstance(key, exp.Rollup | exp.Cube) and any(
            isinstance(e, exp.Tuple) and not e.expressions for e in key.expressions
        ):
            self._context.add(
                SqlError(f"() cannot stand in {type(key).__name__.upper()}", hint="leave it out"), key
            )

    def _grouped_by(self, key: exp.Expr, scope: Scope, outputs: list[exp.Alias]) -> exp.Expr:
        if isinstance(key, _SETS) and not isinstance(key, exp.Paren):
            key.set("expressions", [self._grouped_by(k, scope, outputs) for k in key.expressions])
            return key
        if isinstance(key, exp.Paren) and isinstance(key.this, (*_SETS, exp.Literal)):
            key.set("this", self._grouped_by(key.this, scope, outputs))
            return key
        index = _ordinal(key)
        if index is not None:
            if not 1 <= index <= len(outputs):
                self._context.add(SqlError(f"GROUP BY {index} is not a column of the query"), key)
                return key
            if any(o.meta.get("star") for o in outputs):
                self._context.add(
                    SqlError(f"GROUP BY {index} does not go with * in SELECT", hint="name the columns"), key
                )
            made: exp.Expr = outputs[index - 1].this.copy()
        else:
            made = self._expressions.resolve(key, scope, Aliases(outputs, several=True))
        made = _bare(made)
        for found, what in ((contains_aggregate(made), "an aggregate"), (contains_window(made), "OVER")):
            if found:
                self._context.add(SqlError(f"{what} cannot stand in GROUP BY"), key)
        return _no_position(made)

    def having(self, node: exp.Select, scope: Scope, outputs: list[exp.Alias]) -> None:
        keys = tuple(grouping_keys(node))
        for key in ("having", "qualify"):
            clause = node.args.get(key)
            if clause is None:
                continue
            names = Aliases(outputs, keys if key == "having" else None)
            clause.set("this", self._expressions.condition(clause.this, scope, names, cast=True))
            if key == "having" and contains_window(clause.this):
                self._context.add(SqlError("OVER cannot stand in HAVING", hint="use QUALIFY"), clause.this)
            if key == "qualify" and not any(contains_window(e) for e in (clause.this, *outputs)):
                self._context.add(
                    SqlError("QUALIFY is for functions with OVER, and there is none", hint="use WHERE"),
                    clause.this,
                )

    def order_by(self, node: exp.Expr, scope: Scope, columns: Columns, outputs: list[exp.Alias]) -> exp.Expr:
        """Returns the query with its order resolved. If a sort key is not a column of a query whose rows are not those
        of its inputs, an outer query orders it.
        """
        below = False
        apart = node.args.get("distinct") is not None or not isinstance(node, exp.Select)
        # Only the columns of the result can be sort keys.
        inner = (
            Scope(scope.outer, [Visible("", n, column_of("", n, t)) for n, t in columns]) if apart else scope
        )
        for key in ("order", "sort"):
            order = node.args.get(key)
            if order is None:
                continue
            self._order_by_all(order, columns)
            for ordered in order.expressions:
                value = ordered.this
                index = self._output_index(value, columns, outputs, inner)
                number = _ordinal(value)
                if index == _OF_INPUT:
                    ordered.set("this", self._expressions.resolve(value, inner))
                elif index is not None:
                    ordered.set("this", exp.Literal.number(index + 1))
                elif number is not None:
                    if not 1 <= number <= len(columns):
                        self._context.add(SqlError(f"ORDER BY {number} is not a column of the query"), value)
                else:
                    below |= self._ordered(ordered, value, scope, inner, outputs, apart=apart)
        return _from_outside(node, columns, self._context.unique("__o")) if below else node

    def _output_index(
        self, node: exp.Expr, columns: Columns, outputs: list[exp.Alias], scope: Scope
    ) -> int | None:
        """Returns which column of the result a name means: in case of doubt, a column of the inputs."""
        if not isinstance(node, exp.Column) or node.args.get("table"):
            return None
        hits = [i for i, (name, _) in enumerate(columns) if name.lower() == node.name.lower()]
        same = all(
            isinstance(o.this, exp.Column) and o.this == outputs[hits[0]].this for o in _some(outputs, hits)
        )
        if len(hits) > 1 and not same and outputs and len(scope.matches(node.name)) == 1:
            return _OF_INPUT
        if len(hits) > 1 and not same:
            self._context.add(
                UnknownName(
                    f'column "{node.name}" is ambiguous: it stands several times in SELECT',
                    hint="give each another name with AS",
                ),
                node,
            )
        return hits[0] if hits else None

    def _ordered(
        self,
        ordered: exp.Expr,
        value: exp.Expr,
        scope: Scope,
        inner: Scope,
        outputs: list[exp.Alias],
        *,
        apart: bool,
    ) -> bool:
        """Resolves an expression of ORDER BY. Returns whether it needs the result of the query."""
        before = len(self._context.errors)
        resolved = (
            self._expressions.resolve(value.copy(), scope, Aliases(outputs, first=True)) if outputs else None
        )
        number = next((i for i, o in enumerate(outputs, 1) if o.this == resolved), None)
        if resolved is not None and number is not None and len(self._context.errors) == before:
            ordered.set("this", exp.Literal.number(number))
            return False
        if not apart and resolved is not None:
            self._context.type_of(resolved)
            if contains_window(resolved):
                self._context.add(
                    SqlError(
                        "OVER cannot stand in ORDER BY", hint="give it a name in SELECT, and order by that"
                    ),
                    value,
                )
            ordered.set("this", resolved)
            return False
        del self._context.errors[before:]
        made = self._expressions.resolve(value, inner)
        self._context.type_of(made)
        ordered.set("this", made)
        if outputs and len(self._context.errors) > before:
            del self._context.errors[before:]
            self._context.add(
                SqlError(
                    "ORDER BY of SELECT DISTINCT names what is not in its list: rows that become one may differ in it",
                    hint="put it into the list, or use GROUP BY with an aggregate",
                ),
                value,
            )
        return True

    def _order_by_all(self, order: exp.Expr, columns: Columns) -> None:
        """Expands ORDER BY ALL: by all columns, from left to right."""
        only = order.expressions[0] if len(order.expressions) == 1 else None
        word = only.this if only is not None else None
        if not isinstance(word, exp.Var) or word.name.upper() != "ALL" or only is None:
            return
        made = []
        for i in range(len(columns)):
            copy = only.copy()
            copy.set("this", exp.Literal.number(i + 1))
            made.append(copy)
        order.set("expressions", made)

    def limits(self, node: exp.Expr, scope: Scope) -> None:
        for key in ("limit", "offset"):
            clause = node.args.get(key)
            if clause is None:
                continue
            for word, given in (clause.args.get("limit_options") or exp.LimitOptions()).args.items():
                if given:
                    shown = word.replace("_", " ").upper()
                    self._context.add(NotSupported(f"{shown} after LIMIT is not supported"), clause)
            self._expressions.children(clause, Scope(None))
            value = clause.expression
            if isinstance(value, exp.Neg | exp.Null | exp.Column) or (
                isinstance(value, exp.Literal) and not str(value.this).isdigit()
            ):
                self._context.add(SqlError(f"{key.upper()} takes a whole number from 0 on"), clause)


def _group_by_all(node: exp.Select, group: exp.Expr, outputs: list[exp.Alias]) -> None:
    """Expands GROUP BY ALL: by every column of the list that is not an aggregate; if there is none, all rows are one
    group.
    """
    keys = [_no_position(_bare(o.this).copy()) for o in outputs if not contains_aggregate(o.this)]
    group.set("expressions", keys)
    if not keys:
        node.set("group", None)


def _ordinal(node: exp.Expr) -> int | None:
    """Returns the number of a column of the SELECT list."""
    if isinstance(node, exp.Neg) and (found := _ordinal(node.this)) is not None:
        return -found
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit():
        return int(node.this)
    return None


def _bare(node: exp.Expr) -> exp.Expr:
    """Returns what is in parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _no_position(key: exp.Expr) -> exp.Expr:
    """Returns a key of GROUP BY that no evaluator reads as the number of a column."""
    return exp.cast(key, "INT" if abs(number) < 2**31 else "BIGINT") if (number := _ordinal(key)) else key


def _some(outputs: list[exp.Alias], numbers: list[int]) -> list[exp.Alias]:
    return [outputs[i] for i in numbers] if outputs else []


def _from_outside(node: exp.Expr, columns: Columns, alias: str) -> exp.Select:
    """Returns ``SELECT … FROM (query) ORDER BY …``, with the order and limits that the query had."""
    names = [f"c{i}" for i in range(len(columns))]
    outputs = [
        exp.alias_(column_of(alias, n, dtype), name, quoted=True)
        for n, (name, dtype) in zip(names, columns, strict=True)
    ]
    kept = {key: node.args.get(key) for key in ("order", "sort", "limit", "offset")}
    for key in kept:
        node.set(key, None)
    by_name = {name.lower(): n for n, (name, _) in reversed(list(zip(names, columns, strict=True)))}
    for key in ("order", "sort"):
        clause = kept[key]
        for column in clause.find_all(exp.Column) if clause is not None else ():
            if not column.table and column.name.lower() in by_name:
                column.set("this", exp.to_identifier(by_name[column.name.lower()], quoted=True))
                column.set("table", exp.to_identifier(alias, quoted=True))
    named = exp.TableAlias(
        this=exp.to_identifier(alias, quoted=True),
        columns=[exp.to_identifier(n, quoted=True) for n in names],
    )
    made = exp.Select(expressions=outputs, from_=exp.From(this=exp.Subquery(this=node, alias=named)))
    for key, value in kept.items():
        made.set(key, value)
    return made
