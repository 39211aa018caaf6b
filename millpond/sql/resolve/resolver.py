"""Names become columns: one walk over a query that finds every input, column and function.

The result is a tree of its own in which every column is qualified and typed, every `*` is expanded, every
output column has an alias and every input has a view name of its own (`__t0`, `__t1`, …), so that an
evaluator only has to register rows under those names. Mistakes are collected, not raised one by one.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import NotSupported, SqlError, TypeMismatch
from millpond.sql.grouping import (
    check_grouping,
    contains_aggregate,
    contains_window,
    drop_unused_keys,
)
from millpond.sql.nodes import StreamWindow, copied
from millpond.sql.resolve.clauses import Clauses
from millpond.sql.resolve.expressions import Columns
from millpond.sql.resolve.model import Resolved
from millpond.sql.resolve.windows import name_windows, named_windows
from millpond.sql.samekeys import spell_keys
from millpond.sql.scope import Cte, Scope
from millpond.sql.typing import widest
from millpond.types import Column, Schema, type_name

_SELECT = frozenset(
    "with_ expressions from_ joins laterals where group having qualify windows distinct order sort limit offset".split()
)


_RECURSIVE = frozenset({"this", "expression", "distinct"})


COLUMNS = 10_000
"""Columns of a SELECT, and fields of one of them."""


class Resolver(Clauses):
    """Resolves the queries of one text against a catalog; ``errors`` grows as mistakes are found."""

    def resolve(self, query: exp.Expr) -> Resolved:
        """The query with its names resolved. Look at ``errors`` before using it."""
        before = len(self.inputs)
        self._aliases = set()
        tree, columns = self._query(copied(query), None)
        tree = _unique_outputs(tree, columns)
        schema = Schema(tuple(Column(name, dtype) for name, dtype in columns))
        return Resolved(tree, schema, tuple(self.inputs[before:]))

    def value(self, node: exp.Expr) -> exp.Expr:
        """An expression that reads no input, resolved."""
        return self._expr(copied(node), Scope())

    def _query(self, node: exp.Expr, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        if isinstance(node, exp.Subquery):
            scope = Scope(outer)
            self._with(node, scope)
            inner, columns = self._query(node.this, scope if scope.ctes else outer)
            node.set("this", inner)
            self._limits(node, scope)
            return self._order_by(node, Scope(outer), columns, []), columns
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
        for cte in with_.expressions:
            name, alias = self._unique(cte.alias), cte.args["alias"]
            if with_.args.get("recursive") and _reads(cte.this, cte.alias):
                inner, columns = self._recursive(cte, name, scope)
            else:
                inner, columns = self._query(cte.this, scope)
                columns = self._renamed(cte, columns)
            cte.set("this", inner)
            if cte.alias.lower() in scope.ctes:
                self.errors.append(
                    SqlError(
                        f'WITH has the name "{cte.alias}" twice', place=self.place(alias) or self.place(with_)
                    )
                )
            scope.ctes[cte.alias.lower()] = Cte(name, columns)
            alias.set("this", exp.to_identifier(name, quoted=True))

    def _recursive(self, cte: exp.CTE, name: str, scope: Scope) -> tuple[exp.Expr, Columns]:
        """A query of WITH RECURSIVE that reads itself: what it begins with says which columns it has."""
        union = cte.this
        if not isinstance(union, exp.Union) or union.args.get("distinct") or _reads(union.left, cte.alias):
            message = "a query that reads itself is a query that does not, UNION ALL one that does"
            self.errors.append(NotSupported(message, place=self.place(cte)))
            return union, []
        self._nothing_more(union, _RECURSIVE, "in a query that reads itself")
        left, columns = self._query(union.left, scope)
        columns = self._renamed(cte, columns)
        inside = Scope(scope.outer, ctes={**scope.ctes, cte.alias.lower(): Cte(name, columns)})
        right, others = self._query(union.right, inside)
        if len(columns) != len(others):
            message = f"UNION: {len(columns)} columns on the left, {len(others)} on the right"
            self.errors.append(TypeMismatch(message, place=self.place(union.right)))
        union.set("this", left)
        union.set("expression", right)
        return union, columns

    def _set_operation(self, node: exp.SetOperation, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        scope = Scope(outer)
        self._with(node, scope)
        left, left_columns = self._query(node.left, scope)
        right, right_columns = self._query(node.right, scope)
        node.set("this", left)
        node.set("expression", right)
        name = type(node).__name__.upper()
        if node.args.get("side") or node.args.get("kind"):
            self.errors.append(SqlError(f"no join word stands before {name}", place=self.place(node)))
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
        self._limits(node, scope)
        return self._order_by(node, Scope(outer), columns, []), columns

    def _select(self, node: exp.Select, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        scope = Scope(outer, select=True)
        self._nothing_more(node, _SELECT, "in SELECT")
        self._with(node, scope)
        self._from(node, scope)
        where = node.args.get("where")
        if where is not None:
            where.set("this", self._condition(where.this, scope))
            for found, what, hint in (
                (contains_aggregate(where.this), "an aggregate", "use HAVING"),
                (contains_window(where.this), "OVER", "use QUALIFY"),
            ):
                if found:
                    self.errors.append(
                        SqlError(f"{what} cannot stand in WHERE", hint=hint, place=self.place(where.this))
                    )
        known, errors = named_windows(node)
        for error, at in (*errors, *name_windows(node, known)):
            error.place = self.place(at) or self.place(node)
            self.errors.append(error)
        outputs = self._projections(node, scope)
        self._group_by(node, scope, outputs)
        self._having(node, scope, outputs)
        if any(isinstance(w, StreamWindow) for w in node.args.get("windows") or ()):
            self.errors.append(
                NotSupported(
                    "WINDOW in a subquery is not supported yet",
                    hint="name it with CREATE VIEW, or keep it with CREATE TABLE … AS",
                    place=self.place(node),
                )
            )
        node.set("windows", None)
        columns = [(o.alias, self._type(o.this)) for o in outputs]
        self._check_size(columns, node)
        self._limits(node, scope)
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            self.errors.append(NotSupported("DISTINCT ON is not supported", place=self.place(distinct)))
        made = self._order_by(node, scope, columns, outputs)
        if not self.errors:
            spell_keys(node, {i.view: i.relation.name for i in self.inputs})
            self.errors.extend(check_grouping(node, self.place))
            drop_unused_keys(node)
        return made, columns

    def _check_size(self, columns: Columns, node: exp.Select) -> None:
        """Raises for a SELECT with more columns, or parts of a column, than anybody reads: one that names those of
        another twice doubles them."""
        if len(columns) > COLUMNS:
            raise NotSupported(
                f"this SELECT has {len(columns):,} columns, and at most {COLUMNS:,} are made",
                hint="name the columns that are needed",
                place=self.place(node),
            )
        for name, dtype in columns:
            left, todo = COLUMNS, [] if dtype is None else [dtype]
            while todo:
                inner = todo.pop()
                left -= 1
                todo += [inner.field(i).type for i in range(inner.num_fields)]
                if left < len(todo):
                    raise NotSupported(
                        f'column "{name}" has more than {COLUMNS:,} fields, one inside of the other',
                        hint="name the fields that are needed",
                        place=self.place(node),
                    )


def _reads(query: exp.Expr, name: str) -> bool:
    """Whether a query names an input of WITH."""
    return any(t.name.lower() == name.lower() and not t.args.get("db") for t in query.find_all(exp.Table))


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
    numbers: dict[str, int] = {}
    for projection in select.expressions:
        name, n = projection.alias, numbers.get(projection.alias.lower(), 0)
        while name.lower() in taken:
            n += 1
            name = f"{projection.alias}_{n}"
        numbers[projection.alias.lower()] = n
        taken.add(name.lower())
        projection.set("alias", exp.to_identifier(name, quoted=True))
    return tree
