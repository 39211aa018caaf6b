"""Resolves columns, functions and subqueries in an expression."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond import allowance
from millpond.errors import Error, SqlError, TypeMismatch, UnknownName, did_you_mean
from millpond.sql.autoname import auto_name
from millpond.sql.functions import folds
from millpond.sql.grouping import contains_aggregate, contains_window, is_aggregate
from millpond.sql.nodes import Element, FilteredValues, Path, PathValues
from millpond.sql.resolve.calls import wrong_call
from millpond.sql.resolve.context import Context
from millpond.sql.resolve.names import (
    Aliases,
    Inlining,
    ambiguous,
    beyond_lateral,
    column_node,
    inside_aggregate,
    is_input,
    unknown_column,
)
from millpond.sql.resolve.paths import (
    Head,
    aggregate,
    any_value,
    filtered,
    innermost,
    or_null,
    path_in,
    path_of,
    row_heads,
    steps_of,
    unknown_root,
    values_of,
    with_numbers,
    wrapped,
)
from millpond.sql.resolve.stars import spread_stars
from millpond.sql.resolve.windows import check_window
from millpond.sql.scope import Scope
from millpond.sql.typing.coercion import NULL, STRING, is_numeric
from millpond.types import type_name

_AROUND = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""Nodes around an aggregate that belong to it."""


