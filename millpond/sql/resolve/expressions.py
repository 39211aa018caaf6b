"""Columns, functions and subqueries in an expression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond import allowance
from millpond.errors import Error, Place, SqlError, TypeMismatch, UnknownName, did_you_mean
from millpond.sql.autoname import auto_name
from millpond.sql.catalog import Catalog, Describe
from millpond.sql.functions import folds, known_functions
from millpond.sql.grouping import contains_aggregate, contains_window, is_aggregate
from millpond.sql.nodes import Element, HeldValues, Path, PathValues
from millpond.sql.resolve.calls import Locate, wrong_call
from millpond.sql.resolve.model import Input
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
    held,
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
from millpond.sql.scope import Scope, Visible
from millpond.sql.spans import own_span, span_of
from millpond.sql.typing import type_of
from millpond.sql.typing.coercion import NULL, STRING, is_numeric
from millpond.types import type_name

if TYPE_CHECKING:
    from millpond.sql.userfunctions import UserFunction

Columns = list[tuple[str, pa.DataType | None]]


_AROUND = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""What belongs to the aggregate that it stands around."""


class Expressions(ABC):
    """Resolves expressions against a scope; ``errors`` grows as mistakes are found."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        describe: Describe | None = None,
        locate: Locate | None = None,
        functions: Mapping[str, UserFunction] | None = None,
    ):
        self.catalog = catalog
        self.describe = describe
        self.locate = locate
        self.user_functions = functions or {}
        self.functions = known_functions() | self.user_functions.keys()
        self.errors: list[SqlError | Error] = []
        self.inputs: list[Input] = []
        self.is_open = False
        """Whether an input has columns that nobody knows; then only what is surely wrong is among the errors."""
        self._paths = 0
        self._aliases: set[str] = set()
        self._inlining = Inlining()

    def place(self, node: exp.Expr, *, own: bool = False) -> Place | None:
        span = own_span(node) if own else span_of(node)
        return self.locate(*span) if span and self.locate else None

    def _part(self, node: exp.Expr, at: int) -> Place | None:
        """The place of a part of a name with dots."""
        parts = node.parts if isinstance(node, exp.Column) else []
        return self.place(parts[at] if at < len(parts) else node)

    @abstractmethod
    def _query(self, node: exp.Expr, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        """A query, resolved, and its columns."""

    @abstractmethod
    def _excepted(self, star: exp.Star, columns: list[Visible]) -> list[Visible]:
        """The columns that EXCEPT takes out of `*`."""

    def _note(self, error: SqlError, place: Place | None) -> None:
        """Adds an error, at its place."""
        error.place = error.place or place
        self.errors.append(error)

    def _children(self, node: exp.Expr, scope: Scope, names: Aliases | None = None) -> exp.Expr:
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(key, self._expr(value, scope, names))
            elif isinstance(value, list) and any(isinstance(v, exp.Expr) for v in value):
                node.set(
                    key,
                    [self._expr(v, scope, names) if isinstance(v, exp.Expr) else v for v in value],
                )
        return node

    def _expr(self, node: exp.Expr, scope: Scope, names: Aliases | None = None) -> exp.Expr:
        """An expression with its columns, functions and subqueries resolved.

        ``names`` are the columns of the SELECT list that it may name.
        """
        allowance.check()
        if isinstance(node, exp.Column):
            return self._column(node, scope, names)
        if isinstance(node, exp.Identifier | exp.DataType | exp.Literal | Element):
            return node
        if isinstance(node, exp.Subquery | exp.Query):
            tree, columns = self._query(node, scope)
            tree.meta["dtype"] = columns[0][1] if len(columns) == 1 else None
            if len(columns) != _width(node) and not isinstance(node.parent, exp.Exists):
                self.errors.append(
                    SqlError(
                        f"a subquery used as a value gives one column, this one gives {len(columns)}",
                        place=self.place(node),
                    )
                )
            return tree
        if isinstance(node, exp.Func | exp.Distinct):
            spread_stars(node, scope, self._excepted, self.errors.append, self.place)
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
        return self._around(self._children(node, scope, names))

    def _path_in(self, node: exp.Expr, scope: Scope) -> Path | HeldValues | exp.Column | None:
        return path_in(node, lambda name: is_input(name, scope))

    def _around_path(
        self, node: exp.Expr, function: exp.Expr, scope: Scope, names: Aliases | None
    ) -> exp.Expr:
        """An aggregate over a path with FILTER or OVER."""
        self._paths += 1
        mark = Element(this=exp.Literal.string(f"v{self._paths}"))
        function.replace(mark)
        around = self._children(node, scope, names)
        return wrapped(self._expr(function, scope, names), around, mark)

    def _over(self, node: exp.Window, scope: Scope, names: Aliases | None) -> exp.Expr:
        made = self._plain(node, scope, names)
        before = len(self.errors)
        for error in check_window(node) if isinstance(made, exp.Window) else ():
            error.place = self.place(node.this) or self.place(node)
            self.errors.append(error)
        if len(self.errors) == before:
            self._type(node.this)
        return made

    def _aggregate(self, node: exp.Expr, scope: Scope, names: Aliases | None) -> exp.Expr:
        """An aggregate, which belongs to the query whose columns it reads: in a subquery that may be the one around
        it."""
        made = self._plain(node, scope, inside_aggregate(names))
        read = {c.table.lower() for c in made.find_all(exp.Column)}
        if read and scope.outer is not None and not read & scope.tables() and read <= scope.outer.tables():
            made.meta["outer"] = True
        return made

    def _around(self, node: exp.Expr) -> exp.Expr:
        """FILTER and the like belong where the aggregate does that they stand around."""
        if isinstance(node, exp.Filter):
            for found, what in (
                (contains_aggregate(node.expression), "an aggregate"),
                (contains_window(node.expression), "OVER"),
            ):
                if found:
                    self.errors.append(
                        SqlError(f"{what} cannot stand in FILTER", place=self.place(node.expression))
                    )
        if isinstance(node, _AROUND):
            if node.this.meta.get("outer"):
                node.meta["outer"] = True
        return node

    def _path(self, node: Path, scope: Scope, *, numbers: bool = False) -> exp.Expr:
        """The array of the values that a path finds; ``numbers`` says what those of JSON text are to be."""
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
            error.place = error.place or self.place(node)
            self.errors.append(error)
            node.meta["dtype"] = None
            return node

    def _with_path(
        self,
        node: exp.Expr,
        path: Path | HeldValues | exp.Column,
        scope: Scope,
        names: Aliases | None,
    ) -> exp.Expr:
        """A comparison that holds if it does for any value of a path, or an aggregate over the values."""
        whole = path_of(path) if isinstance(path, exp.Column) else path
        if type(node) in folds():
            return self._over_path(node, whole, scope)
        assert isinstance(whole, Path)
        self._paths += 1
        element = Element(this=exp.Literal.string(f"v{self._paths}"))
        path.replace(element)
        condition = self._children(node, scope, names)
        values = self._path(whole, scope, numbers=with_numbers(condition, element))
        return any_value(values, element, condition) if isinstance(values, PathValues) else node

    def _over_path(self, node: exp.Expr, whole: Path | HeldValues, scope: Scope) -> exp.Expr:
        numbers = not isinstance(node, exp.Count)
        if isinstance(whole, HeldValues):
            numbers = numbers or with_numbers(whole.args["condition"], whole.args["variable"])
        values = self._path(whole.this if isinstance(whole, HeldValues) else whole, scope, numbers=numbers)
        if not isinstance(values, PathValues):
            return node
        try:
            found = held(values, whole) if isinstance(whole, HeldValues) else values
            return aggregate(node, found, distinct=isinstance(node.this, exp.Distinct))
        except Error as error:
            error.place = error.place or self.place(node)
            self.errors.append(error)
            node.meta["dtype"] = None
            return node

    def _call(self, node: exp.Func) -> None:
        wrong = wrong_call(node, self.functions, self.user_functions, self.locate)
        if wrong is not None:
            self._note(wrong, self.place(node, own=True))

    def _unknown_column(self, node: exp.Expr, names: list[str], scope: Scope) -> None:
        found = unknown_column(names, scope, self.catalog)
        if found is not None:
            error, part = found
            self._note(error, self.place(node) if part is None else self._part(node, part))

    def _condition(
        self, node: exp.Expr, scope: Scope, names: Aliases | None = None, *, cast: bool = False
    ) -> exp.Expr:
        """A condition; with ``cast`` it may be something that can be cast to one, as in HAVING and QUALIFY."""
        condition = self._expr(node, scope, names)
        dtype = self._type(condition)
        if cast and dtype is not None and (dtype in (STRING, NULL) or is_numeric(dtype)):
            condition = exp.cast(condition, "BOOLEAN")
        elif dtype is not None and not pa.types.is_boolean(dtype):
            self.errors.append(
                TypeMismatch(
                    f"a condition is BOOLEAN, this is {type_name(dtype)}", place=self.place(condition)
                )
            )
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
                        self._note(wrong, self.place(node))
                    return self._fields(value, rest, node)
            if aliases:
                several = names.ambiguous(parts[0]) if len(aliases) > 1 and names is not None else None
                if several is not None:
                    self._note(several, self.place(node))
                value = self._inlining.copy(aliases[0].this, lambda: self.place(node))
                return self._fields(exp.Paren(this=value), parts[1:], node)
        if [p.lower() for p in parts] == ["grouping__id"]:
            return self._expr(exp.Anonymous(this="grouping_id"), scope, names)
        self._unknown_column(node, parts, scope)
        node.meta["dtype"] = None
        return node

    def _in_scope(self, names: list[str], scope: Scope, node: exp.Expr) -> tuple[exp.Expr, list[str]] | None:
        """What a name means among the inputs of one SELECT, and the fields that are asked of it."""
        matches, rest = scope.matches(names[1], names[0]) if len(names) > 1 else [], names[2:]
        if not matches:
            matches, rest = scope.matches(names[0]), names[1:]
        if not matches:
            return None
        if len(matches) > 1:
            self._note(ambiguous(".".join(names[: len(names) - len(rest)]), matches), self.place(node))
        return column_node(matches[0], node), rest

    def _fields(self, value: exp.Expr, fields: list[str], node: exp.Column) -> exp.Expr:
        """``value.a.b``: fields of a struct."""
        for name in fields:
            dtype = self._type(value)
            if dtype is not None and pa.types.is_list(dtype) and pa.types.is_struct(dtype.value_type):
                dtype = dtype.value_type  # the field of every element
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

    def _type(self, node: exp.Expr) -> pa.DataType | None:
        try:
            return type_of(node)
        except TypeMismatch as error:
            if not any(e.message == error.message for e in self.errors):
                error.place = error.place or self.place(node)
                self.errors.append(error)
            node.meta["dtype"] = None
            return None


def _width(node: exp.Expr) -> int:
    """How many columns a subquery gives at its place: one, or as many as the tuple that IN looks for."""
    holder = node.parent
    if isinstance(holder, exp.In) and isinstance(holder.this, exp.Tuple) and node.arg_key == "query":
        return len(holder.this.expressions)
    return 1
