"""Writes what a checked query means as a text that does not depend on how the query is written.

Stars are expanded in it, columns have the names of their inputs, named views are replaced by their queries, and inputs
have numbers in place of aliases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from millpond.alterations import RenamedColumn
from millpond.options import Option, find_option
from millpond.sql.catalog import Relation
from millpond.sql.joins.model import JoinedStreams, Side
from millpond.sql.renames import Renamed
from millpond.sql.resolve import Resolved
from millpond.sql.versions import words_of
from millpond.types import Schema, type_name

OptionsOf = Callable[[Relation], Mapping[str, Any]]
"""Returns the values of the options of an input outside that decide which rows it has."""


def meaning(query: Resolved, options_of: OptionsOf) -> str:
    """Returns what a query means; equal texts mean that the queries return the same rows of the same inputs."""
    expression = without_aliases(query)
    named = {c.name.lower() for c in expression.find_all(exp.Column)}
    inputs = (f"{i.view}: {_input(i.relation, named, options_of)}" for i in query.inputs)
    return "\n".join((repr(expression), *inputs))


def renamed_query(query: Resolved, renamed: Renamed, *, outputs: bool) -> Resolved:
    """Returns a query as it is when a table, or a column of it, has its new name. Other names stay: those of fields,
    of columns that a join has in common, and of outputs, unless ``outputs`` says that they are the table's columns.
    """
    expression = query.expression.copy()
    if renamed.column is not None:
        views = {i.view.lower() for i in query.inputs if _is_of(i.relation, renamed.table.lower())}
        aliases = {t.alias_or_name.lower() for t in expression.find_all(exp.Table) if t.name.lower() in views}
        for column in expression.find_all(exp.Column):
            if column.table.lower() in aliases and column.name.lower() == renamed.column.lower():
                column.this.set("this", renamed.new)
        for output in expression.selects if outputs and isinstance(expression, exp.Query) else ():
            if isinstance(output, exp.Alias) and output.alias.lower() == renamed.column.lower():
                output.args["alias"].set("this", renamed.new)
    inputs = tuple(replace(i, relation=_renamed(i.relation, renamed)) for i in query.inputs)
    return replace(query, expression=expression, inputs=inputs)


def _is_of(relation: Relation, table: str) -> bool:
    return table in (relation.name.lower(), (relation.rows_of or "").lower())


def _renamed(relation: Relation, renamed: Renamed) -> Relation:
    old = renamed.table.lower()
    if isinstance(relation, JoinedStreams):
        return relation
    if renamed.column is None:
        names = [renamed.new if (n or "").lower() == old else n for n in (relation.name, relation.rows_of)]
        return replace(relation, name=names[0] or "", rows_of=names[1])
    if not _is_of(relation, old):
        return relation
    return replace(relation, schema=RenamedColumn(renamed.column, renamed.new).schema(relation.schema))


def same_schema(one: Schema, other: Schema) -> bool:
    """Returns whether two schemas have the same columns, types and key."""
    return described(one) == described(other)


def described(schema: Schema) -> tuple[object, ...]:
    columns = tuple((c.name, c.type, c.nullable, c.default) for c in schema if not c.hidden)
    return columns, tuple(k.lower() for k in schema.key)


def telling(options: Mapping[str, Any], declared: tuple[Option, ...]) -> dict[str, Any]:
    """Returns the options that decide which rows there are: passwords, times and sizes of batches do not."""
    found = {}
    for name, value in options.items():
        option = find_option(declared, name)
        if option is None or (option.kind not in ("secret", "duration", "size") and not option.live):
            found[name] = value
    return found


def _input(relation: Relation, named: set[str], options_of: OptionsOf) -> str:
    if isinstance(relation, JoinedStreams):
        join = relation.join
        sides = (_side(side, options_of) for side in join.sides)
        return f"{join.kind} JOIN {meaning(join.pairs, options_of)} ({'; '.join(sides)})"
    columns = ", ".join(
        f"{c.name.lower()} {type_name(c.type)}" for c in relation.schema if c.name.lower() in named
    )
    about = [relation.kind, (relation.rows_of or relation.name).lower() if relation.kind != "source" else ""]
    if relation.uri is not None:
        about += [relation.uri, repr(sorted(options_of(relation).items(), key=str))]
    if relation.at is not None:
        about.append(words_of(relation.at))
    if relation.watermark is not None:
        about.append(f"watermark {relation.watermark.column.lower()} {relation.watermark.seconds}")
    return f"{' '.join(about)} ({columns})"


def _side(side: Side, options_of: OptionsOf) -> str:
    return f"{meaning(side.query, options_of)} {side.time} {side.reach} {side.mark} {side.outer}"


def without_aliases(query: Resolved) -> exp.Expr:
    """Returns the query with the numbers of its inputs in place of their aliases, where an alias is used once."""
    expression = query.expression.copy()
    used = Counter(a.name.lower() for a in expression.find_all(exp.TableAlias))
    views = {t.alias.lower(): t.name for t in expression.find_all(exp.Table) if used[t.alias.lower()] == 1}
    for table in expression.find_all(exp.Table):
        if table.alias.lower() in views:
            table.args["alias"].set("this", exp.to_identifier(views[table.alias.lower()]))
    for column in expression.find_all(exp.Column):
        if column.table.lower() in views:
            column.set("table", exp.to_identifier(views[column.table.lower()]))
    for name in expression.find_all(exp.Identifier):
        name.set("quoted", True)
    # What parentheses say is in the tree.
    for inside in list(expression.find_all(exp.Paren)):
        inside.replace(inside.this)
    return expression
