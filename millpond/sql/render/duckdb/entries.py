"""All entries together: what is not in these two tables goes to Spark."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.render.duckdb import (
    aggregates,
    arithmetic,
    dates,
    maths,
    nested,
    operators,
    paths,
    patterns,
    strings,
)
from millpond.sql.render.duckdb.expression import Entry

ENTRIES: dict[type[exp.Expr], Entry] = {
    **operators.ENTRIES,
    **arithmetic.ENTRIES,
    **strings.ENTRIES,
    **patterns.ENTRIES,
    **maths.ENTRIES,
    **dates.ENTRIES,
    **nested.ENTRIES,
    **aggregates.ENTRIES,
    **paths.ENTRIES,
}

NAMED: dict[str, Entry] = {
    **operators.NAMED,
    **arithmetic.NAMED,
    **strings.NAMED,
    **patterns.NAMED,
    **maths.NAMED,
    **dates.NAMED,
    **nested.NAMED,
}
