"""Checks statements about the versions of a table: DESCRIBE HISTORY, OPTIMIZE and VACUUM."""

from __future__ import annotations

from millpond.errors import NotSupported, without_passwords
from millpond.options import find_option, read_options
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.checked_commands import CheckedCare, CheckedHistory
from millpond.sql.checking.queries import Queries
from millpond.sql.uris import is_uri
from millpond.sql.versions import WITH_VERSIONS


def check_history(queries: Queries, s: st.DescribeHistory) -> CheckedHistory:
    if not is_uri(s.name):
        return CheckedHistory(s, _versioned(queries, s.name, s))
    options = queries.world.source_options(s.name)
    if find_option(options, "version") is None:
        raise NotSupported(
            f'"{without_passwords(s.name)}" has no versions', hint=WITH_VERSIONS, place=s.place
        )
    values = queries.source_values[s.name] = read_options(s.name, options, ())
    return CheckedHistory(s, queries.world.describe(s.name, values, None), values)


def check_care(queries: Queries, s: st.Optimize | st.Vacuum) -> CheckedCare:
    return CheckedCare(s, _versioned(queries, s.name, s))


def _versioned(queries: Queries, name: str, s: st.Statement) -> Relation:
    relation = queries.catalog.find(name)
    if relation is None:
        raise queries.catalog.unknown(name, place=s.place)
    if not relation.versioned:
        raise NotSupported(
            f'{relation.kind} "{relation.name}" has no versions', hint=WITH_VERSIONS, place=s.place
        )
    return relation
