"""Reads options that name columns of a query."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.errors import UnknownName, did_you_mean


def named_columns(option: str, text: str | None, columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that an option names, separated by commas, as the query spells them."""
    known = {name.lower(): name for name in columns}
    named = [n.strip() for n in (text or "").split(",") if n.strip()]
    for name in named:
        if name.lower() not in known:
            raise UnknownName(
                f'option "{option}": the query has no column "{name}"',
                hint=did_you_mean(name, columns, f"its columns: {', '.join(columns)}"),
            )
    return tuple(known[name.lower()] for name in named)
