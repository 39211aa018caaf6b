"""Queries that the Table API asks for: expressions, conditions and assignments over the rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.errors import CheckFailed, Error, Place, SqlError, SqlSyntaxError, UnknownName, did_you_mean
from millpond.lookup import Lookup
from millpond.sql.assign import assign
from millpond.sql.bind import literal
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.conjuncts import conjuncts
from millpond.sql.functions import folds
from millpond.sql.holes import mark_holes
from millpond.sql.lookup import lookup_of
from millpond.sql.nodes import AnyDepth, Element, HeldValues, Index, Path
from millpond.sql.parse import parse_condition, parse_one_statement
from millpond.sql.paths import ANY, DEEP, Steps
from millpond.sql.resolve import Resolved, Resolver
from millpond.sql.statements import CreateTable, Update
from millpond.sql.template import Template
from millpond.types import Column, Schema, quote

_COMPARISONS = {
    "=": exp.EQ, "==": exp.EQ, "<>": exp.NEQ, "!=": exp.NEQ,
    "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE,
}  # fmt: skip
_STEPS: Mapping[str, Callable[[str | int], exp.Expr]] = {
    "name": lambda what: exp.to_identifier(str(what), quoted=True),
    "at": lambda what: Index(this=exp.Literal.number(str(what))),
    ANY: lambda _: exp.Star(),
    DEEP: lambda _: AnyDepth(),
}


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on the rows of one table. ``equal`` are the columns that it wants to equal a constant, which an
    index can find; ``exact`` says that it wants nothing else."""

    text: str
    tree: exp.Expr
    equal: Mapping[str, Any]
    exact: bool


@dataclass(frozen=True, slots=True)
class Assignments:
    """``price = price * 1.1, qty = 0``: an expression for each column that is set, as the table spells it."""

    text: str
    values: Mapping[str, exp.Expr]


def parse_columns(text: str) -> Schema:
    """The schema of ``id INT PRIMARY KEY, name STRING``, as CREATE TABLE reads it."""
    try:
        statement = parse_one_statement(f"CREATE TABLE t ({text}\n)")
    except Error as error:
        error.place = None
        raise
    if not isinstance(statement, CreateTable) or statement.query is not None or statement.settings:
        raise SqlSyntaxError(f"expected columns, found {text!r}", hint="id INT, name STRING")
    inline = tuple(c.name for c in statement.columns if c.primary_key)
    columns = tuple(Column(c.name, c.type, c.nullable) for c in statement.columns)
    return Schema(columns, statement.key or inline)


def parse_filter(relation: Relation, text: str) -> Filter:
    """The condition, checked against the table. Raises what is wrong with it."""
    tree = parse_condition(text)
    _resolve(relation, _select(relation, [exp.Star()], tree), text)
    parts = list(conjuncts(tree))
    equal: dict[str, Any] = {}
    for part in parts:
        found = _equality(part, relation.schema)
        if found is not None and found[0] not in equal:
            equal[found[0]] = found[1]
    return Filter(text, tree, equal, exact=len(equal) == len(parts))


def parse_assignments(relation: Relation, text: str) -> Assignments:
    """What SET says, checked against the table. Raises what is wrong with it."""
    prefix = f"UPDATE {quote(relation.name)} SET "
    try:
        statement = parse_one_statement(prefix + text)
    except Error as error:
        error.place = None
        raise
    if not isinstance(statement, Update) or statement.where is not None or statement.source is not None:
        raise SqlSyntaxError(f"expected assignments, found {text!r}", hint="price = price * 1.1, qty = 0")
    values: dict[str, exp.Expr] = {}
    for name, value in statement.assignments:
        column = relation.schema.find(name)
        if column is None:
            known = relation.schema.names
            raise UnknownName(
                f'column "{name}" is not in table "{relation.name}"',
                hint=did_you_mean(name, known, f"its columns: {', '.join(known)}"),
            )
        if column.name in values:
            raise SqlError(f'column "{column.name}" is assigned twice')
        values[column.name] = value
    assignments = Assignments(text, values)
    resolve_assignments(relation, assignments)
    return assignments


def resolve_filter(relation: Relation, condition: str | Filter | None) -> Resolved:
    """``SELECT * FROM relation WHERE condition``. Raises what is wrong with the condition."""
    if isinstance(condition, str):
        condition = parse_filter(relation, condition)
    return resolve_outputs(relation, ("*",), condition)


def resolve_outputs(
    relation: Relation, outputs: Sequence[str], condition: Filter | None, *, distinct: bool = False
) -> Resolved:
    """``SELECT outputs FROM relation WHERE condition``: expressions and aggregates, or ``*``."""
    trees = [exp.Star() if o.strip() == "*" else parse_condition(o) for o in outputs]
    select = _select(relation, trees, None if condition is None else condition.tree)
    if distinct:
        select = select.distinct()
    return _resolve(relation, select, outputs[0])


