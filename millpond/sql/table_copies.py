"""Recognises queries that copy a table of a database: their rows are its rows, identified by its key."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from millpond.errors import without_passwords
from millpond.sql.catalog import Relation
from millpond.sql.grouping import contains_window, is_aggregated
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import from_items

_MORE = ("distinct", "limit", "offset", "qualify", "laterals", "with_", "pivots")


def copied(resolved: Resolved) -> tuple[str, ...] | None:
    """Returns the column of the single input that each output is; None for a query that does more than copy columns."""
    select, source = resolved.expression, _alone(resolved)
    if source is None or select.args.get("where") or select.args.get("order"):
        return None
    names = _columns(select)
    if any(name is None or name not in source.relation.schema for name in names):
        return None
    return tuple(name for name in names if name is not None)


def is_copy(resolved: Resolved, key: tuple[str, ...]) -> bool:
    """Returns whether the query copies columns of a table with its key, and no other ``key`` is declared."""
    names, outputs = copied(resolved), key_through(resolved)
    if names is None or (resolved.inputs[0].relation.schema.key and not outputs):
        return False
    own = {resolved.schema.names[i].lower() for i in outputs}
    return not key or {k.lower() for k in key} == own


def key_through(resolved: Resolved) -> tuple[int, ...]:
    """Returns the outputs that are the key of the single source of a query, each of whose rows is one row of the
    source; empty if there is no key, or it is not among the outputs.
    """
    source = _alone(resolved)
    if source is None or source.relation.kind != "source" or not source.relation.schema.key:
        return ()
    names = [name.lower() if name is not None else None for name in _columns(resolved.expression)]
    key = [k.lower() for k in source.relation.schema.key]
    return tuple(names.index(k) for k in key) if all(k in names for k in key) else ()


def _alone(resolved: Resolved) -> Input | None:
    """Returns the single input of a query that handles its rows one by one."""
    select = resolved.expression
    if not isinstance(select, exp.Select) or is_aggregated(select) or any(select.args.get(k) for k in _MORE):
        return None
    if any(contains_window(p) for p in select.expressions) or select.find(exp.UDTF):
        return None
    items = [item for item, _ in from_items(select)]
    if len(items) != 1 or not isinstance(items[0], exp.Table) or len(resolved.inputs) != 1:
        return None
    return resolved.inputs[0] if resolved.inputs[0].view == items[0].name else None


def _columns(select: exp.Expr) -> list[str | None]:
    """Returns the column that each output is, if it is one."""
    outputs = [p.unalias() for p in select.args["expressions"]]
    return [o.name if isinstance(o, exp.Column) else None for o in outputs]


def over_copies(resolved: Resolved, values: Mapping[str, Mapping[str, Any]]) -> Resolved:
    """Returns the query with captured sources replaced by tables that others maintain: copies of them. ``values`` are
    the options of each URI.
    """
    inputs = tuple(
        dataclasses.replace(i, relation=dataclasses.replace(named_copy(i.relation, values), kind="table"))
        if i.relation.captured
        else i
        for i in resolved.inputs
    )
    return dataclasses.replace(resolved, inputs=inputs)


def with_named_copies(resolved: Resolved, values: Mapping[str, Mapping[str, Any]]) -> Resolved:
    """Returns the query with names for the copies of the captured sources that it joins."""
    inputs = tuple(
        dataclasses.replace(i, relation=named_copy(i.relation, values)) if i.relation.captured else i
        for i in resolved.inputs
    )
    return dataclasses.replace(resolved, inputs=inputs)


def named_copy(relation: Relation, values: Mapping[str, Mapping[str, Any]]) -> Relation:
    """Returns the relation under a name that only the same rows with the same columns share, without secrets."""
    assert relation.uri is not None
    options = sorted((k, str(v)) for k, v in values.get(relation.uri, {}).items())
    what = repr((relation.uri, options, relation.schema.names, relation.schema.key))
    digest = hashlib.sha256(what.encode()).hexdigest()[:12]
    return dataclasses.replace(relation, name=f"{without_passwords(relation.uri)}#{digest}")
