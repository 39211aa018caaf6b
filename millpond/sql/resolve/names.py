"""Resolves names among the inputs and the outputs of a SELECT, and builds the errors for unknown names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from millpond.errors import NotSupported, Place, SqlError, UnknownName, did_you_mean
from millpond.sql.catalog import Catalog
from millpond.sql.scope import Scope, Visible
from millpond.sql.spans import span_of

INLINED = 20_000
"""The maximum number of nodes that names of the SELECT list expand to, in a whole statement."""
INLINED_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Aliases:
    """Contains the columns of a SELECT list that an expression may name: if no input column has the name; in ORDER BY
    before those (``first``); in HAVING before those that are not grouped by. If ``several`` of them may have a name,
    the first is meant; otherwise that is an error.
    """

    outputs: list[exp.Alias]
    groups: tuple[exp.Expr, ...] | None = None
    first: bool = False
    several: bool = False

    def find(self, name: str) -> list[exp.Alias]:
        return [o for o in self.outputs if o.alias.lower() == name.lower()]

    def ambiguous(self, name: str) -> UnknownName | None:
        """Returns the error for a name of several columns, if that is one."""
        if self.first or self.several:
            return None
        message = f'column "{name}" is ambiguous: it stands several times in SELECT'
        return UnknownName(message, hint="give each another name with AS")


def inside_aggregate(names: Aliases | None) -> Aliases | None:
    """Returns what an aggregate, with its FILTER and its order, may name: in HAVING too, first the columns of
    the inputs.
    """
    return Aliases(names.outputs) if names is not None and names.groups is not None else names


class Inlining:
    """Replaces names of SELECT columns with their expressions. Each may name the previous one twice, so the total is
    counted over the whole statement.
    """

    def __init__(self) -> None:
        self._nodes = 0

    def copy(self, value: exp.Expr, place: Callable[[], Place | None]) -> exp.Expr:
        """Returns a copy of the expression of a column. Raises NotSupported if the total becomes too large."""
        todo = [(value, 0)]
        while todo:
            part, depth = todo.pop()
            self._nodes += 1
            if self._nodes > INLINED or depth > INLINED_DEPTH:
                raise NotSupported(
                    "columns of SELECT that name one another make too large an expression",
                    hint="compute some of them in a subquery, or with WITH",
                    place=place(),
                )
            todo += [(inner, depth + 1) for inner in part.iter_expressions()]
        return value.copy()


def is_input(alias: str, scope: Scope) -> bool:
    """Returns whether an input of the query, or of an outer one, has the alias."""
    return any(s.has(alias) for s in scope.around())


def beyond_lateral(level: Scope, scope: Scope, node: exp.Expr) -> SqlError | None:
    """Refuses a column of inputs left of LATERAL in a query nested further inside, as Spark does."""
    if not level.lateral or level is scope:
        return None
    inside = scope.outer
    while inside is not None and inside is not level and not inside.select:
        inside = inside.outer
    if inside is level:
        return None
    return SqlError(
        f'"{node.sql()}" is of a query that is not the one around this one',
        hint="name it in the query behind LATERAL, and refer to that",
    )


def ambiguous(name: str, matches: list[Visible]) -> UnknownName:
    """Returns the error for a name of several columns."""
    owners = [f'"{m.alias}"' for m in matches if m.alias]
    first = next((m for m in matches if m.alias), None)
    return UnknownName(
        f'column "{name}" is ambiguous: it is in {" and ".join(owners) or "one input twice"}',
        hint=f"write {first.alias}.{first.name}"
        if first is not None and len(set(owners)) == len(owners)
        else "give its inputs aliases, and its columns names, that differ",
    )


def unknown_column(names: list[str], scope: Scope, catalog: Catalog) -> tuple[UnknownName, int | None] | None:
    """Returns the error for a name with dots that no column has, and the wrong part of it, None for all of it. No error
    if an input is unknown: its columns are then unknown too, and one mistake causes one message.
    """
    unknown = any(s.unknown for s in scope.around())
    if unknown and (len(names) == 1 or not is_input(names[0], scope)):
        return None
    level = next((s for s in scope.around() if s.has(names[0])), None) if len(names) > 1 else None
    if level is not None:
        alias = next(i for i in level.inputs if i.lower() == names[0].lower())
        known = [c.name for c in level.of(alias)]
        if not known:
            return None
        message = f'column "{names[1]}" is not in "{alias}"'
        hint = did_you_mean(names[1], known, f"its columns: {', '.join(known)}")
        return UnknownName(message, hint=hint), 1
    if len(names) > 1:
        return _unknown_input(names[0], scope, catalog)
    inputs = scope.inputs
    where = f'"{inputs[0]}"' if len(inputs) == 1 else "this query's inputs"
    known = scope.names()
    return UnknownName(
        f'column "{names[0]}" is not in {where}' if inputs else f'column "{names[0]}" is not known',
        hint=did_you_mean(
            names[0],
            known,
            f"columns: {', '.join(dict.fromkeys(known))}" if known else "there is no FROM",
        ),
    ), None


def _unknown_input(name: str, scope: Scope, catalog: Catalog) -> tuple[UnknownName, int | None]:
    stream = catalog.find(name)
    if stream is not None and stream.kind == "stream":
        message = f'stream "{stream.name}" is named here, but is not an input of the statement'
        hint = f"a statement that follows a stream reads it: UPDATE … SET … FROM {stream.name} WHERE …"
        return UnknownName(message, hint=hint), None
    aliases = [i for s in scope.around() for i in s.inputs]
    known = did_you_mean(name, aliases, f"its inputs: {', '.join(aliases) or 'none'}")
    return UnknownName(f'"{name}" is not an input of this query', hint=known), 0


def column_node(column: Visible, like: exp.Expr | None = None) -> exp.Expr:
    """Returns the node of a column, at the place in the text where it is named."""
    made = _copied(column.value)
    span = span_of(like) if like is not None else None
    if span:
        made.meta.update(start=span[0], end=span[1] - 1)
    return made


def _copied(value: exp.Expr) -> exp.Expr:
    """Returns a copy. It is nearly always of a column, where sqlglot's own copy takes ten times as long."""
    if type(value) is not exp.Column or not all(
        isinstance(part, exp.Identifier) for part in value.args.values()
    ):
        return value.copy()
    parts = {key: exp.Identifier(this=p.this, quoted=p.quoted) for key, p in value.args.items()}
    made = exp.Column(**parts)
    made.meta.update(value.meta)
    return made
