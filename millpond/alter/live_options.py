"""Knows which options of a table may change while it is used."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.errors import NotSupported, Place
from millpond.options import Option, find_option
from millpond.plan.connectors import options_of_table
from millpond.sql.catalog import Relation
from millpond.store.store import Store


def options_of(table: Relation, store: Store) -> tuple[Option, ...]:
    """Returns the options that the table can have."""
    return options_of_table(store.options[table.name.lower()])


def check_live(
    declared: tuple[Option, ...], table: Relation, names: Iterable[str], place: Place | None
) -> None:
    """Raises an error for an option that cannot change while the table is used."""
    for name in names:
        option = find_option(declared, name)
        if option is None or not option.live:
            raise NotSupported(
                f'option "{name}" of table "{table.name}" cannot change while it is used',
                hint=f"options that can: {', '.join(sorted(o.name for o in declared if o.live))}",
                place=place,
            )
