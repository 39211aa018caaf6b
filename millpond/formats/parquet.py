"""Reads Parquet: columns and types are in the file; row groups are read separately."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.errors import BadData
from millpond.formats.base import Format, Piece
from millpond.formats.parquet_footers import Differs, check_columns, starts_of
from millpond.formats.read_records import Part, RejectedRecord, bad_places, no_rows
from millpond.types import TIMESTAMP, Column, Schema, normal, type_name

ROWS_PER_PIECE = 128 * 1024
ROWS_PER_BATCH = 64 * 1024
END = 1 << 62
"""A byte after the end of every file."""


class Parquet(Format):
    """Reads Parquet files. Timestamps beyond microseconds lose their last digits; those that Spark writes as INT96 are
    UTC.
    """

    name: ClassVar[str] = "parquet"
    guesses: ClassVar[bool] = False
    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    def discover(self, path: str) -> Schema:
        with self._open(path) as file:
            return Schema(tuple(Column(f.name, _type_of(path, f)) for f in _fields(file)))

    def pieces(self, path: str, begin: int = 0, end: int | None = None) -> list[Piece]:
        """Groups neighbouring row groups that together contain a good number of rows."""
        try:
            sizes = self._sizes(path)
        except BadData:
            return [Piece()]  # whoever reads it gets the error
        found: list[Piece] = []
        groups: list[int] = []
        first = rows = 0
        for group, size in enumerate(sizes):
            groups.append(group)
            rows += size
            if rows >= ROWS_PER_PIECE or group == len(sizes) - 1:
                found.append(Piece(first, rows, tuple(groups)))
                first, rows, groups = first + rows, 0, []
        return found

    def bytes_for_spark(self, path: str, columns: pa.Schema, pieces: Sequence[Piece]) -> list[range]:
        """Returns the bytes of each piece: the first begin with the file, the last have no end."""
        with self._open(path) as file:
            check_columns(file, columns, [group for piece in pieces for group in piece.groups])
            begins = [0, *starts_of(file)[1:], END]
        found = [(piece.groups[0], piece.groups[-1]) for piece in pieces if piece.groups]
        if len(found) != len(pieces):
            raise Differs("its row groups are not known")
        return [range(begins[first], begins[last + 1]) for first, last in found]

    def _sizes(self, path: str) -> list[int]:
        with self._open(path) as file:
            return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]

    def parts(self, path: str, schema: Schema, piece: Piece, *, declared: bool) -> Iterator[Part]:
        """Yields the records of a piece. A row group, or the rest of one, that cannot be read is one bad record."""
        arrow = schema.arrow()
        with self._open(path) as file:
            fields = {f.name.lower(): f for f in reversed(_fields(file))}
            sources = [fields.get(f.name.lower()) for f in arrow]
            for field, source in zip(arrow, sources, strict=True):
                if source is not None:
                    _check_kind(path, source, field.type)
            fit, row = _Fit(path, sources, arrow), piece.first_row
            for group in piece.groups or range(file.num_row_groups):
                end = row + file.metadata.row_group(group).num_rows
                wanted = [s.name for s in sources if s is not None]
                try:
                    for batch in file.iter_batches(ROWS_PER_BATCH, row_groups=[group], columns=wanted):
                        yield fit.part(batch, row)
                        row += batch.num_rows
                except (pa.ArrowException, OSError) as e:
                    if isinstance(e, OSError) and e.errno is not None:
                        raise
                    error = BadData(f'file "{path}", rows {row + 1} to {end} cannot be read: {e}')
                    yield Part(no_rows(arrow), [RejectedRecord(0, error, None)], end - row)
                row = end

    @contextmanager
    def _open(self, path: str) -> Iterator[Any]:
        from pyarrow import parquet

        with self.open_file(path) as stream:
            try:
                file = parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            except pa.ArrowInvalid as e:
                raise BadData(f'file "{path}" is not Parquet: {e}') from None
            yield file


def _fields(file: Any) -> list[pa.Field]:
    """Returns the fields of the file, INT96 as an instant."""
    instants = {
        column.path
        for column in (file.metadata.schema.column(i) for i in range(len(file.metadata.schema)))
        if column.physical_type == "INT96"
    }
    return [f.with_type(TIMESTAMP) if f.name in instants else f for f in file.schema_arrow]


def _type_of(path: str, field: pa.Field) -> pa.DataType:
    try:
        return normal(field.type)
    except TypeError:
        raise BadData(
            f'column "{field.name}" of file "{path}" is of type {field.type}, which SQL has none for',
            hint="declare the columns without it",
        ) from None


def _check_kind(path: str, source: pa.Field, dtype: pa.DataType) -> None:
    """Refuses what a cast would do with loss or by guessing: a number is not text and a float not a decimal."""
    t = pa.types
    given = _type_of(path, source)
    fine = (
        given == dtype
        or t.is_null(source.type)
        or (t.is_integer(given) and (t.is_integer(dtype) or t.is_floating(dtype) or t.is_decimal(dtype)))
        or (t.is_floating(given) and t.is_floating(dtype))
        or (t.is_decimal(given) and (t.is_decimal(dtype) or t.is_floating(dtype)))
        or (t.is_date(given) and t.is_timestamp(dtype))
        or (t.is_timestamp(given) and t.is_timestamp(dtype))
        or ((t.is_string(given) or t.is_binary(given)) and (t.is_string(dtype) or t.is_binary(dtype)))
        or (t.is_nested(given) and t.is_nested(dtype))
    )
    if not fine:
        raise BadData(
            f'file "{path}": column "{source.name}" is {type_name(given)}, declared {type_name(dtype)}',
            hint=f"declare it {type_name(given)}, and cast it in the query",
        )


class _Fit:
    """Converts batches of a file to the columns of a schema."""

    def __init__(self, path: str, sources: list[pa.Field | None], arrow: pa.Schema):
        self._path = path
        self._sources = sources
        self._arrow = arrow

    def part(self, batch: pa.RecordBatch, row: int) -> Part:
        """Converts a batch whose first row is row ``row`` of the file."""
        try:
            return Part(self._rows(batch))
        except BadData:
            pass
        errors: dict[int, BadData] = {}

        def is_fine(begin: int, end: int) -> bool:
            try:
                self._rows(batch.slice(begin, end - begin))
            except BadData as e:
                if end - begin == 1:
                    where = f'file "{self._path}", row {row + begin + 1}'
                    errors[begin] = BadData(f"{where}: {e.message}", hint=e.hint)
                return False
            return True

        bad = bad_places(batch.num_rows, is_fine)
        rejected = [
            RejectedRecord(p, errors[p], repr(batch.slice(p, 1).to_pylist()[0]).encode()) for p in bad
        ]
        good = pa.array(np.delete(np.arange(batch.num_rows), bad))
        return Part(self._rows(batch.take(good)), rejected)

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for field, source in zip(self._arrow, self._sources, strict=True):
            if source is None:
                arrays.append(pa.nulls(batch.num_rows, field.type))
            else:
                arrays.append(_cast(batch.column(batch.schema.get_field_index(source.name)), source, field))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _cast(column: pa.Array, source: pa.Field, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        # Only nanoseconds are lost in the conversion to the normal type, which is what "safe" would refuse.
        column = column.cast(normal(column.type), safe=False)
        number = pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)
        if number and pa.types.is_decimal(field.type):
            # Without more digits Arrow wraps around instead of failing.
            column = column.cast(pa.decimal256(76, field.type.scale))
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise BadData(
            f'column "{field.name}" {source.type} does not fit {type_name(field.type)}: {e}',
            hint="declare the column with the type of the file",
        ) from None