def resolve_over_path(
    relation: Relation,
    name: str,
    distinct: bool,
    steps: Steps,
    compared: tuple[str, Any] | None,
    condition: Filter | None,
) -> Resolved:
    """An aggregate over the values that a path finds, or those of them that compare so."""
    value: exp.Expr = Path(expressions=[_STEPS[kind](what) for kind, what in steps])
    if compared is not None:
        element = Element(this=exp.Literal.string("held"))
        test = _COMPARISONS[compared[0]](this=element, expression=literal(compared[1], "a constant"))
        value = HeldValues(this=value, variable=element.copy(), condition=test)
    over = exp.Distinct(expressions=[value]) if distinct else value
    tree = next(node for node, known in folds().items() if known == name.lower())(this=over)
    return _resolve(relation, _select(relation, [tree], None if condition is None else condition.tree), name)


def resolve_lookup(
    relation: Relation, outputs: Sequence[str], condition: str, template: Template
) -> Lookup | None:
    """The lookup that ``SELECT outputs FROM relation WHERE condition`` is, if it is one, for any values in the holes of
    the condition's template. Raises what is wrong with it."""
    tree = parse_condition(condition)
    if not mark_holes(tree, template):
        return None
    query = resolve_outputs(relation, outputs, Filter(condition, tree, {}, exact=False))
    return lookup_of(query, template.holes)


def resolve_assignments(
    relation: Relation,
    assignments: Assignments,
    *,
    beside: Mapping[str, str] | None = None,
    seen: Relation | None = None,
) -> Resolved:
    """Every row of the relation as the assignments make it, in its types; ``beside`` are columns as they were,
    by the names under which they stand behind it. ``seen`` is the relation with the columns of ``beside`` that it
    has not itself."""
    seen = seen or relation
    outputs: list[exp.Expr] = []
    for column in relation.schema:
        value = assignments.values.get(column.name)
        named = exp.Paren(this=value.copy()) if value is not None else _column(column.name)
        outputs.append(exp.alias_(named, column.name, quoted=True))
    more = []
    for name, source in (beside or {}).items():
        outputs.append(exp.alias_(_column(source), name, quoted=True))
        known = seen.schema.find(source)
        more.append(Column(name, known.type if known else None))
    resolved = _resolve(seen, _select(seen, outputs, None), assignments.text)
    target = Schema((*relation.schema.columns, *more))
    assigned, errors = assign(resolved, target, target.names, None)
    _raise(errors)
    return assigned


def assigned_values(assigned: Resolved, names: Sequence[str]) -> dict[str, exp.Expr]:
    """What the columns of those names are set to, of what ``resolve_assignments`` has made."""
    inner = assigned.expression.args["from_"].this.this
    return {o.alias: o.this for o in inner.expressions if o.alias in names}


def resolve_values(schema: Schema, rows: tuple[tuple[exp.Expr, ...], ...]) -> Resolved:
    """Rows of checked VALUES as a query with the columns of the schema."""
    alias = "__values"
    names = [f"col{i + 1}" for i in range(len(schema))]
    outputs: list[exp.Expr] = []
    for name, column in zip(names, schema, strict=True):
        value = exp.Column(
            this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True)
        )
        value.meta["dtype"] = column.type
        outputs.append(exp.alias_(value, column.name, quoted=True))
    values = exp.Values(
        expressions=[exp.Tuple(expressions=[c.copy() for c in row]) for row in rows],
        alias=exp.TableAlias(
            this=exp.to_identifier(alias, quoted=True),
            columns=[exp.to_identifier(n, quoted=True) for n in names],
        ),
    )
    return Resolved(exp.Select(expressions=outputs, from_=exp.From(this=values)), schema, ())


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _select(relation: Relation, outputs: Sequence[exp.Expr], where: exp.Expr | None) -> exp.Select:
    select = exp.Select(expressions=list(outputs)).from_(
        exp.Table(this=exp.to_identifier(relation.name, quoted=True))
    )
    return select if where is None else select.where(where.copy())


def _resolve(relation: Relation, select: exp.Select, text: str) -> Resolved:
    catalog = Catalog()
    catalog.add(relation)
    resolver = Resolver(catalog, locate=lambda start, end: Place.of(text, start, end))
    resolved = resolver.resolve(select)
    _raise(resolver.errors)
    return resolved


def _raise(errors: Sequence[Error]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise CheckFailed(errors)


def _equality(tree: exp.Expr, schema: Schema) -> tuple[str, Any] | None:
    """The column and the constant of ``column = constant``, if an index compares them as SQL does."""
    if not isinstance(tree, exp.EQ):
        return None
    left, right = (tree.right, tree.left) if isinstance(tree.right, exp.Column) else (tree.left, tree.right)
    if not isinstance(left, exp.Column) or isinstance(left.this, exp.Star):
        return None
    column = schema.find(left.name) if len(left.parts) == 1 else None
    negative = isinstance(right, exp.Neg)
    literal = right.this if negative else right
    if column is None or column.type is None or not isinstance(literal, exp.Literal):
        return None
    t, text = pa.types, str(literal.this)
    if literal.is_string:
        return (column.name, text) if t.is_string(column.type) and not negative else None
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        return None
    number = -Decimal(text) if negative else Decimal(text)
    if t.is_integer(column.type) and text.isdigit():
        half = 1 << (column.type.bit_width - 1)
        return (column.name, int(number)) if -half <= number < half else None
    if t.is_decimal(column.type):
        whole, _, fraction = text.partition(".")
        fits = len(fraction) <= column.type.scale and len(whole) <= column.type.precision - column.type.scale
        return (column.name, number) if fits else None
    return None
