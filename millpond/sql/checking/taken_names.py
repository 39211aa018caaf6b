"""Checks whether a CREATE statement may have its name."""

from __future__ import annotations

from millpond.errors import AlreadyExists, SqlError
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.printer import print_name
from millpond.sql.reserved_names import check_free


def name_taken(
    catalog: Catalog, name: str, kind: str, s: st.CreateStream | st.CreateTable | st.CreateView
) -> bool:
    """Returns whether the statement has nothing to do; otherwise a taken name is an error. OR REPLACE takes what
    has the name out of the catalog.
    """
    there = catalog.find(name)
    if there is None:
        check_free(name, kind, s.place)
        catalog.making = name.lower()
        return False
    if s.if_not_exists:
        return True
    if s.or_replace:
        materialized = isinstance(s, st.CreateView) and s.materialized
        _take_out(catalog, there, "table" if materialized else kind, s)
        return False
    raise AlreadyExists(
        f'{there.kind.capitalize()} "{there.name}" already exists',
        hint=f"DROP {there.kind.upper()} {print_name(there.name)} first, or CREATE {kind.upper()} IF NOT EXISTS",
        place=s.place,
    )


def _take_out(catalog: Catalog, there: Relation, kind: str, s: st.Statement) -> None:
    """Takes a relation out of the catalog that the statement replaces by one of the same kind. Its indexes stay."""
    if there.kind != kind:
        raise SqlError(
            f'"{there.name}" is a {there.kind}, not a {kind}: OR REPLACE replaces what is of the same kind',
            hint=f"DROP {there.kind.upper()} {print_name(there.name)} first",
            place=s.place,
        )
    indexes = catalog.indexes(there.name)
    catalog.remove(there.name)
    for index in indexes:
        catalog.add_index(index)
    catalog.making = there.name.lower()
