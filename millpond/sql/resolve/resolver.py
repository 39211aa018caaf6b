"""Resolves names to columns: one walk over a query that finds every input, column and function.

The result is a new tree in which every column is qualified and typed, every `*` is expanded, every output column has an
alias and every input has its own view name (`__t0`, `__t1`, …), so that an evaluator only has to register rows under
those names. Mistakes are collected, not raised one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond.errors import NotSupported, Place, SqlError, TypeMismatch
from millpond.sql.catalog import Catalog, Describe
from millpond.sql.grouping import (
    check_grouping,
    contains_aggregate,
    contains_window,
    drop_unused_keys,
)
from millpond.sql.grouping_keys import spell_keys
from millpond.sql.nodes import StreamWindow
from millpond.sql.notes import copied
from millpond.sql.resolve.calls import Locate
from millpond.sql.resolve.clauses import Clauses
from millpond.sql.resolve.context import Columns, Context
from millpond.sql.resolve.expressions import Expressions
from millpond.sql.resolve.inputs import Inputs
from millpond.sql.resolve.joins import Joins
from millpond.sql.resolve.model import Resolved
from millpond.sql.resolve.outputs import Outputs
from millpond.sql.resolve.windows import name_windows, named_windows
from millpond.sql.scope import Cte, Scope
from millpond.sql.typing import widest
from millpond.types import Column, Schema, type_name

if TYPE_CHECKING:
    from millpond.sql.userfunctions import UserFunction

_SELECT = frozenset(
    "with_ expressions from_ joins laterals where group having qualify windows distinct order sort limit offset".split()
)


_RECURSIVE = frozenset({"this", "expression", "distinct"})


COLUMNS = 10_000
"""The maximum number of columns of a SELECT, and of fields of one of them."""


class Resolver:
    """Resolves the queries of one text against a catalog, and adds mistakes to ``errors``."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        describe: Describe | None = None,
        locate: Locate | None = None,
        functions: Mapping[str, UserFunction] | None = None,
    ):
        self._context = Context(
            catalog, self._query, describe=describe, locate=locate, functions=functions or {}
        )
        self._expressions = Expressions(self._context)
        self._inputs = Inputs(self._context, self._expressions)
        self._joins = Joins(self._context, self._expressions, self._inputs)
        self._outputs = Outputs(self._context, self._expressions)
        self._clauses = Clauses(self._context, self._expressions)
        self.errors = self._context.errors

    @property
    def is_open(self) -> bool:
        """Returns whether an input has unknown columns; then only certain mistakes are among the errors."""
        return self._context.is_open

    def place(self, node: exp.Expr) -> Place | None:
        """Returns the place of an expression in the text."""
        return self._context.place(node)

    def resolve(self, query: exp.Expr) -> Resolved:
        """Returns the query with its names resolved. Check ``errors`` before using it."""
        before = len(self._context.inputs)
        self._context.aliases.clear()
        tree, columns = self._query(copied(query), None)
        tree = _unique_outputs(tree, columns)
        schema = Schema(tuple(Column(name, dtype) for name, dtype in columns))
        return Resolved(tree, schema, tuple(self._context.inputs[before:]))

    def value(self, node: exp.Expr) -> exp.Expr:
        """Resolves an expression that reads no input."""
        return self._expressions.resolve(copied(node), Scope())

    def _query(self, node: exp.Expr, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        if isinstance(node, exp.Subquery):
            scope = Scope(outer)
            self._with(node, scope)
            inner, columns = self._query(node.this, scope if scope.ctes else outer)
            node.set("this", inner)
            self._clauses.limits(node, scope)
            return self._clauses.order_by(node, Scope(outer), columns, []), columns
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, outer)
        if isinstance(node, exp.Values):
            return self._inputs.values(node, outer)
        if isinstance(node, exp.Select):
            return self._select(node, outer)
        self._context.add(NotSupported(f"{type(node).__name__} is not a query"), node)
        return node, []

    def _with(self, node: exp.Expr, scope: Scope) -> None:
        with_ = node.args.get("with_")
        if with_ is None:
            return
        for cte in with_.expressions:
            name, alias = self._context.unique(cte.alias), cte.args["alias"]
            if with_.args.get("recursive") and _reads(cte.this, cte.alias):
                inner, columns = self._recursive(cte, name, scope)
            else:
                inner, columns = self._query(cte.this, scope)
                columns = self._inputs.renamed(cte, columns)
            cte.set("this", inner)
            if cte.alias.lower() in scope.ctes:
                self._context.errors.append(
                    SqlError(
                        f'WITH has the name "{cte.alias}" twice',
                        place=self._context.place(alias) or self._context.place(with_),
                    )
                )
            scope.ctes[cte.alias.lower()] = Cte(name, columns)
            alias.set("this", exp.to_identifier(name, quoted=True))

    def _recursive(self, cte: exp.CTE, name: str, scope: Scope) -> tuple[exp.Expr, Columns]:
        """Resolves a query of WITH RECURSIVE that reads itself: its first part determines the columns."""
        union = cte.this
        if not isinstance(union, exp.Union) or union.args.get("distinct") or _reads(union.left, cte.alias):
            message = "a query that reads itself is a query that does not, UNION ALL one that does"
            self._context.add(NotSupported(message), cte)
            return union, []
        self._context.refuse_others(union, _RECURSIVE, "in a query that reads itself")
        left, columns = self._query(union.left, scope)
        columns = self._inputs.renamed(cte, columns)
        inside = Scope(scope.outer, ctes={**scope.ctes, cte.alias.lower(): Cte(name, columns)})
        right, others = self._query(union.right, inside)
        if len(columns) != len(others):
            message = f"UNION: {len(columns)} columns on the left, {len(others)} on the right"
            self._context.add(TypeMismatch(message), union.right)
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
            self._context.add(SqlError(f"no join word stands before {name}"), node)
        if node.args.get("by_name"):
            self._context.add(NotSupported(f"{name} BY NAME is not supported"), node)
        if len(left_columns) != len(right_columns):
            self._context.add(
                TypeMismatch(
                    f"{name}: {len(left_columns)} columns on the left, {len(right_columns)} on the right"
                ),
                right,
            )
        columns: Columns = []
        for (out, a), (_, b) in zip(left_columns, right_columns, strict=False):
            both = widest([a, b]) if a is not None and b is not None else None
            if a is not None and b is not None and both is None:
                self._context.add(
                    TypeMismatch(
                        f'{name}: column "{out}" is {type_name(a)} on the left, {type_name(b)} on the right',
                        hint="CAST one of them",
                    ),
                    right,
                )
            columns.append((out, both))
        if node.args.get("distinct") or not isinstance(node, exp.Union):
            self._refuse_maps(name, columns, node)
        self._clauses.limits(node, scope)
        return self._clauses.order_by(node, Scope(outer), columns, []), columns

    def _select(self, node: exp.Select, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        scope = Scope(outer, select=True)
        self._context.refuse_others(node, _SELECT, "in SELECT")
        self._with(node, scope)
        self._joins.resolve(node, scope)
        where = node.args.get("where")
        if where is not None:
            where.set("this", self._expressions.condition(where.this, scope))
            for found, what, hint in (
                (contains_aggregate(where.this), "an aggregate", "use HAVING"),
                (contains_window(where.this), "OVER", "use QUALIFY"),
            ):
                if found:
                    self._context.add(SqlError(f"{what} cannot stand in WHERE", hint=hint), where.this)
        known, errors = named_windows(node)
        for error, at in (*errors, *name_windows(node, known)):
            error.place = self._context.place(at) or self._context.place(node)
            self._context.errors.append(error)
        outputs = self._outputs.resolve(node, scope)
        self._clauses.group_by(node, scope, outputs)
        self._clauses.having(node, scope, outputs)
        if any(isinstance(w, StreamWindow) for w in node.args.get("windows") or ()):
            self._context.add(
                NotSupported(
                    "WINDOW in a subquery is not supported yet",
                    hint="name it with CREATE VIEW, or keep it with CREATE TABLE … AS",
                ),
                node,
            )
        node.set("windows", None)
        columns = [(o.alias, self._context.type_of(o.this)) for o in outputs]
        self._check_size(columns, node)
        self._clauses.limits(node, scope)
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            self._context.add(NotSupported("DISTINCT ON is not supported"), distinct)
        if distinct is not None:
            self._refuse_maps("DISTINCT", columns, node)
        made = self._clauses.order_by(node, scope, columns, outputs)
        if not self._context.errors:
            spell_keys(node, {i.view: i.relation.name for i in self._context.inputs})
            self._context.errors.extend(check_grouping(node, self._context.place))
            drop_unused_keys(node)
        return made, columns

    def _refuse_maps(self, name: str, columns: Columns, node: exp.Expr) -> None:
        """Adds an error for each column that has maps in it, which are not compared."""
        for out, dtype in columns:
            if dtype is not None and _has_map(dtype):
                error = TypeMismatch(
                    f'{name} does not compare maps, and column "{out}" is {type_name(dtype)}',
                    hint="compare sort_array(map_entries(…))",
                )
                self._context.add(error, node)

    def _check_size(self, columns: Columns, node: exp.Select) -> None:
        """Raises for a SELECT with too many columns, or parts of a column: one that names those of another twice
        doubles them.
        """
        if len(columns) > COLUMNS:
            raise NotSupported(
                f"this SELECT has {len(columns):,} columns, and at most {COLUMNS:,} are made",
                hint="name the columns that are needed",
                place=self._context.place(node),
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
                        place=self._context.place(node),
                    )


def _has_map(dtype: pa.DataType) -> bool:
    return pa.types.is_map(dtype) or any(_has_map(dtype.field(i).type) for i in range(dtype.num_fields))


def _reads(query: exp.Expr, name: str) -> bool:
    """Returns whether a query names an input of WITH."""
    return any(t.name.lower() == name.lower() and not t.args.get("db") for t in query.find_all(exp.Table))


def _unique_outputs(tree: exp.Expr, columns: Columns) -> exp.Expr:
    """Gives the output columns of the outermost SELECT distinct names, so that any evaluator can store them."""
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
