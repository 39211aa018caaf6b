"""Decodes rows that requests post to streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidRecord, did_you_mean
from millpond.formats.jsonvalues import DECODER, column_of, field_of
from millpond.formats.text import Misfit
from millpond.http.failures import bad_request
from millpond.records.incoming import check_nulls
from millpond.sql.catalog import Relation
from millpond.types import Schema, type_name

Records = list[dict[str, Any]]


def records_of(stream: Relation, body: bytes, *, ignore: bool) -> Records:
    """Returns the records of a JSON object, of an array of objects, or of JSON lines. With ``ignore`` they may have
    fields that the stream lacks.
    """
    records = _records(body)
    _check_fields(stream.schema, records, f'stream "{stream.name}"', ignore)
    return records


def rows_of(stream: Relation, records: Records) -> pa.Table:
    """Returns records as rows of a stream. Numbers are read exactly, by the type of their column."""
    arrays = []
    for column in stream.schema:
        assert column.type is not None
        try:
            arrays.append(column_of([field_of(r, column.name) for r in records], column.type))
        except Misfit as misfit:
            raise InvalidRecord(
                f'row {misfit.index} for stream "{stream.name}": field "{column.name}": {misfit.value[:80]} is not a'
                f" value of type {type_name(column.type)}",
                row=misfit.index,
                field=column.name,
            ) from None
    rows = pa.Table.from_arrays(arrays, schema=stream.schema.arrow())
    check_nulls(stream.schema, rows, what=f'stream "{stream.name}"')
    return rows


def _records(body: bytes) -> list[dict[str, Any]]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise bad_request("the body is not UTF-8 text") from None
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise bad_request("the body is empty", "send a JSON object, an array of objects, or JSON lines")
    try:
        found = DECODER.decode(text)
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None
    except ValueError as error:
        return _lines(text, error)
    return _objects(found if isinstance(found, list) else [found], "row")


def _lines(text: str, error: ValueError) -> list[dict[str, Any]]:
    found = []
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        try:
            found.append(DECODER.decode(line))
        except (ValueError, RecursionError) as wrong:
            reason = str(error) if len(lines) == 1 or not found else f"line {number}: {wrong}"
            raise bad_request(
                f"the body is not JSON: {reason}", "send a JSON object, an array of objects, or JSON lines"
            ) from None
    return _objects(found, "line")


def _objects(found: list[Any], unit: str) -> list[dict[str, Any]]:
    for index, one in enumerate(found):
        if not isinstance(one, dict):
            at = index if unit == "row" else index + 1
            raise bad_request(f"{unit} {at} is not a JSON object", 'a row is {"column": value, …}')
    return found


def _check_fields(schema: Schema, records: Sequence[dict[str, Any]], what: str, ignore: bool) -> None:
    if ignore:
        return
    known = {name.lower() for name in schema.names}
    for row, record in enumerate(records):
        for name in record:
            if name.lower() not in known:
                raise InvalidRecord(
                    f'row {row} for {what}: field "{name}" is not in {what}',
                    row=row,
                    field=name,
                    hint=did_you_mean(name, schema.names, f"its fields: {', '.join(schema.names)}"),
                )
