"""Rewrites scalar subqueries as joins.

`WHERE t.x > (SELECT AVG(u.y) FROM u WHERE u.k = t.k)` becomes a LEFT JOIN with the groups of ``u`` by ``k``, and a
condition on its column; a total that reads nothing around it a CROSS JOIN with one row. A subquery that does not
aggregate is joined as it is, with the note that a second row is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from millpond.sql.aggregate.final import replaced
from millpond.sql.aggregate.find import aggregates, call_of
from millpond.sql.aggregate.nodes import cast, column, named
from millpond.sql.conjuncts import all_of, conjuncts, outer_columns
from millpond.sql.grouping import is_aggregated
from millpond.sql.incremental.frames import NotKept
from millpond.sql.incremental.joins import SINGLE
from millpond.sql.running_queries import from_items
from millpond.sql.typing import output_types, type_of
from millpond.types import Column

_MORE = ("limit", "offset", "qualify", "having", "group", "with_", "distinct", "laterals")
_NONE_OF = set(
    "SUM AVG MIN MAX STDDEV STDDEV_POP STDDEV_SAMP VARIANCE VARIANCE_POP MEDIAN LOGICAL_OR LOGICAL_AND "
    "BIT_AND_AGG BIT_OR_AGG BIT_XOR_AGG CORR COVAR_POP COVAR_SAMP SKEWNESS KURTOSIS".split()
)
"""Aggregates that are NULL without rows; COUNT is 0."""


def scalars(tree: exp.Expr) -> exp.Expr:
    number = 0
    for select in reversed(list(tree.find_all(exp.Select))):
        known: list[tuple[exp.Expr, exp.Expr]] = []
        for found in list(_scalars_of(select)):
            value = next((v for query, v in known if query == found), None)
            if value is None:
                query, number = found.copy(), number + 1
                value = _joined(select, found.this, f"__s{number}")
                known.append((query, value))
            _replace(found, value.copy())
    return tree


def _scalars_of(select: exp.Select) -> Iterator[exp.Subquery]:
    """Yields the scalar subqueries of the rows of a SELECT."""
    clauses = [select.args.get(name) for name in ("where", "group")]
    for root in (*select.expressions, *(c for c in clauses if c is not None)):
        yield from _within(root)


def _within(node: exp.Expr) -> Iterator[exp.Subquery]:
    for child in node.iter_expressions():
        if isinstance(child, exp.Subquery) and not isinstance(node, exp.In | exp.Exists | exp.Any | exp.All):
            yield child
        elif not isinstance(child, exp.Query):
            yield from _within(child)


def _replace(found: exp.Expr, value: exp.Expr) -> None:
    """Puts a value in the place of a subquery. What was derived from the subquery's type is derived again."""
    above = found.parent
    found.replace(value)
    while above is not None and not isinstance(above, exp.Query):
        above.meta.pop("dtype", None)
        above = above.parent


def _joined(select: exp.Select, query: exp.Expr, alias: str) -> exp.Expr:
    """Adds the join with a subquery to a SELECT, and returns its value."""
    while isinstance(query, exp.Subquery) and not query.args.get("alias"):
        query = query.this
    if not any(outer_columns(query)):
        return _alone(select, query, alias)
    if not isinstance(query, exp.Select) or any(query.args.get(k) for k in _MORE if k != "distinct"):
        raise NotKept("a correlated subquery that is not a SELECT of rows or a total")
    query = query.copy()
    query.set("order", None)
    if is_aggregated(query):
        query.set("distinct", None)  # a total is one row
    where = query.args.get("where")
    parts = [] if where is None else list(conjuncts(where.this))
    own = {item.alias_or_name.lower() for item, _ in from_items(query)}
    inside = [p for p in parts if _reads(p) <= own]
    pairs = [_pair(p, own) for p in parts if not _reads(p) <= own]
    keys = list(dict.fromkeys(inner for inner, _ in pairs))
    (output,) = query.expressions
    output = output.unalias()
    if not own or not _reads(output) <= own:
        raise NotKept("a correlated subquery whose value reads rows around it")
    query.set("where", exp.Where(this=all_of(inside)) if inside else None)
    outputs: list[exp.Expr] = [named(k.copy(), f"k{i}") for i, k in enumerate(keys)]
    if is_aggregated(query):
        calls = list(dict.fromkeys(aggregates(query)))
        outputs += [named(c.copy(), f"a{i}") for i, c in enumerate(calls)]
        query.set("group", exp.Group(expressions=[k.copy() for k in keys]))
        value = replaced(output.copy(), [(c, _value(c, alias, i)) for i, c in enumerate(calls)])
    else:
        outputs.append(named(output.copy(), "a0"))
        value = column(alias, Column("a0", type_of(output)))
    query.set("expressions", outputs)
    equal: list[exp.Expr] = [
        exp.EQ(this=outer.copy(), expression=column(alias, Column(f"k{keys.index(inner)}", type_of(inner))))
        for inner, outer in pairs
    ]
    _add(select, query, alias, equal, single=not query.args.get("group"))
    return exp.Paren(this=value)