class Expressions:
    """Resolves expressions against a scope."""

    def __init__(self, context: Context):
        self._context = context
        self._paths = 0
        self._inlining = Inlining()

    def children(self, node: exp.Expr, scope: Scope, names: Aliases | None = None) -> exp.Expr:
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(key, self.resolve(value, scope, names))
            elif isinstance(value, list) and any(isinstance(v, exp.Expr) for v in value):
                node.set(
                    key,
                    [self.resolve(v, scope, names) if isinstance(v, exp.Expr) else v for v in value],
                )
        return node

    def resolve(self, node: exp.Expr, scope: Scope, names: Aliases | None = None) -> exp.Expr:
        """Returns an expression with its columns, functions and subqueries resolved.

        ``names`` are the columns of the SELECT list that it may name.
        """
        allowance.check()
        if isinstance(node, exp.Column):
            return self._column(node, scope, names)
        if isinstance(node, exp.Identifier | exp.DataType | exp.Literal | Element):
            return node
        if isinstance(node, exp.Subquery | exp.Query):
            tree, columns = self._context.query(node, scope)
            tree.meta["dtype"] = columns[0][1] if len(columns) == 1 else None
            if len(columns) != _width(node) and not isinstance(node.parent, exp.Exists):
                self._context.add(
                    SqlError(f"a subquery used as a value gives one column, this one gives {len(columns)}"),
                    node,
                )
            return tree
        if isinstance(node, exp.Func | exp.Distinct):
            spread_stars(self._context, node, scope)
        if isinstance(node, exp.Window):
            return self._over(node, scope, names)
        if is_aggregate(node):
            return self._aggregate(node, scope, names)
        return self._plain(node, scope, inside_aggregate(names) if isinstance(node, _AROUND) else names)

    def _plain(self, node: exp.Expr, scope: Scope, names: Aliases | None) -> exp.Expr:
        if isinstance(node, exp.Func):
            self._call(node)
        if isinstance(node, Path):
            return self._path(node, scope)
        if isinstance(node, exp.Dot):
            node = or_null(node)
        if isinstance(node, exp.Filter | exp.Window):
            function = innermost(node)
            if type(function) in folds() and self._path_in(function, scope) is not None:
                return self._around_path(node, function, scope, names)
        path = self._path_in(node, scope)
        if path is not None:
            return self._with_path(node, path, scope, names)
        return self._around(self.children(node, scope, names))

    def _path_in(self, node: exp.Expr, scope: Scope) -> Path | FilteredValues | exp.Column | None:
        return path_in(node, lambda name: is_input(name, scope))

    def _around_path(
        self, node: exp.Expr, function: exp.Expr, scope: Scope, names: Aliases | None
    ) -> exp.Expr:
        """Resolves an aggregate over a path with FILTER or OVER."""
        self._paths += 1
        mark = Element(this=exp.Literal.string(f"v{self._paths}"))
        function.replace(mark)
        around = self.children(node, scope, names)
        return wrapped(self.resolve(function, scope, names), around, mark)

    def _over(self, node: exp.Window, scope: Scope, names: Aliases | None) -> exp.Expr:
        made = self._plain(node, scope, names)
        before = len(self._context.errors)
        for error in check_window(node) if isinstance(made, exp.Window) else ():
            error.place = self._context.place(node.this) or self._context.place(node)
            self._context.errors.append(error)
        if len(self._context.errors) == before:
            self._context.type_of(node.this)
        return made

    def _aggregate(self, node: exp.Expr, scope: Scope, names: Aliases | None) -> exp.Expr:
        """Resolves an aggregate, which belongs to the query whose columns it reads: in a subquery, that may be the
        outer one.
        """
        made = self._plain(node, scope, inside_aggregate(names))
        read = {c.table.lower() for c in made.find_all(exp.Column)}
        if read and scope.outer is not None and not read & scope.tables() and read <= scope.outer.tables():
            made.meta["outer"] = True
        return made

    def _around(self, node: exp.Expr) -> exp.Expr:
        """Resolves FILTER and similar, which belong to the same query as the aggregate inside."""
        if isinstance(node, exp.Filter):
            for found, what in (
                (contains_aggregate(node.expression), "an aggregate"),
                (contains_window(node.expression), "OVER"),
            ):
                if found:
                    self._context.add(SqlError(f"{what} cannot stand in FILTER"), node.expression)
        if isinstance(node, _AROUND):
            if node.this.meta.get("outer"):
                node.meta["outer"] = True
        return node

    def _path(self, node: Path, scope: Scope, *, numbers: bool = False) -> exp.Expr:
        """Returns the array of the values that a path finds; ``numbers`` says what values of JSON text should be."""
        try:
            heads: list[Head] = []
            leading = 0
            while leading < len(node.steps) and isinstance(node.steps[leading], exp.Identifier):
                leading += 1
            names = [step.name for step in node.steps[:leading]]
            rest = steps_of(node.steps[leading:])
            if len(names) == 1 and len(node.steps) == 2 and is_input(names[0], scope):
                raise SqlError(
                    f"{names[0]}.* is all columns of {names[0]}: it stands in SELECT, without a name"
                )
            for level in scope.around():
                if not names:
                    heads = row_heads([c.value.copy() for c in level.columns if not c.qualified], rest)
                elif (found := self._in_scope(names, level, node)) is not None:
                    head, fields = found
                    named = len(names) - len(fields)
                    self._context.mentions.column(node.steps[named - 1], head, level, qualified=named > 1)
                    heads = [(head, (*(("name", name) for name in fields), *rest))]
                if heads:
                    break
            if names and not heads:
                if is_input(names[0], scope):
                    self._unknown_column(node, names, scope)
                elif not any(s.unknown for s in scope.around()):
                    raise unknown_root(names[0], scope)
                node.meta["dtype"] = None
                return node
            return values_of(node, heads, numbers)
        except Error as error:
            error.place = error.place or self._context.place(node)
            self._context.errors.append(error)
            node.meta["dtype"] = None
            return node

    def _with_path(
        self,
        node: exp.Expr,
        path: Path | FilteredValues | exp.Column,
        scope: Scope,
        names: Aliases | None,
    ) -> exp.Expr:
        """Resolves a comparison that is true if it is for any value of a path, or an aggregate over the values."""
        whole = path_of(path) if isinstance(path, exp.Column) else path
        if type(node) in folds():
            return self._over_path(node, whole, scope)
        assert isinstance(whole, Path)
        self._paths += 1
        element = Element(this=exp.Literal.string(f"v{self._paths}"))
        path.replace(element)
        condition = self.children(node, scope, names)
        values = self._path(whole, scope, numbers=with_numbers(condition, element))
        return any_value(values, element, condition) if isinstance(values, PathValues) else node

    def _over_path(self, node: exp.Expr, whole: Path | FilteredValues, scope: Scope) -> exp.Expr:
        numbers = not isinstance(node, exp.Count)
        if isinstance(whole, FilteredValues):
            numbers = numbers or with_numbers(whole.args["condition"], whole.args["variable"])
        values = self._path(
            whole.this if isinstance(whole, FilteredValues) else whole, scope, numbers=numbers
        )
        if not isinstance(values, PathValues):
            return node
        try:
            found = filtered(values, whole) if isinstance(whole, FilteredValues) else values
            return aggregate(node, found, distinct=isinstance(node.this, exp.Distinct))
        except Error as error:
            error.place = error.place or self._context.place(node)
            self._context.errors.append(error)
            node.meta["dtype"] = None
            return node

    def _call(self, node: exp.Func) -> None:
        wrong = wrong_call(node, self._context.functions, self._context.user_functions, self._context.locate)
        if wrong is not None:
            self._context.note(wrong, self._context.place(node, own=True))

    def _unknown_column(self, node: exp.Expr, names: list[str], scope: Scope) -> None:
        found = unknown_column(names, scope, self._context.catalog)
        if found is not None:
            error, part = found
            self._context.note(
                error, self._context.place(node) if part is None else self._context.part(node, part)
            )

    def condition(
        self, node: exp.Expr, scope: Scope, names: Aliases | None = None, *, cast: bool = False
    ) -> exp.Expr:
        """Resolves a condition; with ``cast``, it may be a value that can be cast to one, as in HAVING and QUALIFY."""
        condition = self.resolve(node, scope, names)
        dtype = self._context.type_of(condition)
        if cast and dtype is not None and (dtype in (STRING, NULL) or is_numeric(dtype)):
            condition = exp.cast(condition, "BOOLEAN")
        elif dtype is not None and not pa.types.is_boolean(dtype):
            self._context.add(TypeMismatch(f"a condition is BOOLEAN, this is {type_name(dtype)}"), condition)
        return condition

    def _column(self, node: exp.Column, scope: Scope, names: Aliases | None) -> exp.Expr:
        if node.meta.get("resolved"):
            return node
        parts = [p.name for p in node.parts if isinstance(p, exp.Identifier)]
        if len(parts) != len(node.parts) or isinstance(node.this, exp.Star):
            return self._path(path_of(node), scope)
        for level in scope.around():
            aliases = names.find(parts[0]) if names is not None and level is scope else []
            found = (
                None if aliases and names is not None and names.first else self._in_scope(parts, level, node)
            )
            if found is not None:
                value, rest = found
                grouped = names is None or names.groups is None or value in names.groups
                if grouped or not aliases:
                    wrong = beyond_lateral(level, scope, node)
                    if wrong is not None:
                        self._context.add(wrong, node)
                    named = len(parts) - len(rest)
                    self._context.mentions.column(node.parts[named - 1], value, level, qualified=named > 1)
                    return self._fields(value, rest, node)
            if aliases:
                several = names.ambiguous(parts[0]) if len(aliases) > 1 and names is not None else None
                if several is not None:
                    self._context.add(several, node)
                value = self._inlining.copy(aliases[0].this, lambda: self._context.place(node))
                return self._fields(exp.Paren(this=value), parts[1:], node)
        if [p.lower() for p in parts] == ["grouping__id"]:
            return self.resolve(exp.Anonymous(this="grouping_id"), scope, names)
        self._unknown_column(node, parts, scope)
        node.meta["dtype"] = None
        return node

    def _in_scope(self, names: list[str], scope: Scope, node: exp.Expr) -> tuple[exp.Expr, list[str]] | None:
        """Returns what a name means among the inputs of one SELECT, and the fields that are read of it."""
        matches, rest = scope.matches(names[1], names[0]) if len(names) > 1 else [], names[2:]
        if not matches:
            matches, rest = scope.matches(names[0]), names[1:]
        if not matches:
            return None
        if len(matches) > 1:
            self._context.note(
                ambiguous(".".join(names[: len(names) - len(rest)]), matches), self._context.place(node)
            )
        return column_node(matches[0], node), rest

    def _fields(self, value: exp.Expr, fields: list[str], node: exp.Column) -> exp.Expr:
        """Resolves ``value.a.b``: fields of a struct."""
        for name in fields:
            dtype = self._context.type_of(value)
            if dtype is not None and pa.types.is_list(dtype) and pa.types.is_struct(dtype.value_type):
                dtype = dtype.value_type  # the field of every element
            if dtype is not None and pa.types.is_struct(dtype):
                known = [f.name for f in dtype]
                spelled = next((k for k in known if k.lower() == name.lower()), None)
                if spelled is None:
                    self._context.add(
                        UnknownName(
                            f'field "{name}" is not in "{auto_name(value)}"',
                            hint=did_you_mean(name, known, f"its fields: {', '.join(known)}"),
                        ),
                        node,
                    )
                name = spelled or name
            elif dtype is not None and not pa.types.is_map(dtype):
                self._context.add(
                    TypeMismatch(f'"{auto_name(value)}" is {type_name(dtype)} and has no field "{name}"'),
                    node,
                )
            value = exp.Dot(this=value, expression=exp.to_identifier(name, quoted=True))
        return value


def _width(node: exp.Expr) -> int:
    """Returns how many columns a subquery may have in its place: one, or as many as the tuple before IN."""
    holder = node.parent
    if isinstance(holder, exp.In) and isinstance(holder.this, exp.Tuple) and node.arg_key == "query":
        return len(holder.this.expressions)
    return 1
