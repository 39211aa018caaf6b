"""Queries that the Table API asks for: rows of one table under a condition."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import CheckFailed
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.parse import parse_condition
from millpond.sql.resolve import Resolved, Resolver
from millpond.types import Schema


def resolve_filter(relation: Relation, condition: str | None) -> Resolved:
    """``SELECT * FROM relation WHERE condition``. Raises what is wrong with the condition."""
    select = exp.select("*").from_(exp.Table(this=exp.to_identifier(relation.name, quoted=True)))
    if condition is not None:
        select = select.where(parse_condition(condition))
    catalog = Catalog()
    catalog.add(relation)
    resolver = Resolver(catalog)
    resolved = resolver.resolve(select)
    if len(resolver.errors) == 1:
        raise resolver.errors[0]
    if resolver.errors:
        raise CheckFailed(resolver.errors)
    return resolved


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