def _alone(select: exp.Select, query: exp.Expr, alias: str) -> exp.Expr:
    """Adds the join with a subquery that reads nothing around it."""
    types = output_types(query)
    total = (
        isinstance(query, exp.Select) and is_aggregated(query) and not any(query.args.get(k) for k in _MORE)
    )
    first = query
    while not isinstance(first, exp.Select):
        first = first.this
    if len(first.expressions) != 1 or not list(from_items(first)):
        raise NotKept("a subquery without FROM")
    query = query.copy()
    if isinstance(query, exp.Select) and not query.args.get("limit"):
        query.set("order", None)
    inner = exp.Subquery(this=query, alias=_alias("__one", "a0"))
    value = column("__one", Column("a0", types[0]))
    if total:
        query.set("expressions", [named(query.expressions[0].unalias().copy(), "a0")])
        _add(select, query, alias, None, single=False)
    else:
        around = exp.Select(expressions=[named(value, "a0")], from_=exp.From(this=inner))
        _add(select, around, alias, [], single=True)
    return column(alias, Column("a0", types[0]))


def _alias(name: str, *columns: str) -> exp.TableAlias:
    spelled = [exp.to_identifier(c, quoted=True) for c in columns]
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True), columns=spelled)


def _add(
    select: exp.Select, query: exp.Expr, alias: str, on: Sequence[exp.Expr] | None, *, single: bool
) -> None:
    """Adds a LEFT JOIN ``on`` conditions; without any (None) a CROSS JOIN."""
    right = exp.Subquery(this=query, alias=_alias(alias))
    if on is None:
        join = exp.Join(this=right)
    else:
        join = exp.Join(this=right, side="LEFT", on=all_of(list(on)) or exp.true())
    join.meta[SINGLE] = single
    select.append("joins", join)


def _reads(node: exp.Expr) -> set[str]:
    return {c.table.lower() for c in outer_columns(node)}


def _pair(condition: exp.Expr, own: set[str]) -> tuple[exp.Expr, exp.Expr]:
    """Returns the sides of an equality with the rows around a subquery: its own, and the other."""
    if isinstance(condition, exp.EQ):
        a, b = condition.this.unnest(), condition.expression.unnest()
        for inner, outer in ((a, b), (b, a)):
            columns = isinstance(inner, exp.Column) and isinstance(outer, exp.Column)
            if columns and _reads(inner) <= own and not _reads(outer) & own:
                return inner, outer
    raise NotKept("a correlated subquery without an equality of columns")


def _value(call: exp.Expr, alias: str, at: int) -> exp.Expr:
    """Returns the value of an aggregate for a row that has no group."""
    found = column(alias, Column(f"a{at}", type_of(call)))
    name = call_of(call).name
    if name == "COUNT":
        dtype = type_of(call)
        assert dtype is not None
        return exp.Coalesce(this=found, expressions=[cast(exp.Literal.number(0), dtype)])
    if name not in _NONE_OF:
        raise NotKept(f"a correlated subquery with {name}")
    return found
