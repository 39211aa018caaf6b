"""Builds the queries of the Table API: expressions, conditions and assignments over the rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from millpond.errors import CheckFailed, Error, NotSupported, Place, SqlSyntaxError
from millpond.lookup import Lookup
from millpond.sql.bind import literal
from millpond.sql.builder import MutationBuilder
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checking.mutations import update_part
from millpond.sql.defaults import columns_without_defaults
from millpond.sql.functions import folds
from millpond.sql.lookup import lookup_of
from millpond.sql.nodes import AnyDepth, Element, FilteredValues, Index, Path
from millpond.sql.parse import parse_condition, parse_one_statement
from millpond.sql.paths import ANY, DEEP, Steps
from millpond.sql.placeholders import mark_holes
from millpond.sql.predicates import NOTHING, Reading, read_condition
from millpond.sql.resolve import Resolved, Resolver
from millpond.sql.spans import own_span
from millpond.sql.statement_text import point_at_word
from millpond.sql.statements import CreateTable, Update
from millpond.sql.template import Template
from millpond.types import Schema, quote

_COMPARISONS = {
    "=": exp.EQ, "==": exp.EQ, "<>": exp.NEQ, "!=": exp.NEQ,
    "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE,
}  # fmt: skip
_OTHER_CLAUSES = ("alias", "source", "joins", "where", "returning", "settings", "errors_into")
"""Clauses of an UPDATE that assignments do not have."""
_STEPS: Mapping[str, Callable[[str | int], exp.Expr]] = {
    "name": lambda what: exp.to_identifier(str(what), quoted=True),
    "at": lambda what: Index(this=exp.Literal.number(str(what))),
    ANY: lambda _: exp.Star(),
    DEEP: lambda _: AnyDepth(),
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Represents a condition on the rows of one table. ``reading`` is what an index or a database can search by."""

    text: str
    tree: exp.Expr
    reading: Reading = NOTHING


def parse_columns(text: str) -> Schema:
    """Returns the schema of ``id INT PRIMARY KEY, name STRING``, parsed as in CREATE TABLE."""
    try:
        statement = parse_one_statement(f"CREATE TABLE t ({text}\n)")
    except Error as error:
        error.place = None
        raise
    if not isinstance(statement, CreateTable) or statement.query is not None or statement.settings:
        raise SqlSyntaxError(f"expected columns, found {text!r}", hint="id INT, name STRING")
    inline = tuple(c.name for c in statement.columns if c.primary_key)
    columns = columns_without_defaults(statement.columns, "one of a program")
    return Schema(columns, statement.key or inline)


def parse_filter(relation: Relation, text: str) -> Filter:
    """Returns the condition, checked against the table. Raises its mistakes."""
    tree = parse_condition(text)
    table = tree.find(exp.Table)
    if table is not None:
        raise NotSupported(
            "a condition on rows of a table reads no other rows",
            hint="ask with a query: app.sql",
            place=Place.of(text, *(own_span(table) or (0, len(text)))),
        )
    _resolve(relation, _select(relation, [exp.Star()], tree), text)
    return Filter(text, tree, read_condition(tree, relation.schema))


def parse_assignments(relation: Relation, text: str) -> Resolved:
    """Returns the query that UPDATE makes of ``price = price * 1.1, qty = 0``: the identity of each row, and the new
    row. Raises its mistakes.
    """
    prefix = f"UPDATE {quote(relation.name)} SET "
    try:
        statement = parse_one_statement(prefix + text)
    except Error as error:
        error.place = None
        raise
    if not isinstance(statement, Update) or any(getattr(statement, clause) for clause in _OTHER_CLAUSES):
        raise SqlSyntaxError(f"expected assignments, found {text!r}", hint="price = price * 1.1, qty = 0")
    checker = _Checker(relation, lambda start, end: Place.of(text, start - len(prefix), end - len(prefix)))
    statement = replace(statement, text=text, place=Place.of(text, 0, len(text)))
    part = update_part(MutationBuilder(checker, statement, relation, relation.name), statement)
    for wrong in checker.errors:
        point_at_word(wrong, statement)
    _raise(checker.errors)
    assert part is not None
    return part.query


class _Checker:
    """Resolves queries on a single table."""

    def __init__(self, relation: Relation, locate: Callable[[int, int], Place]):
        self.catalog = Catalog()
        self.catalog.add(relation)
        self.errors: list[Error] = []
        self._locate = locate

    def resolver(self, catalog: Catalog | None = None) -> Resolver:
        return Resolver(catalog or self.catalog, locate=self._locate)


def resolve_filter(relation: Relation, condition: str | Filter | None) -> Resolved:
    """Resolves ``SELECT * FROM relation WHERE condition``. Raises the mistakes of the condition."""
    if isinstance(condition, str):
        condition = parse_filter(relation, condition)
    return resolve_outputs(relation, ("*",), condition)


def resolve_outputs(
    relation: Relation, outputs: Sequence[str], condition: Filter | None, *, distinct: bool = False
) -> Resolved:
    """Resolves ``SELECT outputs FROM relation WHERE condition``: expressions and aggregates, or ``*``."""
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
    """Resolves an aggregate over the values that a path finds, or over those that satisfy a comparison."""
    value: exp.Expr = Path(expressions=[_STEPS[kind](what) for kind, what in steps])
    if compared is not None:
        element = Element(this=exp.Literal.string("held"))
        test = _COMPARISONS[compared[0]](this=element, expression=literal(compared[1], "a constant"))
        value = FilteredValues(this=value, variable=element.copy(), condition=test)
    over = exp.Distinct(expressions=[value]) if distinct else value
    tree = next(node for node, known in folds().items() if known == name.lower())(this=over)
    return _resolve(relation, _select(relation, [tree], None if condition is None else condition.tree), name)


def resolve_lookup(
    relation: Relation, outputs: Sequence[str], condition: str, template: Template
) -> Lookup | None:
    """Returns the lookup for ``SELECT outputs FROM relation WHERE condition``, if it is one, for any values in the
    holes of the condition's template. Raises its mistakes.
    """
    tree = parse_condition(condition)
    if not mark_holes(tree, template):
        return None
    query = resolve_outputs(relation, outputs, Filter(condition, tree))
    return lookup_of(query, template.holes)


def resolve_values(schema: Schema, rows: tuple[tuple[exp.Expr, ...], ...]) -> Resolved:
    """Returns rows of checked VALUES as a query with the columns of the schema."""
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
    resolver = _Checker(relation, lambda start, end: Place.of(text, start, end)).resolver()
    resolved = resolver.resolve(select)
    _raise(resolver.errors)
    return resolved


def _raise(errors: Sequence[Error]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise CheckFailed(errors)
