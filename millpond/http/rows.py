"""Returns rows of a table: one by its key, and pages of them in the order of the key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response

from millpond.changes import ROW
from millpond.http.failures import Refused, bad_request, not_found
from millpond.http.keyed_row import as_arrow
from millpond.http.keys import key_of, text_of
from millpond.http.responses import ARROW, JSON, LINES, answer_rows, as_json, wanted
from millpond.http.segments import raw_segments
from millpond.http.settings import Limits
from millpond.tables.memory import MemoryTable

if TYPE_CHECKING:
    from millpond.http.service import Service
    from millpond.query.table import Table


def table_of(service: Service, name: str) -> Table:
    """Returns the table of a path. Raises Refused if there is none."""
    relation = service.catalog.find(name)
    if relation is None or service.store.table(name) is None:
        error = service.catalog.unknown(name, "table")
        raise not_found(error.message, error.hint)
    return service.table(name)


async def one_row(service: Service, request: Request) -> Response:
    """Returns the row with a key. A row in memory is read here, in microseconds; others are read in a thread."""
    table = table_of(service, request.path_params["table"])
    raw = raw_segments(request.scope["raw_path"], 4)[3]
    key = key_of(table.schema, raw, table.name)
    media = wanted(request, JSON, ARROW)
    if media == ARROW:
        rows = await service.run(as_arrow, table, key)
        if rows.num_rows:
            return await answer_rows(rows, media, service.in_thread)
    else:
        one = key[0] if len(key) == 1 else key
        backend = table.backend
        quick = isinstance(backend, MemoryTable) and not backend.limited and None not in key
        record = table.get_record(one) if quick else await service.run(_record, table, key)
        if record is not None:
            return as_json(record)
    raise not_found(f'table "{table.name}" has no row with the key {unquote(raw)[:200]}')


def _record(table: Table, key: tuple[Any, ...]) -> dict[str, Any] | None:
    from millpond.records import to_rows

    found = to_rows(as_arrow(table, key))
    return found[0] if found else None


async def many_rows(service: Service, request: Request) -> Response:
    table = table_of(service, request.path_params["table"])
    query = request.query_params
    unknown = set(query.keys()) - {"where", "limit", "after"}
    if unknown:
        raise bad_request(f'"{sorted(unknown)[0]}" is not known here', "known: where, limit, after")
    media = wanted(request, JSON, LINES, ARROW)
    limit = limit_of(query.get("limit"), service.limits)
    where = query.get("where") or None
    rows, following = await service.run(page, service, table, where, query.get("after"), limit)
    response = await answer_rows(rows, media, service.in_thread, {"next": following})
    if following is not None:
        response.headers["X-Next"] = following
    return response


def limit_of(text: str | None, limits: Limits) -> int:
    if text is None:
        return limits.page
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:10]) <= limits.largest_page:
        raise bad_request(f'"{text[:40]}" is no number of rows', f"limit is 1 to {limits.largest_page:,}")
    return int(text)


def page(
    service: Service, table: Table, where: str | None, after: str | None, limit: int
) -> tuple[pa.Table, str | None]:
    """Returns the rows after a key, in the order of the key, and the ``after`` of the next page; None if this is the
    last. For a table without a key the order is that of its rows, and ``after`` is a number.
    """
    key = list(table.schema.key)
    condition = None
    if where is not None:
        condition = table.compile_condition(where)
        service.calls.check_condition(condition)
    rows = table.matching(condition, numbered=not key)
    columns = key or [ROW]
    if after is not None:
        rows = rows.filter(_beyond(rows, columns, _after(table, after)))
    rows = rows.take(_first(rows, columns, limit + 1))
    more = rows.num_rows > limit
    rows = rows.slice(0, limit)
    following = None
    if more:
        last = rows.slice(limit - 1, 1)
        following = text_of([last.column(c)[0].as_py() for c in columns])
    return (rows if key else rows.drop_columns([ROW])), following


def _after(table: Table, text: str) -> tuple[Any, ...]:
    if table.schema.key:
        return key_of(table.schema, text, table.name)
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_request(f'"{text[:40]}" is not what "next" gave', "take it from the page before")
    return (int(text),)


def _beyond(rows: pa.Table, columns: list[str], key: tuple[Any, ...]) -> Any:
    """Returns which rows come after a key; NULL comes last."""
    found: Any = None
    for name, value in reversed(list(zip(columns, key, strict=True))):
        column = rows.column(name)
        if value is None:
            further, same = pa.scalar(False), pc.is_null(column)
        else:
            one = pa.scalar(value, column.type)
            further = pc.or_kleene(pc.fill_null(pc.greater(column, one), False), pc.is_null(column))
            same = pc.fill_null(pc.equal(column, one), False)
        if found is None:
            found = further if value is not None else pa.chunked_array([[False] * rows.num_rows], pa.bool_())
        else:
            found = pc.or_(further, pc.and_(same, found)) if value is not None else pc.and_(same, found)
    return found


def _first(rows: pa.Table, columns: list[str], most: int) -> Any:
    order = [(name, "ascending") for name in columns]
    keys = rows.select(columns)
    if rows.num_rows > 4 * most and not any(keys.column(c).null_count for c in columns):
        try:
            return pc.select_k_unstable(keys, most, order)
        except pa.ArrowNotImplementedError:
            pass
    try:
        return pc.sort_indices(keys, order).slice(0, most)
    except pa.ArrowNotImplementedError:
        raise Refused(
            422, "not_supported", "rows cannot be put in the order of this key", hint="use POST /sql"
        ) from None
