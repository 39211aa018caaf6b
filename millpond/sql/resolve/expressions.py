"""Columns, functions and subqueries in an expression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond import allowance
from millpond.errors import Error, NotSupported, Place, SqlError, TypeMismatch, UnknownName, did_you_mean
from millpond.sql.autoname import auto_name
from millpond.sql.calls import called, reaches_outside
from millpond.sql.catalog import Catalog, Describe
from millpond.sql.functions import folds, known_functions, wrong_number
from millpond.sql.grouping import contains_aggregate, contains_window, is_aggregate
from millpond.sql.nodes import Element, HeldValues, Path, PathValues
from millpond.sql.resolve.model import Input
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
from millpond.sql.resolve.windows import check_window
from millpond.sql.scope import Scope, Visible
from millpond.sql.spans import own_span, span_of
from millpond.sql.typing import type_of
from millpond.sql.typing.coercion import NULL, STRING, is_numeric
from millpond.types import type_name

if TYPE_CHECKING:
    from millpond.sql.userfunctions import UserFunction

Columns = list[tuple[str, pa.DataType | None]]
Locate = Callable[[int, int], Place]


@dataclass(frozen=True, slots=True)
class Aliases:
    """The columns of a SELECT list that an expression may name: where no column of an input has the name; in ORDER BY
    before those (``first``); in HAVING before those that are not grouped by. Where ``several`` of them have a name, the
    first is meant, else it is an error."""

    outputs: list[exp.Alias]
    groups: tuple[exp.Expr, ...] | None = None
    first: bool = False
    several: bool = False

    def find(self, name: str) -> list[exp.Alias]:
        return [o for o in self.outputs if o.alias.lower() == name.lower()]


def _inside(names: Aliases | None) -> Aliases | None:
    """What an aggregate, with its FILTER and its order, may name: also in HAVING first the columns of the inputs."""
    return Aliases(names.outputs) if names is not None and names.groups is not None else names


_AROUND = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""What belongs to the aggregate that it stands around."""
INLINED = 20_000
"""Parts of expressions that names of the SELECT list stand for, in all of a statement."""
INLINED_DEPTH = 200


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
        self._inlined_nodes = 0

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
            if len(columns) != _width(node.parent) and not isinstance(node.parent, exp.Exists):
                self.errors.append(
                    SqlError(
                        f"a subquery used as a value gives one column, this one gives {len(columns)}",
                        place=self.place(node),
                    )
                )
            return tree
        if isinstance(node, exp.Func | exp.Distinct):
            self._spread(node, scope)
        if isinstance(node, exp.Window):
            return self._over(node, scope, names)
        if is_aggregate(node):
            return self._aggregate(node, scope, names)
        return self._plain(node, scope, _inside(names) if isinstance(node, _AROUND) else names)

    def _spread(self, node: exp.Expr, scope: Scope) -> None:
        """Puts the columns in place of `*` and `x.*` among the arguments of a function; `COUNT(*)` stays."""
        for star in (s for v in node.args.values() for s in (v if isinstance(v, list) else [v])):
            if isinstance(star, exp.Star) and star.args.get("replace"):
                message = "REPLACE stands behind the * of a SELECT, not of a function"
                self.errors.append(SqlError(message, place=self.place(star) or self.place(node)))
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            return
        for key, value in list(node.args.items()):
            given = value if isinstance(value, list) else [value]
            spread = [c for v in given for c in self._columns_of_star(v, scope, node) or [v]]
            if len(spread) == len(given) and all(a is b for a, b in zip(spread, given, strict=True)):
                continue
            if isinstance(value, list):
                node.set(key, spread)
            else:
                if isinstance(node, exp.Count) and not node.expressions:
                    self.errors.append(
                        SqlError(
                            "COUNT of x.* alone is not known",
                            hint="COUNT(*) counts rows; name the columns to count rows where none of them is NULL",
                            place=self.place(node),
                        )
                    )
                node.set(key, spread[0])
                node.set("expressions", [*spread[1:], *node.expressions])
            wrong = wrong_number(
                called(node) or "",
                len(node.expressions) + ("this" in node.arg_types and not isinstance(node, exp.Anonymous)),
            )
            if wrong is not None:
                self.errors.append(SqlError(wrong, place=self.place(node, own=True)))
                node.meta["dtype"] = None

    def _columns_of_star(self, node: object, scope: Scope, call: exp.Expr) -> list[exp.Expr]:
        """What `*`, or `x.*` of an input x, stands for; in STRUCT also the fields of a struct. Nothing for anything
        else."""
        star = star_of(node) if isinstance(node, exp.Expr) else None
        if star is not None and (star is node or (isinstance(node, exp.Column) and scope.has(node.table))):
            mine = scope.of(node.table) if isinstance(node, exp.Column) else scope.shown()
            columns = [c for c in mine if not c.hidden]
            dropped = self._excepted(star, columns)
            return [_argument(_resolved(c), c.name, call) for c in columns if c not in dropped]
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) and isinstance(call, exp.Struct):
            found = scope.matches(node.table) if not node.args.get("db") else []
            if len(found) == 1 and found[0].dtype is not None and pa.types.is_struct(found[0].dtype):
                names = [exp.to_identifier(f.name, quoted=True) for f in found[0].dtype]
                fields = [exp.Dot(this=_resolved(found[0]), expression=name) for name in names]
                return [_argument(f, n.name, call) for f, n in zip(fields, names, strict=True)]
        return []

    def _plain(self, node: exp.Expr, scope: Scope, names: Aliases | None) -> exp.Expr:
        if isinstance(node, exp.Func):
            self._function(node)
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
        return path_in(node, lambda name: self._is_input(name, scope))

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
        made = self._plain(node, scope, _inside(names))
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
            if len(names) == 1 and len(node.steps) == 2 and self._is_input(names[0], scope):
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
                if self._is_input(names[0], scope):
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
                    self._check_lateral(level, scope, node)
                    return self._fields(value, rest, node)
            if aliases:
                if len(aliases) > 1 and names is not None and not (names.first or names.several):
                    self.errors.append(
                        UnknownName(
                            f'column "{parts[0]}" is ambiguous: it stands several times in SELECT',
                            hint="give each another name with AS",
                            place=self.place(node),
                        )
                    )
                return self._fields(exp.Paren(this=self._inlined(aliases[0].this, node)), parts[1:], node)
        if [p.lower() for p in parts] == ["grouping__id"]:
            return self._expr(exp.Anonymous(this="grouping_id"), scope, names)
        self._unknown_column(node, parts, scope)
        node.meta["dtype"] = None
        return node

    def _inlined(self, value: exp.Expr, node: exp.Expr) -> exp.Expr:
        """What a column of the SELECT list stands for, to be put in the place of its name. Each may name the one
        before it twice, so that all of it is counted."""
        todo = [(value, 0)]
        while todo:
            part, depth = todo.pop()
            self._inlined_nodes += 1
            if self._inlined_nodes > INLINED or depth > INLINED_DEPTH:
                raise NotSupported(
                    "columns of SELECT that name one another make too large an expression",
                    hint="compute some of them in a subquery, or with WITH",
                    place=self.place(node),
                )
            todo += [(inner, depth + 1) for inner in part.iter_expressions()]
        return value.copy()

    def _check_lateral(self, level: Scope, scope: Scope, node: exp.Expr) -> None:
        """Refuses a column of inputs left of LATERAL in a query that is further inside, as Spark does."""
        if not level.lateral or level is scope:
            return
        inside = scope.outer
        while inside is not None and inside is not level and not inside.select:
            inside = inside.outer
        if inside is not level:
            message = f'"{node.sql()}" is of a query that is not the one around this one'
            hint = "name it in the query behind LATERAL, and refer to that"
            self.errors.append(SqlError(message, hint=hint, place=self.place(node)))

    def _in_scope(self, names: list[str], scope: Scope, node: exp.Expr) -> tuple[exp.Expr, list[str]] | None:
        """What a name means among the inputs of one SELECT, and the fields that are asked of it."""
        matches, rest = scope.matches(names[1], names[0]) if len(names) > 1 else [], names[2:]
        if not matches:
            matches, rest = scope.matches(names[0]), names[1:]
        if not matches:
            return None
        if len(matches) > 1:
            self._ambiguous(".".join(names[: len(names) - len(rest)]), matches, node)
        return column_node(matches[0], node), rest

    def _ambiguous(self, name: str, matches: list[Visible], node: exp.Expr) -> None:
        owners = [f'"{m.alias}"' for m in matches if m.alias]
        first = next((m for m in matches if m.alias), None)
        self.errors.append(
            UnknownName(
                f'column "{name}" is ambiguous: it is in {" and ".join(owners) or "one input twice"}',
                hint=f"write {first.alias}.{first.name}"
                if first is not None and len(set(owners)) == len(owners)
                else "give its inputs aliases, and its columns names, that differ",
                place=self.place(node),
            )
        )

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

    def _unknown_column(self, node: exp.Expr, names: list[str], scope: Scope) -> None:
        # An input that is not known takes its columns with it: one mistake, one message.
        unknown = any(s.unknown for s in scope.around())
        if unknown and (len(names) == 1 or not self._is_input(names[0], scope)):
            return
        level = next((s for s in scope.around() if s.has(names[0])), None) if len(names) > 1 else None
        if level is not None:
            alias = next(i for i in level.inputs if i.lower() == names[0].lower())
            known = [c.name for c in level.of(alias)]
            if not known:
                return
            self.errors.append(
                UnknownName(
                    f'column "{names[1]}" is not in "{alias}"',
                    hint=did_you_mean(names[1], known, f"its columns: {', '.join(known)}"),
                    place=self._part(node, 1),
                )
            )
            return
        if len(names) > 1:
            aliases = [i for s in scope.around() for i in s.inputs]
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
                    place=self._part(node, 0),
                )
            )
            return
        inputs = scope.inputs
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

    def _is_input(self, alias: str, scope: Scope) -> bool:
        return any(s.has(alias) for s in scope.around())

    def _type(self, node: exp.Expr) -> pa.DataType | None:
        try:
            return type_of(node)
        except TypeMismatch as error:
            if not any(e.message == error.message for e in self.errors):
                error.place = error.place or self.place(node)
                self.errors.append(error)
            node.meta["dtype"] = None
            return None


