"""Creates the tables that a statement has next to its target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.sql.catalog import Relation
from millpond.store.store import Store


def own(
    store: Store, table: Relation, storage: tuple[str, Mapping[str, Any]] | None, *, null_keys: bool = False
) -> int:
    """Creates a table with that ``storage``, its extension and options, or one that is not stored. Returns the number
    of its rows. The table of a statement that was stopped, and now continues, is there already, and stays as it is.
    """
    there = store.table(table.name)
    if there is not None and there.schema == table.schema:
        return len(there)
    if storage is None:
        store.create_hidden(table.name, table.schema, null_keys=null_keys)
        return 0
    extension, options = storage
    return len(store.create(table, extension, {**options, "null_keys": True} if null_keys else options))
