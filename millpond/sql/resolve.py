"""Names become columns: one walk over a query that finds every input, column and function.

The result is a tree of its own in which every column is qualified and typed, every `*` is expanded, every
output column has an alias and every input has a view name of its own (`__t0`, `__t1`, …), so that an
evaluator only has to register rows under those names. Mistakes are collected, not raised one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.errors import (
    Error,
    NotSupported,
    Place,
    SqlError,
    TypeMismatch,
    UnknownName,
    did_you_mean,
)
from millpond.sql.autoname import auto_name
from millpond.sql.catalog import Catalog, Describe, Relation
from millpond.sql.functions import known_functions
from millpond.sql.grouping import check_grouping, contains_aggregate
from millpond.sql.scope import Item, Scope, Visible
from millpond.sql.spans import own_span, span_of
from millpond.sql.typing import type_of, widest
from millpond.types import Column, Schema, type_name

Columns = list[tuple[str, pa.DataType | None]]
Locate = Callable[[int, int], Place]


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a query: the view name that stands for it in the tree, its alias, what it is."""

    view: str
    alias: str
    relation: Relation


@dataclass(frozen=True, slots=True)
class Resolved:
    """A query whose names are all known."""

    expression: exp.Expr
    schema: Schema
    inputs: tuple[Input, ...]

    @property
    def running(self) -> bool:
        return any(i.relation.running for i in self.inputs)

    def input(self, view: str) -> Input | None:
        return next((i for i in self.inputs if i.view == view), None)


