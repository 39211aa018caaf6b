"""Turns two streams in one FROM into one: the outer query sees the joined rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import NotSupported, Place, SqlError
from millpond.sql.conjuncts import all_of, compared_alike, conjuncts, replace_columns
from millpond.sql.joins.bounds import Bound, find_bounds
from millpond.sql.joins.model import (
    LEFT,
    LEFT_ID,
    RIGHT,
    RIGHT_ID,
    JoinedStreams,
    Side,
    StreamJoin,
    StreamWatermark,
)
from millpond.sql.joins.shape import Shape, read_shape
from millpond.sql.joins.warnings import unbounded_outer
from millpond.sql.joins.watermarks import watermark_of
from millpond.sql.render.spark import expression as spark_expression
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import Streams, check_running, from_items
from millpond.types import Column, Schema

At = Callable[[exp.Expr], Place | None]
_ID = pa.int64()


def lower_joins(resolved: Resolved, place: At, at: Place | None) -> tuple[Resolved, list[SqlError]]:
    """Changes the query in place so that every join of two streams is one input, and returns it with the errors of the
    joins.
    """
    work = _Lowering(resolved, place, at)
    work.run()
    return Resolved(resolved.expression, resolved.schema, tuple(work.inputs)), work.errors


class _Lowering:
    def __init__(self, resolved: Resolved, place: At, at: Place | None):
        self.tree = resolved.expression
        self.inputs = list(resolved.inputs)
        self.errors: list[SqlError] = []
        self._streams = Streams(resolved)
        self._known_place, self._at = place, at

    def run(self) -> None:
        """Lowers the innermost SELECT first; three streams are a join of a join."""
        for select in reversed(list(self.tree.find_all(exp.Select))):
            while sum(self._streams.is_stream(item) for item, _ in from_items(select)) > 1:
                if not self._lower(select):
                    return
        self._drop_unused()

    def _place(self, node: exp.Expr) -> Place | None:
        return self._known_place(node) or self._at

    def _lower(self, select: exp.Select) -> bool:
        shape = read_shape(select, self._streams, self._place, self.errors)
        if shape is None:
            return False
        names = _Names(shape)
        alias = f"__j{len(self.inputs)}"
        conditions = [replace_columns(c, names.inside) for c in shape.on]
        shape.replace(select, alias, lambda column: names.outside(column, alias))
        bound, marks = self._bound(shape)
        sides = []
        for n in (0, 1):
            time = None if bound is None else names.of(shape.aliases[n], (bound.left, bound.right)[n])
            reach = None if bound is None else (bound.high, _negative(bound.low))[n]
            outer = shape.kind in ("FULL", ("LEFT", "RIGHT")[n])
            query = self._side(shape, n, names)
            sides.append(Side(shape.aliases[n], query, time, reach, marks[n], outer))
        schema = Schema((*sides[0].query.schema.columns, *sides[1].query.schema.columns))
        self._check(schema, sides, shape)
        join = StreamJoin(
            shape.kind,
            (sides[0], sides[1]),
            _pairs(sides[0].query.schema, sides[1].query.schema, conditions),
            tuple(_keys(conditions)),
            " AND ".join(spark_expression(c) for c in shape.on),
            self._place(shape.items[1]),
        )
        self.errors += unbounded_outer(join)
        name = f"{sides[0].stream.name} JOIN {sides[1].stream.name}"
        relation = JoinedStreams(name, "stream", schema, running=True, join=join)
        self.inputs.append(Input(alias, alias, relation))
        self._streams.views.add(alias)
        return not self.errors

    def _check(self, schema: Schema, sides: list[Side], shape: Shape) -> None:
        for column in schema:
            if column.type is None:
                self.errors.append(
                    NotSupported(
                        f'the type of column "{column.name}" of a join of streams is not known',
                        hint="CAST it to the type that it has",
                        place=self._place(shape.items[1]),
                    )
                )
        for side, item in zip(sides, shape.items, strict=True):
            self.errors += check_running(side.query, self._place, self._place(item))
            streams = Streams(side.query)
            if any(streams.keeps_table_rows(s) for s in side.query.expression.find_all(exp.Select)):
                self.errors.append(
                    NotSupported(
                        "a join of streams cannot read a join that keeps rows of a table",
                        hint="use INNER or LEFT JOIN, the stream first",
                        place=self._place(item),
                    )
                )

    def _bound(
        self, shape: Shape
    ) -> tuple[Bound | None, tuple[StreamWatermark | None, StreamWatermark | None]]:
        """Returns the bound that lets most rows expire, with the watermarks of its times."""

        def watermarks(bound: Bound) -> tuple[StreamWatermark | None, StreamWatermark | None]:
            left, right = (self._standalone(item) for item in shape.items)
            return watermark_of(left, bound.left, self.inputs), watermark_of(right, bound.right, self.inputs)

        def worth(bound: Bound) -> tuple[int, int]:
            left, right = watermarks(bound)
            return (bound.high is not None and right is not None) + (
                bound.low is not None and left is not None
            ), bound.ends

        best = max(find_bounds(shape.on, *shape.aliases), key=worth, default=None)
        return best, (watermarks(best) if best is not None else (None, None))

    def _standalone(self, item: exp.Expr) -> exp.Expr:
        """Returns a copy of an item of FROM that names no CTE."""
        item = item.copy()
        if isinstance(item, exp.Table) and item.name.lower() in self._streams.ctes:
            inner = self._standalone(self._streams.ctes[item.name.lower()])
            return exp.Subquery(this=inner, alias=item.args.get("alias") or _alias(item.name))
        for table in list(item.find_all(exp.Table)):
            if table is not item and table.name.lower() in self._streams.ctes:
                table.replace(self._standalone(table))
        return item

    def _side(self, shape: Shape, n: int, names: _Names) -> Resolved:
        item, alias = self._standalone(shape.items[n]), shape.aliases[n]
        columns = names.columns(alias) or [names.first(item, alias, self.inputs)]
        outputs: list[exp.Expr] = []
        for name, column in columns:
            outputs.append(exp.alias_(column.copy(), name, quoted=True))
        where = all_of(shape.pushed[n])
        select = exp.Select(
            expressions=outputs,
            from_=exp.From(this=item),
            where=None if where is None else exp.Where(this=where),
        )
        schema = Schema(tuple(Column(name, column.meta.get("dtype")) for name, column in columns))
        return Resolved(select, schema, tuple(self._read_by(select)))

    def _read_by(self, tree: exp.Expr) -> Iterator[Input]:
        views = {t.name for t in tree.find_all(exp.Table)}
        return (i for i in self.inputs if i.view in views)

    def _drop_unused(self) -> None:
        """Drops CTEs that only the sides of a join read: they are now part of the sides."""
        for with_ in list(self.tree.find_all(exp.With)):
            used = {t.name.lower() for t in self.tree.find_all(exp.Table)}
            left = [
                c
                for c in with_.expressions
                if c.alias.lower() in used or not self._streams.query_has_stream(c.this)
            ]
            with_.set("expressions", left)
            if not left and with_.parent is not None:
                with_.parent.set("with_", None)
        self.inputs = list(self._read_by(self.tree))


class _Names:
    """Names the columns of the joined stream: those of both sides that anything reads."""

    def __init__(self, shape: Shape):
        self._aliases = {a.lower(): n for n, a in enumerate(shape.aliases)}
        self._known: dict[tuple[str, str], tuple[str, exp.Column]] = {}

    def of(self, alias: str, column: str) -> str:
        return self._known[(alias.lower(), column.lower())][0]

    def columns(self, alias: str) -> list[tuple[str, exp.Column]]:
        return [found for (owner, _), found in self._known.items() if owner == alias.lower()]

    def first(self, item: exp.Expr, alias: str, inputs: list[Input]) -> tuple[str, exp.Column]:
        """Returns any column, for a side of which nothing is read."""
        names = item.args["alias"].args.get("columns")
        if names:
            name, dtype = names[0].name, None
        elif isinstance(item, exp.Table):
            first = next(i for i in inputs if i.view == item.name).relation.schema.columns[0]
            name, dtype = first.name, first.type
        else:
            inner = item.find(exp.Select)
            assert inner is not None
            projection = inner.expressions[0]
            name, dtype = projection.alias, projection.unalias().meta.get("dtype")
        column = _column(alias, name, dtype)
        self._named(column)
        return self._known[(alias.lower(), name.lower())]

    def inside(self, column: exp.Column) -> exp.Expr:
        """Returns a column in the query for pairs."""
        side = self._aliases.get(column.table.lower())
        if side is None:
            return column.copy()
        return _column((LEFT, RIGHT)[side], self._named(column), column.meta.get("dtype"))

    def outside(self, column: exp.Column, joined: str) -> exp.Expr:
        """Returns a column in the query above the join."""
        if column.table.lower() not in self._aliases:
            return column.copy()
        return _column(joined, self._named(column), column.meta.get("dtype"))

    def _named(self, column: exp.Column) -> str:
        key = (column.table.lower(), column.name.lower())
        if key not in self._known:
            taken = {name.lower() for name, _ in self._known.values()}
            # Columns of an inner join already have names of this form.
            plain = column.name if column.table.startswith("__j") else f"{column.table}_{column.name}"
            name, n = plain, 1
            while name.lower() in taken:
                name, n = f"{plain}_{n}", n + 1
            self._known[key] = (name, column)
        return self._known[key][0]


def _pairs(left: Schema, right: Schema, conditions: list[exp.Expr]) -> Resolved:
    """Returns the matching rows of the two sides, with their numbers."""
    outputs: list[exp.Expr] = []
    for view, schema in ((LEFT, left), (RIGHT, right)):
        outputs += [exp.alias_(_column(view, c.name, c.type), c.name, quoted=True) for c in schema]
    for view, name in ((LEFT, LEFT_ID), (RIGHT, RIGHT_ID)):
        outputs.append(exp.alias_(_column(view, "_id", _ID), name, quoted=True))
    condition = all_of(conditions)
    join = exp.Join(this=_view(RIGHT), on=condition) if condition is not None else exp.Join(this=_view(RIGHT))
    select = exp.Select(expressions=outputs, from_=exp.From(this=_view(LEFT)), joins=[join])
    ids = (Column(LEFT_ID, _ID), Column(RIGHT_ID, _ID))
    return Resolved(select, Schema((*left.columns, *right.columns, *ids)), ())


def _keys(conditions: list[exp.Expr]) -> Iterator[tuple[str, str]]:
    for condition in (c for part in conditions for c in conjuncts(part)):
        if isinstance(condition, exp.EQ):
            a, b = condition.this.unnest(), condition.expression.unnest()
            if isinstance(a, exp.Column) and isinstance(b, exp.Column) and compared_alike(a, b):
                if (a.table, b.table) == (RIGHT, LEFT):
                    a, b = b, a
                if (a.table, b.table) == (LEFT, RIGHT):
                    yield a.name, b.name


def _negative(length: int | None) -> int | None:
    return None if length is None else -length


def _column(table: str, name: str, dtype: pa.DataType | None) -> exp.Column:
    made = exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))
    made.meta["dtype"] = dtype
    return made


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def _view(name: str) -> exp.Table:
    return exp.Table(this=exp.to_identifier(name), alias=_alias(name))
