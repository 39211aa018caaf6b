"""Computes exact sums of decimals over the raw cells: a fraction of a millisecond for a million."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from millpond.tables._blocks import SHIFT
from millpond.tables._rows import WIDE
from millpond.tables._versions import TableVersion

_LOW = (1 << 32) - 1


def decimal_sum(table_version: TableVersion, column: int) -> Decimal | None:
    """Returns the sum of a DECIMAL column of at most 18 digits; NULL if no row has a value."""
    dtype = table_version.blocks.schema.field(column).type
    assert pa.types.is_decimal128(dtype) and dtype.precision <= 18
    total, there = 0, False
    all_alive = table_version.mark.alive == table_version.mark.slots
    for start, end in table_version.blocks.spans(table_version.mark.slots):
        block = table_version.blocks.blocks[start >> SHIFT]
        count = end - start
        numbers = block.room[column][:count]
        valid = block.valid[column]
        if valid is not None or not all_alive:
            counted = table_version.died[start:end] > table_version.mark.version
            numbers = numbers[counted if valid is None else counted & valid[:count]]
        if not len(numbers):
            continue
        there = True
        if dtype.precision <= 14:
            total += int(numbers.sum())
        else:
            total += (int((numbers >> 32).sum()) << 32) + int((numbers & _LOW).sum())
    return WIDE.scaleb(Decimal(total), -dtype.scale) if there else None