class Resolver:
    """Resolves the queries of one text against a catalog; ``errors`` grows as mistakes are found."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        describe: Describe | None = None,
        locate: Locate | None = None,
        functions: Iterable[str] = (),
    ):
        self.catalog = catalog
        self.describe = describe
        self.locate = locate
        self.functions = known_functions() | {f.lower() for f in functions}
        self.errors: list[SqlError | Error] = []
        self.inputs: list[Input] = []

    def resolve(self, query: exp.Expr) -> Resolved:
        """The query with its names resolved. Look at ``errors`` before using it."""
        before = len(self.inputs)
        tree, columns = self._query(query.copy(), None)
        tree = _unique_outputs(tree, columns)
        schema = Schema(tuple(Column(name, dtype) for name, dtype in columns))
        return Resolved(tree, schema, tuple(self.inputs[before:]))

    def condition(self, node: exp.Expr, items: Iterable[Item]) -> exp.Expr:
        """An expression over the given inputs, resolved."""
        return self._expr(node.copy(), Scope(None, list(items)))

    def place(self, node: exp.Expr, *, own: bool = False) -> Place | None:
        span = own_span(node) if own else span_of(node)
        return self.locate(*span) if span and self.locate else None

    # queries

    def _query(self, node: exp.Expr, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        if isinstance(node, exp.Subquery):
            scope = Scope(outer)
            self._with(node, scope)
            inner, columns = self._query(node.this, scope if scope.ctes else outer)
            node.set("this", inner)
            self._order_by(node, _outputs_scope(outer, columns), columns, [])
            self._limits(node, scope)
            return node, columns
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, outer)
        if isinstance(node, exp.Values):
            return self._values(node, outer)
        if isinstance(node, exp.Select):
            return self._select(node, outer)
        self.errors.append(NotSupported(f"{type(node).__name__} is not a query", place=self.place(node)))
        return node, []

    def _with(self, node: exp.Expr, scope: Scope) -> None:
        with_ = node.args.get("with_")
        if with_ is None:
            return
        if with_.args.get("recursive"):
            self.errors.append(NotSupported("WITH RECURSIVE is not supported", place=self.place(with_)))
        for cte in with_.expressions:
            inner, columns = self._query(cte.this, scope)
            cte.set("this", inner)
            columns = self._renamed(cte, columns)
            scope.ctes[cte.alias.lower()] = columns

    def _renamed(self, node: exp.Expr, columns: Columns) -> Columns:
        """The columns under the names of an alias ``q(a, b)``."""
        alias = node.args.get("alias")
        if not isinstance(alias, exp.TableAlias) or not alias.args.get("columns"):
            return columns
        names = alias.args["columns"]
        if len(names) != len(columns):
            self.errors.append(
                TypeMismatch(
                    f'"{alias.name}" names {len(names)} columns, but the query gives {len(columns)}',
                    place=self.place(alias),
                )
            )
        return [(n.name, dtype) for n, (_, dtype) in zip(names, columns, strict=False)]

    def _set_operation(self, node: exp.SetOperation, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        scope = Scope(outer)
        self._with(node, scope)
        left, left_columns = self._query(node.left, scope)
        right, right_columns = self._query(node.right, scope)
        node.set("this", left)
        node.set("expression", right)
        name = type(node).__name__.upper()
        if node.args.get("by_name"):
            self.errors.append(NotSupported(f"{name} BY NAME is not supported", place=self.place(node)))
        if len(left_columns) != len(right_columns):
            self.errors.append(
                TypeMismatch(
                    f"{name}: {len(left_columns)} columns on the left, {len(right_columns)} on the right",
                    place=self.place(right),
                )
            )
        columns: Columns = []
        for (out, a), (_, b) in zip(left_columns, right_columns, strict=False):
            both = widest([a, b]) if a is not None and b is not None else None
            if a is not None and b is not None and both is None:
                self.errors.append(
                    TypeMismatch(
                        f'{name}: column "{out}" is {type_name(a)} on the left, {type_name(b)} on the right',
                        hint="CAST one of them",
                        place=self.place(right),
                    )
                )
            columns.append((out, both))
        self._order_by(node, _outputs_scope(outer, columns), columns, [])
        self._limits(node, scope)
        return node, columns

    def _values(self, node: exp.Values, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        scope = Scope(outer)
        rows = [r if isinstance(r, exp.Tuple) else exp.Tuple(expressions=[r]) for r in node.expressions]
        node.set("expressions", [self._expr(r, scope) for r in rows])
        width = len(node.expressions[0].expressions) if node.expressions else 0
        columns: Columns = []
        for i in range(width):
            types = [self._type(r.expressions[i]) for r in node.expressions if len(r.expressions) == width]
            columns.append((f"col{i + 1}", widest(types) if None not in types else None))
        return node, self._renamed(node, columns)

    def _select(self, node: exp.Select, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        scope = Scope(outer)
        self._with(node, scope)
        self._from(node, scope)
        where = node.args.get("where")
        if where is not None:
            where.set("this", self._condition(where.this, scope))
            if contains_aggregate(where.this):
                self.errors.append(
                    SqlError(
                        "an aggregate cannot stand in WHERE",
                        hint="use HAVING",
                        place=self.place(where.this),
                    )
                )
        outputs = self._projections(node, scope)
        self._group_by(node, scope, outputs)
        for key in ("having", "qualify"):
            clause = node.args.get(key)
            if clause is not None:
                clause.set("this", self._condition(clause.this, scope, outputs))
        for window in node.args.get("windows") or ():
            self._children(window, scope)
        columns = [(o.alias, self._type(o.this)) for o in outputs]
        self._order_by(node, scope, columns, outputs)
        self._limits(node, scope)
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            self.errors.append(NotSupported("DISTINCT ON is not supported", place=self.place(distinct)))
        if not self.errors:
            self.errors.extend(check_grouping(node, self.place))
        return node, columns

    # FROM

    def _from(self, node: exp.Select, scope: Scope) -> None:
        from_ = node.args.get("from_")
        if from_ is None:
            return
        self._add(from_, from_.this, scope)
        for join in node.args.get("joins") or ():
            left = list(scope.items)
            self._add(join, join.this, scope)
            self._join_condition(join, left, scope)
        for lateral in node.args.get("laterals") or ():
            self._lateral(lateral, scope)

    def _add(self, holder: exp.Expr, node: exp.Expr, scope: Scope) -> None:
        """One item of FROM: a name, a source, a query in parentheses, VALUES."""
        columns: Columns
        if isinstance(node, exp.Table):
            alias = node.alias or node.name
            tree, columns = self._table(node, alias, scope)
            if tree is not node:
                holder.set("this", tree)
            node = tree
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
            self._add(node, node.this, scope)
            return
        elif isinstance(node, exp.Subquery | exp.Values):
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(f"__q{len(scope.items)}")))
            alias = node.alias
            if isinstance(node, exp.Values):
                _, columns = self._values(node, scope)
            else:
                inner, columns = self._query(node.this, Scope(scope.outer, [], {}, _all_ctes(scope)))
                node.set("this", inner)
                columns = self._renamed(node, columns)
        else:
            self.errors.append(
                NotSupported(f"{type(node).__name__} in FROM is not supported", place=self.place(node))
            )
            return
        if scope.item(alias):
            self.errors.append(
                SqlError(
                    f'"{alias}" stands twice in FROM',
                    hint="give one of them another alias",
                    place=self.place(node),
                )
            )
        if isinstance(node, exp.Subquery) and node.args.get("joins"):
            self.errors.append(NotSupported("a join in parentheses is not supported", place=self.place(node)))
        scope.items.append(Item(alias, [Visible(alias, name, dtype) for name, dtype in columns]))

    def _table(self, node: exp.Table, alias: str, scope: Scope) -> tuple[exp.Expr, Columns]:
        is_uri = bool(node.meta.get("uri"))
        if not is_uri:
            cte = None if node.args.get("db") else scope.cte(node.name)
            if cte is not None:
                return node, self._renamed(node, cte)
        relation = self._relation(node, alias, is_uri)
        if relation is None:
            return node, []
        if relation.kind == "view" and relation.query is not None:
            inner, columns = self._query(relation.query.expression.copy(), None)
            columns = [(c.name, t) for c, (_, t) in zip(relation.schema, columns, strict=True)]
            names = [exp.to_identifier(n, quoted=True) for n, _ in columns]
            outer_alias = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=names)
            return exp.Subquery(this=inner, alias=outer_alias), columns
        view = f"__t{len(self.inputs)}"
        self.inputs.append(Input(view, alias, relation))
        fresh = exp.Table(
            this=exp.to_identifier(view), alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
        )
        columns = [(c.name, c.type) for c in relation.schema]
        declared = node.args.get("alias")
        if isinstance(declared, exp.TableAlias) and declared.args.get("columns"):
            columns = self._renamed(node, columns)
            fresh.args["alias"].set("columns", [exp.to_identifier(n, quoted=True) for n, _ in columns])
        span = span_of(node)
        if span:
            fresh.meta.update(start=span[0], end=span[1] - 1)
        return fresh, columns

    def _relation(self, node: exp.Table, alias: str, is_uri: bool) -> Relation | None:
        place = self.place(node.this, own=True) if node.this else None
        if not is_uri and isinstance(node.this, exp.Func):
            self.errors.append(
                NotSupported(f"{node.this.sql()} in FROM is not supported", place=self.place(node))
            )
            return None
        if is_uri:
            if self.describe is None:
                self.errors.append(NotSupported("a source cannot be read here", place=place))
                return None
            try:
                return self.describe(node.name, alias)
            except Error as error:
                error.place = error.place or place
                self.errors.append(error)
                return None
        relation = self.catalog.find(node.name) if not node.args.get("db") else None
        if relation is None:
            name = ".".join(p.name for p in node.parts)
            self.errors.append(self.catalog.unknown(name, place=place))
        return relation

    def _join_condition(self, join: exp.Join, left: list[Item], scope: Scope) -> None:
        right = scope.items[-1] if len(scope.items) > len(left) else None
        using = [u.name for u in join.args.get("using") or ()]
        if (join.args.get("method") or "").upper() == "NATURAL" and right:
            join.set("method", None)
            using = [c.name for c in right.columns if Scope(None, left).matches(c.name)]
        if using and right:
            join.set("using", None)
            join.set("on", self._using(join, using, left, right, scope))
        elif join.args.get("on") is not None:
            join.set("on", self._condition(join.args["on"], scope))

    def _using(
        self, join: exp.Join, names: list[str], left: list[Item], right: Item, scope: Scope
    ) -> exp.Expr:
        conditions: list[exp.Expr] = []
        for name in names:
            there = Scope(None, left).matches(name)
            here = [c for c in right.columns if c.name.lower() == name.lower()]
            known = scope.merged.get(name.lower())
            if not here or not (there or known):
                self.errors.append(
                    UnknownName(
                        f'column "{name}" of USING is not on both sides of the join', place=self.place(join)
                    )
                )
                continue
            a = known.copy() if known is not None else _column(there[0])
            b = _column(here[0])
            conditions.append(exp.EQ(this=a.copy(), expression=b.copy()))
            side = (join.side or "").upper()
            if side == "RIGHT":
                scope.merged[name.lower()] = b
            elif side == "FULL":
                both = exp.Coalesce(this=a, expressions=[b])
                scope.merged[name.lower()] = both
            else:
                scope.merged[name.lower()] = a
        return exp.and_(*conditions, copy=False) if conditions else exp.true()

    def _lateral(self, node: exp.Lateral, scope: Scope) -> None:
        node.set("this", self._expr(node.this, scope))
        alias = node.args.get("alias")
        names = [c.name for c in (alias.args.get("columns") or ())] if alias else []
        inner = self._type(node.this.this) if isinstance(node.this, exp.Explode | exp.Posexplode) else None
        types: list[pa.DataType | None] = [None] * len(names)
        if inner is not None and pa.types.is_list(inner) and names:
            types[-1] = inner.value_type
        scope.items.append(
            Item(node.alias, [Visible(node.alias, n, t) for n, t in zip(names, types, strict=True)])
        )

    # SELECT list

    def _projections(self, node: exp.Select, scope: Scope) -> list[exp.Alias]:
        outputs: list[exp.Alias] = []
        for projection in node.expressions:
            star = _star_of(projection)
            if star is not None:
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
        everything = [c for i in items for c in i.columns]
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
            value = merged[key].copy() if key in merged else _column(column)
            twice = counts[key] > 1 and key not in merged
            name = f"{column.alias}_{column.name}" if twice else column.name
            outputs.append(exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True)))
        return outputs

    # GROUP BY, ORDER BY, LIMIT

    def _group_by(self, node: exp.Select, scope: Scope, outputs: list[exp.Alias]) -> None:
        group = node.args.get("group")
        if group is None:
            return
        if group.args.get("all"):
            group.set("all", None)
            group.set("expressions", [o.this.copy() for o in outputs if not contains_aggregate(o.this)])
            return
        for kind in ("rollup", "cube", "grouping_sets"):
            for part in group.args.get(kind) or ():
                if isinstance(part, exp.Expr):
                    self._children(part, scope)
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
                    ordered.set("this", self._expr(value, scope, outputs))

    def _limits(self, node: exp.Expr, scope: Scope) -> None:
        for key in ("limit", "offset"):
            clause = node.args.get(key)
            if clause is not None:
                self._children(clause, scope)

    # expressions

    def _children(self, node: exp.Expr, scope: Scope, outputs: list[exp.Alias] | None = None) -> exp.Expr:
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(key, self._expr(value, scope, outputs))
            elif isinstance(value, list) and any(isinstance(v, exp.Expr) for v in value):
                node.set(
                    key,
                    [self._expr(v, scope, outputs) if isinstance(v, exp.Expr) else v for v in value],
                )
        return node

    def _expr(self, node: exp.Expr, scope: Scope, outputs: list[exp.Alias] | None = None) -> exp.Expr:
        """An expression with its columns, functions and subqueries resolved.

        ``outputs`` are the columns to the left of it in the SELECT list, which it may name.
        """
        if isinstance(node, exp.Column):
            return self._column(node, scope, outputs)
        if isinstance(node, exp.Identifier | exp.DataType | exp.Literal):
            return node
        if isinstance(node, exp.Subquery | exp.Query):
            tree, columns = self._query(node, scope)
            tree.meta["dtype"] = columns[0][1] if len(columns) == 1 else None
            if len(columns) != 1 and not isinstance(node.parent, exp.Exists):
                self.errors.append(
                    SqlError(
                        f"a subquery used as a value gives one column, this one gives {len(columns)}",
                        place=self.place(node),
                    )
                )
            return tree
        if isinstance(node, exp.Func):
            self._function(node)
        if type(node).__name__ == "Path":
            self.errors.append(
                NotSupported("a path with a wildcard is not supported yet", place=self.place(node))
            )
            return node
        return self._children(node, scope, outputs)

    def _condition(self, node: exp.Expr, scope: Scope, outputs: list[exp.Alias] | None = None) -> exp.Expr:
        condition = self._expr(node, scope, outputs)
        dtype = self._type(condition)
        if dtype is not None and not (pa.types.is_boolean(dtype) or pa.types.is_null(dtype)):
            self.errors.append(
                TypeMismatch(
                    f"a condition is BOOLEAN, this is {type_name(dtype)}", place=self.place(condition)
                )
            )
        return condition

    def _function(self, node: exp.Func) -> None:
        span = node._meta and "start" in node._meta
        if isinstance(node, exp.Anonymous):
            name = node.name
        elif span and self.locate:
            place = self.locate(node._meta["start"], node._meta["end"] + 1)  # type: ignore[index]
            name = place.text[place.column - 1 : place.column - 1 + place.length]
            if not name.replace("_", "").isalnum():
                return
        else:
            return
        if name.lower() not in self.functions:
            self.errors.append(
                UnknownName(
                    f'function "{name}" is not known',
                    hint=did_you_mean(name, self.functions, "SHOW FUNCTIONS lists them"),
                    place=self.place(node, own=True),
                )
            )
            node.meta["dtype"] = None

    def _column(self, node: exp.Column, scope: Scope, outputs: list[exp.Alias] | None) -> exp.Expr:
        parts = [p for p in node.parts if isinstance(p, exp.Identifier)]
        if len(parts) != len(node.parts) or isinstance(node.this, exp.Star):
            self.errors.append(
                NotSupported("a path with a wildcard is not supported yet", place=self.place(node))
            )
            return node
        names = [p.name for p in parts]
        for level in scope.around():
            found = self._in_scope(names, level, node)
            if found is not None:
                value, rest = found
                return self._fields(value, rest, node)
            if level is scope and outputs and len(names) == 1:
                alias = next((o for o in outputs if o.alias.lower() == names[0].lower()), None)
                if alias is not None:
                    return exp.Paren(this=alias.this.copy())
        self._unknown_column(node, names, scope)
        node.meta["dtype"] = None
        return node

    def _in_scope(
        self, names: list[str], scope: Scope, node: exp.Column
    ) -> tuple[exp.Expr, list[str]] | None:
        if len(names) > 1:
            item = scope.item(names[0])
            if item is not None:
                column = next((c for c in item.columns if c.name.lower() == names[1].lower()), None)
                if column is not None:
                    return _column(column, node), names[2:]
        if names[0].lower() in scope.merged:
            return scope.merged[names[0].lower()].copy(), names[1:]
        matches = scope.matches(names[0])
        if len(matches) > 1 and not (len(names) > 1 and scope.item(names[0])):
            owners = " and ".join(f'"{m.alias}"' for m in matches)
            self.errors.append(
                UnknownName(
                    f'column "{names[0]}" is ambiguous: it is in {owners}',
                    hint=f"write {matches[0].alias}.{names[0]}",
                    place=self.place(node),
                )
            )
        if matches and not (len(names) > 1 and scope.item(names[0])):
            return _column(matches[0], node), names[1:]
        return None

    def _fields(self, value: exp.Expr, fields: list[str], node: exp.Column) -> exp.Expr:
        """``value.a.b``: fields of a struct."""
        for name in fields:
            dtype = self._type(value)
            if dtype is not None and pa.types.is_struct(dtype):
                known = [f.name for f in dtype]
                spelled = next((k for k in known if k.lower() == name.lower()), None)
                if spelled is None:
                    self.errors.append(
                        UnknownName(
                            f'field "{name}" is not in "{auto_name(value)}"',
                            hint=did_you_mean(name, known, f"its fields: {', '.join(known)}"),
                            place=self.place(node),
                        )
                    )
                name = spelled or name
            elif dtype is not None and not pa.types.is_map(dtype):
                self.errors.append(
                    TypeMismatch(
                        f'"{auto_name(value)}" is {type_name(dtype)} and has no field "{name}"',
                        place=self.place(node),
                    )
                )
            value = exp.Dot(this=value, expression=exp.to_identifier(name, quoted=True))
        return value

    def _unknown_column(self, node: exp.Column, names: list[str], scope: Scope) -> None:
        if any(isinstance(e, UnknownName | NotSupported) or not isinstance(e, SqlError) for e in self.errors):
            # An input that is not known takes its columns with it: one mistake, one message.
            if not all(i.columns for s in scope.around() for i in s.items) or not scope.items:
                return
        if len(names) > 1 and (item := self._item(names[0], scope)) is not None:
            if not item.columns:
                return
            self.errors.append(
                UnknownName(
                    f'column "{names[1]}" is not in "{item.alias}"',
                    hint=did_you_mean(
                        names[1],
                        [c.name for c in item.columns],
                        f"its columns: {', '.join(c.name for c in item.columns)}",
                    ),
                    place=self.place(node),
                )
            )
            return
        if len(names) > 1:
            aliases = [i.alias for s in scope.around() for i in s.items]
            stream = self.catalog.find(names[0])
            if stream is not None and stream.kind == "stream":
                self.errors.append(
                    UnknownName(
                        f'stream "{stream.name}" is named here, but is not an input of the statement',
                        hint=f"a statement that follows a stream reads it: UPDATE … SET … FROM {stream.name} WHERE …",
                        place=self.place(node),
                    )
                )
                return
            self.errors.append(
                UnknownName(
                    f'"{names[0]}" is not an input of this query',
                    hint=did_you_mean(names[0], aliases, f"its inputs: {', '.join(aliases) or 'none'}"),
                    place=self.place(node),
                )
            )
            return
        inputs = [i.alias for i in scope.items]
        where = f'"{inputs[0]}"' if len(inputs) == 1 else "this query's inputs"
        known = scope.names()
        self.errors.append(
            UnknownName(
                f'column "{names[0]}" is not in {where}' if inputs else f'column "{names[0]}" is not known',
                hint=did_you_mean(
                    names[0],
                    known,
                    f"columns: {', '.join(dict.fromkeys(known))}" if known else "there is no FROM",
                ),
                place=self.place(node),
            )
        )

    def _item(self, alias: str, scope: Scope) -> Item | None:
        return next((i for s in scope.around() if (i := s.item(alias)) is not None), None)

    def _type(self, node: exp.Expr) -> pa.DataType | None:
        try:
            return type_of(node)
        except TypeMismatch as error:
            if not any(e.message == error.message for e in self.errors):
                error.place = error.place or self.place(node)
                self.errors.append(error)
            node.meta["dtype"] = None
            return None


def _outputs_scope(outer: Scope | None, columns: Columns) -> Scope:
    """Where ORDER BY of a whole query finds names: its columns."""
    return Scope(outer, [Item("", [Visible("", n, t) for n, t in columns])])


def _column(column: Visible, like: exp.Column | None = None) -> exp.Column:
    made = exp.Column(
        this=exp.to_identifier(column.name, quoted=True),
        table=exp.to_identifier(column.alias, quoted=True) if column.alias else None,
    )
    made.meta["dtype"] = column.dtype
    span = span_of(like) if like is not None else None
    if span:
        made.meta.update(start=span[0], end=span[1] - 1)
    return made


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


def _all_ctes(scope: Scope) -> dict[str, Columns]:
    found: dict[str, Columns] = {}
    for level in reversed(list(scope.around())):
        found.update(level.ctes)
    return found


def _unique_outputs(tree: exp.Expr, columns: Columns) -> exp.Expr:
    """Output columns of the outermost SELECT under names that differ, so that any evaluator can hold them."""
    lowered = [n.lower() for n, _ in columns]
    if len(set(lowered)) == len(lowered):
        return tree
    select = tree
    while not isinstance(select, exp.Select):
        if not isinstance(select, exp.SetOperation | exp.Subquery):
            return tree
        select = select.this
    taken: set[str] = set()
    for projection in select.expressions:
        name, n = projection.alias, 0
        while name.lower() in taken or (n == 0 and lowered.count(name.lower()) > 1 and name.lower() in taken):
            n += 1
            name = f"{projection.alias}_{n}"
        taken.add(name.lower())
        projection.set("alias", exp.to_identifier(name, quoted=True))
    return tree
