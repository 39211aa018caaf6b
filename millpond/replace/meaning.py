"""Compares what two CREATE statements mean, whatever their texts are."""

from __future__ import annotations

import dataclasses
from typing import Any

from millpond.sql.checked import CheckedCreate, CheckedQuery, CheckedRunnable, CheckedStream, CheckedTableAs
from millpond.sql.meaning import meaning
from millpond.store.catalog import table_options, without_secrets


def means_the_same(one: CheckedCreate, other: CheckedCreate) -> bool:
    """Returns whether two checked statements declare the same, filled by the same query with the same options."""
    return type(one) is type(other) and _meaning(one) == _meaning(other)


def _meaning(checked: CheckedCreate) -> tuple[Any, ...]:
    relation = dataclasses.replace(
        checked.relation, name=checked.relation.name.lower(), stored_in=None, query=None
    )
    found: tuple[Any, ...] = (relation, without_secrets(table_options(checked)))
    if isinstance(checked, CheckedStream | CheckedQuery):
        found += (dict(checked.source_options),)
    if isinstance(checked, CheckedQuery):
        # An input is in the same catalog for both, and what the statement says of it is in its options.
        found += (meaning(checked.resolved, lambda _: {}), checked.resolved.schema)
    if isinstance(checked, CheckedRunnable):
        emit = getattr(getattr(checked.statement, "query", None), "emit", None)
        errors = getattr(checked.statement, "errors_into", None)
        found += (dict(checked.query_options), errors, emit, checked.form)
    if isinstance(checked, CheckedTableAs):
        found += (checked.keyed,)
    return found
