"""Builds what a fold reads of an event: the columns of the query that runs over a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from sqlglot import exp

from millpond.errors import NotSupported, SqlError
from millpond.sql.catalog import Relation
from millpond.sql.conjuncts import all_of, bare, compared_alike, outer_columns, replace_columns
from millpond.sql.fold import SEQ, E, T
from millpond.sql.resolve import Input, Resolved
from millpond.sql.typing import type_of
from millpond.types import Column, Schema

Report = Callable[[SqlError, exp.Expr], None]


class Events:
    """Turns expressions over a target and a source into expressions of a fold, and collects what they read of
    an event.
    """

    def __init__(self, target: Relation, alias: str, assigned: Iterable[str], report: Report):
        self.target = target
        self.alias = alias.lower()
        self.assigned = frozenset(n.lower() for n in assigned)
        self.report = report
        self._outputs: dict[exp.Expr, Column] = {}
        self.fixed: list[tuple[exp.Expr, Column]] = []
        """Expressions with a subquery, over a row and an event, that no assignment changes."""

    def reads_row(self, node: exp.Expr) -> bool:
        return any(c.table.lower() == self.alias for c in outer_columns(node))

    def reads_assigned(self, node: exp.Expr) -> bool:
        return any(
            c.table.lower() == self.alias and c.name.lower() in self.assigned for c in outer_columns(node)
        )

    def event(self, node: exp.Expr) -> exp.Column:
        """Returns an expression over the source as a column of the event."""
        node = bare(node)
        known = self._outputs.get(node)
        if known is None:
            dtype = type_of(node)
            if dtype is None:
                self.report(NotSupported("the type of this expression is not known", hint="CAST it"), node)
            known = self._outputs[node.copy()] = Column(f"c{len(self._outputs)}", dtype)
        return column(E, known)

    def of_pair(self, node: exp.Expr) -> exp.Expr:
        """Returns the expression over the target itself and the columns of an event."""
        return replace_columns(node, lambda c: c.copy() if c.table.lower() == self.alias else self.event(c))

    def of_step(self, node: exp.Expr, *, pairs: bool = True) -> exp.Expr:
        """Returns the expression over a row in the fold and an event. A subquery in it is evaluated before the fold,
        with the events or, if ``pairs``, with the pairs of row and event.
        """
        if node.find(exp.Query) is None:
            return replace_columns(node, self._leaf)
        if not self.reads_row(node):
            return self.event(node)
        if pairs and not self.reads_assigned(node) and type_of(node) is not None:
            self.fixed.append((self.of_pair(node), Column(f"q{len(self.fixed)}", type_of(node))))
            return column(E, self.fixed[-1][1])
        if isinstance(node, exp.Query | exp.Exists | exp.Any | exp.All) or node.args.get("query"):
            self.report(
                NotSupported(
                    "a subquery here cannot read a column that the statement changes",
                    hint="events are applied one by one; compare such a column outside of the subquery",
                ),
                node,
            )
            return exp.Null()
        made = node.copy()
        for key, value in list(made.args.items()):
            if isinstance(value, exp.Expr):
                made.set(key, self.of_step(value, pairs=pairs))
            elif isinstance(value, list):
                made.set(key, [self.of_step(v, pairs=pairs) if isinstance(v, exp.Expr) else v for v in value])
        return made

    def _leaf(self, node: exp.Column) -> exp.Expr:
        if node.table.lower() != self.alias:
            return self.event(node)
        names = [n.lower() for n in self.target.schema.names]
        at = names.index(node.name.lower())
        return column(T, Column(f"r{at}", self.target.schema.columns[at].type))

    def equalities(self, conditions: Iterable[exp.Expr]) -> list[tuple[exp.Column, exp.Expr]]:
        """Returns the ``row.column = value of the event`` conditions for which an index compares as SQL does."""
        found: list[tuple[exp.Column, exp.Expr]] = []
        for part in conditions:
            if not isinstance(part, exp.EQ):
                continue
            for mine, value in ((part.this, part.expression), (part.expression, part.this)):
                mine, value = bare(mine), bare(value)
                if (
                    isinstance(mine, exp.Column)
                    and mine.table.lower() == self.alias
                    and not self.reads_row(value)
                    and value.find(exp.Query) is None
                    and value.find(exp.Column) is not None
                    and compared_alike(mine, value)
                    and not _is_float(mine)
                ):
                    found.append((mine, value))
                    break
        return found

    def lookup(self, pairs: Iterable[tuple[exp.Column, exp.Expr]]) -> tuple[tuple[str, str], ...]:
        """Returns columns of the target, each once, with the columns of the event that they equal."""
        found: dict[str, str] = {}
        for mine, value in pairs:
            known = self.target.schema.find(mine.name)
            if known is not None and known.name not in found:
                found[known.name] = self.event(value).name
        return tuple(found.items())

    def query(
        self, tree: exp.Select, inputs: tuple[Input, ...], view: str, conditions: list[exp.Expr]
    ) -> Resolved:
        """Returns the query of the events. ``tree`` joins the target, as ``view``, with the items of the source; the
        conditions read only the source.
        """
        items = [j.copy() for j in tree.args.get("joins") or ()]
        outputs: list[exp.Expr] = [named(value.copy(), known.name) for value, known in self._outputs.items()]
        columns = list(self._outputs.values())
        if not columns:
            outputs, columns = [exp.alias_(exp.true(), "c0", quoted=True)], [Column("c0", pa.bool_())]
        where = all_of(conditions)
        select = exp.Select(expressions=outputs, from_=exp.From(this=items[0].this), joins=items[1:])
        if where is not None:
            select.set("where", exp.Where(this=where))
        return Resolved(select, Schema(tuple(columns)), inputs_of(select, inputs, but=view))

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(self._outputs.values())


def inputs_of(tree: exp.Expr, inputs: tuple[Input, ...], but: str | None = None) -> tuple[Input, ...]:
    """Returns the inputs that a tree reads."""
    names = {t.name for t in tree.find_all(exp.Table)}
    return tuple(i for i in inputs if i.view in names and i.view != but)


def named(value: exp.Expr, name: str) -> exp.Alias:
    """Returns an output. (``exp.alias_`` would give a subquery its own alias.)"""
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))


def column(table: str, known: Column) -> exp.Column:
    made = exp.Column(
        this=exp.to_identifier(known.name, quoted=True), table=exp.to_identifier(table, quoted=True)
    )
    made.meta["dtype"] = known.type
    return made


def seq() -> exp.Column:
    return column(E, Column(SEQ, pa.int64()))


def _is_float(node: exp.Expr) -> bool:
    dtype = type_of(node)
    return dtype is not None and bool(pa.types.is_floating(dtype))
