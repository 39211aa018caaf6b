"""Checks CREATE STREAM … AS SELECT … FROM table EMIT CHANGES."""

from __future__ import annotations

from millpond.changelog import OP, written_schema
from millpond.errors import InvalidOption, SqlError
from millpond.sql import statements as st
from millpond.sql.checked import ChangesForm, CheckedStreamAs
from millpond.sql.checking.queries import Queries
from millpond.sql.checking.streams import check_watermark, stored_stream
from millpond.sql.checking.table_changes import envelope_of, resolve_changes
from millpond.sql.options import STREAM_OPTIONS


def changes_stream(queries: Queries, s: st.CreateStream) -> CheckedStreamAs | None:
    """Returns the checked statement; None if it is refused."""
    owner = f'stream "{s.name}"'
    resolved = resolve_changes(queries, s, STREAM_OPTIONS, owner)
    if resolved is None:
        return None
    if s.columns:
        raise SqlError(f"the columns of {owner} are those of its query", hint="leave them out", place=s.place)
    form = ChangesForm(envelope_of(owner, s.settings), "op")
    if OP in resolved.schema:
        raise InvalidOption(
            f'the query has a column "{OP}", which the stream adds', hint="rename it", place=s.place
        )
    relation = stored_stream(s, written_schema(resolved.schema, form.envelope, form.style))
    check_watermark(relation, s, queries.errors)
    queries.catalog.add(relation)
    return CheckedStreamAs(s, resolved, queries.source_values, relation, form=form)
