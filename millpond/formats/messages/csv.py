"""Decodes messages that are lines of CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.errors import BadData
from millpond.formats.messages.base import SHOWN, RowMessages, joined
from millpond.formats.text import Misfit, convert
from millpond.options import Option
from millpond.types import Schema, type_name, whole


class CsvMessages(RowMessages):
    """Decodes one line of CSV per message, without a header: columns by their place."""

    name = "csv"
    options = (Option("delimiter", "text", "the separator of values in CSV", ","),)

    @classmethod
    def discover(cls, sample: list[bytes], values: Mapping[str, Any]) -> Schema:
        raise BadData("messages of CSV have no names for their columns")

    def read(self, values: pa.Array) -> pa.RecordBatch:
        from pyarrow import csv

        arrow = self.schema.arrow()
        block = joined(values)
        try:
            table = csv.read_csv(
                pa.BufferReader(block),
                csv.ReadOptions(
                    use_threads=False, column_names=arrow.names, block_size=max(len(block), 16) + 1
                ),
                csv.ParseOptions(delimiter=self.values.get("delimiter") or ",", newlines_in_values=False),
                csv.ConvertOptions(
                    column_types={n: pa.string() for n in arrow.names},
                    strings_can_be_null=True,
                    null_values=[""],
                    quoted_strings_can_be_null=False,
                ),
            ).combine_chunks()
        except pa.ArrowInvalid as error:
            raise BadData(f"not a line of CSV: {error}") from None
        arrays = []
        for field, column in zip(arrow, table.columns, strict=True):
            try:
                arrays.append(convert(whole(column), field.type))
            except Misfit as error:
                value = error.value[:SHOWN]
                raise BadData(
                    f'"{value}" in column "{field.name}" is not a {type_name(field.type)}'
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)
