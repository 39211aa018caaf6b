"""Rewrites ROLLUP, CUBE and GROUPING SETS as UNION ALL of a GROUP BY for each set of keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations, product

from sqlglot import exp

from millpond.sql.aggregate.nodes import cast, named
from millpond.sql.grouping import clauses_of, contains_window, is_aggregate, keys_of, without_filter
from millpond.sql.incremental.frames import NotKept
from millpond.sql.typing import type_of

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_MOST = 16
"""Sets of keys: each is a GROUP BY of its own, with its state."""
Keys = list[exp.Expr]


def grouping_sets(tree: exp.Expr) -> exp.Expr:
    for select in reversed(list(tree.find_all(exp.Select))):
        group = select.args.get("group")
        if group is None or not any(isinstance(e, _SETS) for e in group.expressions):
            continue
        made = _union(select, group)
        if select is tree:
            tree = made
        else:
            select.replace(made)
    return tree


def _union(select: exp.Select, group: exp.Expr) -> exp.Expr:
    clauses = ("having", "order", "limit", "offset", "qualify", "distinct")
    if any(select.args.get(k) for k in clauses) or any(contains_window(c) for c in clauses_of(select)):
        raise NotKept("GROUPING SETS, CUBE or ROLLUP next to OVER, LIMIT or DISTINCT")
    parts = [_sets(e) for e in group.expressions]
    sets: list[Keys] = [list(dict.fromkeys(k for part in parts_ for k in part)) for parts_ in product(*parts)]
    if len(sets) > _MOST:
        raise NotKept(f"GROUPING SETS, CUBE or ROLLUP of more than {_MOST} sets")
    every = list(dict.fromkeys(k for e in group.expressions for k in keys_of(e)))
    with_ = select.args.get("with_")
    groups: list[exp.Expr] = [_group(select, keys, every, alone=len(sets) == 1) for keys in sets]
    made = reduce(lambda a, b: exp.Union(this=a, expression=b, distinct=False), groups)
    made.set("with_", with_)
    return made


def _sets(node: exp.Expr) -> list[Keys]:
    """Returns the sets of keys of a part of GROUP BY."""
    if isinstance(node, exp.GroupingSets):
        return [found for e in node.expressions for found in _sets(e)]
    if not isinstance(node, exp.Rollup | exp.Cube):
        return [list(keys_of(node))]
    parts = [list(keys_of(e)) for e in node.expressions]
    if isinstance(node, exp.Rollup):
        chosen = [parts[:n] for n in range(len(parts), -1, -1)]
    else:
        chosen = [list(c) for n in range(len(parts), -1, -1) for c in combinations(parts, n)]
    return [[k for part in some for k in part] for some in chosen]


def _group(select: exp.Select, keys: Keys, every: Sequence[exp.Expr], *, alone: bool) -> exp.Select:
    """Returns the groups by some of the keys; the others are NULL."""
    made = select.copy()
    for clause in ("with_", "group"):
        made.set(clause, None)
    missing = [k for k in every if k not in keys]
    made.set("expressions", [_named(p, missing, every) for p in made.expressions])
    if keys:
        made.set("group", exp.Group(expressions=[k.copy() for k in keys]))
    elif not alone:
        # Spark has no group of all rows if there are no rows.
        some = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
        made.set("having", exp.Having(this=some))
    return made


def _named(projection: exp.Expr, missing: Keys, every: Sequence[exp.Expr]) -> exp.Expr:
    return named(_without(projection.unalias().copy(), missing, every), projection.alias_or_name)


def _without(node: exp.Expr, missing: Keys, every: Sequence[exp.Expr]) -> exp.Expr:
    """Returns an output of the groups without the ``missing`` keys. Aggregates see rows, with all keys."""
    dtype = type_of(node)
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("grouping", "grouping_id"):
        bits = reduce(lambda bits, key: bits * 2 + (key in missing), node.expressions or every, 0)
        return exp.Literal.number(bits) if dtype is None else cast(exp.Literal.number(bits), dtype)
    if is_aggregate(without_filter(node)):
        return node
    if node in missing:
        if dtype is None:
            raise NotKept("GROUPING SETS of a value whose type only Spark knows")
        return cast(exp.Null(), dtype)
    for key, child in list(node.args.items()):
        if isinstance(child, exp.Expr):
            node.set(key, _without(child, missing, every))
        elif isinstance(child, list):
            node.set(key, [_without(c, missing, every) if isinstance(c, exp.Expr) else c for c in child])
    return node