def _argument(value: exp.Expr, name: str, call: exp.Expr) -> exp.Expr:
    """A column among the arguments of a function; in STRUCT it keeps its name."""
    if isinstance(call, exp.Struct):
        return exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value)
    return value


def star_of(node: exp.Expr) -> exp.Star | None:
    """The star of `*` or `x.*`."""
    if isinstance(node, exp.Star):
        return node
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) and not node.args.get("db"):
        return node.this
    return None


def _resolved(column: Visible) -> exp.Expr:
    made = column.value.copy()
    for found in made.find_all(exp.Column):
        found.meta["resolved"] = True
    return made


def _width(holder: exp.Expr | None) -> int:
    """How many columns a subquery gives at its place: one, or as many as the tuple that IN looks for."""
    if isinstance(holder, exp.In) and isinstance(holder.this, exp.Tuple):
        return len(holder.this.expressions)
    return 1


def _copied(value: exp.Expr) -> exp.Expr:
    """A copy. Nearly always it is of a column, where sqlglot's own way takes ten times as long."""
    if type(value) is not exp.Column or not all(
        isinstance(part, exp.Identifier) for part in value.args.values()
    ):
        return value.copy()
    parts = {key: exp.Identifier(this=p.this, quoted=p.quoted) for key, p in value.args.items()}
    made = exp.Column(**parts)
    made.meta.update(value.meta)
    return made


def column_node(column: Visible, like: exp.Expr | None = None) -> exp.Expr:
    """What stands for a column, at the place in the text where it is named."""
    made = _copied(column.value)
    span = span_of(like) if like is not None else None
    if span:
        made.meta.update(start=span[0], end=span[1] - 1)
    return made
