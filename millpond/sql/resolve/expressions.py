"""Columns, functions and subqueries in an expression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond import allowance
from millpond.errors import Error, Place, SqlError, TypeMismatch, UnknownName, did_you_mean
from millpond.sql.autoname import auto_name
from millpond.sql.calls import called, reaches_outside
from millpond.sql.catalog import Catalog, Describe
from millpond.sql.functions import known_functions
from millpond.sql.nodes import Element, HeldValues, Path, PathValues
from millpond.sql.resolve.model import Input
from millpond.sql.resolve.paths import (
    AGGREGATES,
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
from millpond.sql.scope import Item, Scope, Visible
from millpond.sql.spans import own_span, span_of
from millpond.sql.typing import type_of
from millpond.types import type_name

if TYPE_CHECKING:
    from millpond.sql.userfunctions import UserFunction

Columns = list[tuple[str, pa.DataType | None]]
Locate = Callable[[int, int], Place]


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

    def place(self, node: exp.Expr, *, own: bool = False) -> Place | None:
        span = own_span(node) if own else span_of(node)
        return self.locate(*span) if span and self.locate else None

    @abstractmethod
    def _query(self, node: exp.Expr, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        """A query, resolved, and its columns."""

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
        allowance.check()
        if isinstance(node, exp.Column):
            return self._column(node, scope, outputs)
        if isinstance(node, exp.Identifier | exp.DataType | exp.Literal | Element):
            return node
        if isinstance(node, exp.Subquery | exp.Query):
            tree, columns = self._query(node, scope)
            tree.meta["dtype"] = columns[0][1] if len(columns) == 1 else None
            if len(columns) != _width(node.parent) and not isinstance(node.parent, exp.Exists):
                self.errors.append(
                    SqlError(
                        f"a subquery used as a value gives one column, this one gives {len(columns)}",
                        place=self.place(node),
                    )
                )
            return tree
        if isinstance(node, exp.Window):
            self._over(node)
        if isinstance(node, exp.Func):
            self._function(node)
        if isinstance(node, Path):
            return self._path(node, scope)
        if isinstance(node, exp.Dot):
            node = or_null(node)
        if isinstance(node, exp.Filter | exp.Window):
            function = innermost(node)
            if isinstance(function, AGGREGATES) and self._path_in(function, scope) is not None:
                return self._around_path(node, function, scope, outputs)
        path = self._path_in(node, scope)
        if path is not None:
            return self._with_path(node, path, scope, outputs)
        return self._children(node, scope, outputs)

    def _path_in(self, node: exp.Expr, scope: Scope) -> Path | HeldValues | exp.Column | None:
        return path_in(node, lambda name: self._item(name, scope) is not None)

    def _around_path(
        self, node: exp.Expr, function: exp.Expr, scope: Scope, outputs: list[exp.Alias] | None
    ) -> exp.Expr:
        """An aggregate over a path with FILTER or OVER."""
        self._paths += 1
        mark = Element(this=exp.Literal.string(f"v{self._paths}"))
        function.replace(mark)
        around = self._children(node, scope, outputs)
        return wrapped(self._expr(function, scope, outputs), around, mark)

    def _over(self, node: exp.Window) -> None:
        """Functions of an order need one."""
        ranks = (
            exp.Rank,
            exp.DenseRank,
            exp.PercentRank,
            exp.CumeDist,
            exp.RowNumber,
            exp.Ntile,
            exp.Lag,
            exp.Lead,
        )
        function = node.this
        while isinstance(function, exp.IgnoreNulls | exp.RespectNulls):
            function = function.this
        if isinstance(function, ranks) and not node.args.get("order") and not node.args.get("alias"):
            self.errors.append(
                SqlError(
                    f"{function.sql_name()} needs an order: OVER (… ORDER BY …)",
                    hint="without one it would number rows by chance",
                    place=self.place(function) or self.place(node),
                )
            )

    def _path(self, node: Path, scope: Scope, *, numbers: bool = False) -> exp.Expr:
        """The array of the values that a path finds; ``numbers`` says what those of JSON text are to be."""
        try:
            heads: list[Head] = []
            leading = 0
            while leading < len(node.steps) and isinstance(node.steps[leading], exp.Identifier):
                leading += 1
            names = [step.name for step in node.steps[:leading]]
            rest = steps_of(node.steps[leading:])
            if len(names) == 1 and len(node.steps) == 2 and self._item(names[0], scope) is not None:
                raise SqlError(
                    f"{names[0]}.* is all columns of {names[0]}: it stands in SELECT, without a name"
                )
            for level in scope.around():
                if not names:
                    heads = row_heads([column_node(c) for i in level.items for c in i.columns], rest)
                elif (found := self._in_scope(names, level, node)) is not None:
                    head, fields = found
                    heads = [(head, (*(("name", name) for name in fields), *rest))]
                if heads:
                    break
            if names and not heads:
                if self._item(names[0], scope) is not None:
                    self._unknown_column(node, names, scope)
                elif all(i.columns for s in scope.around() for i in s.items):
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
        outputs: list[exp.Alias] | None,
    ) -> exp.Expr:
        """A comparison that holds if it does for any value of a path, or an aggregate over the values."""
        whole = path_of(path) if isinstance(path, exp.Column) else path
        if isinstance(node, AGGREGATES):
            return self._over_path(node, whole, scope)
        assert isinstance(whole, Path)
        self._paths += 1
        element = Element(this=exp.Literal.string(f"v{self._paths}"))
        path.replace(element)
        condition = self._children(node, scope, outputs)
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
        refused = reaches_outside(called(node) or name.lower(), node)
        if refused is not None:
            refused.place = self.place(node, own=True)
            self.errors.append(refused)
            node.meta["dtype"] = None
        elif name.lower() not in self.functions:
            self.errors.append(
                UnknownName(
                    f'function "{name}" is not known',
                    hint=did_you_mean(name, self.functions, "SHOW FUNCTIONS lists them"),
                    place=self.place(node, own=True),
                )
            )
            node.meta["dtype"] = None
        elif (own := self.user_functions.get(name.lower())) is not None:
            node.meta.update({"function": own, "dtype": own.returns})
            if len(node.expressions) != len(own.arguments):
                self.errors.append(
                    TypeMismatch(
                        f'function "{own.name}" takes {len(own.arguments)} arguments, not {len(node.expressions)}',
                        hint=own.signature,
                        place=self.place(node, own=True),
                    )
                )

    def _column(self, node: exp.Column, scope: Scope, outputs: list[exp.Alias] | None) -> exp.Expr:
        parts = [p for p in node.parts if isinstance(p, exp.Identifier)]
        if len(parts) != len(node.parts) or isinstance(node.this, exp.Star):
            return self._path(path_of(node), scope)
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

    def _in_scope(self, names: list[str], scope: Scope, node: exp.Expr) -> tuple[exp.Expr, list[str]] | None:
        if len(names) > 1:
            item = scope.item(names[0])
            if item is not None:
                column = next((c for c in item.columns if c.name.lower() == names[1].lower()), None)
                if column is not None:
                    return column_node(column, node), names[2:]
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
            return column_node(matches[0], node), names[1:]
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

    def _unknown_column(self, node: exp.Expr, names: list[str], scope: Scope) -> None:
        # An input that is not known takes its columns with it: one mistake, one message.
        unknown = any(not i.columns for s in scope.around() for i in s.items)
        if unknown and (len(names) == 1 or self._item(names[0], scope) is None):
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


def _width(holder: exp.Expr | None) -> int:
    """How many columns a subquery gives at its place: one, or as many as the tuple that IN looks for."""
    if isinstance(holder, exp.In) and isinstance(holder.this, exp.Tuple):
        return len(holder.this.expressions)
    return 1


def column_node(column: Visible, like: exp.Expr | None = None) -> exp.Column:
    made = exp.Column(
        this=exp.to_identifier(column.name, quoted=True),
        table=exp.to_identifier(column.alias, quoted=True) if column.alias else None,
    )
    made.meta["dtype"] = column.dtype
    span = span_of(like) if like is not None else None
    if span:
        made.meta.update(start=span[0], end=span[1] - 1)
    return made
