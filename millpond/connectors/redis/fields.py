"""Changes the fields of all rows of a table in Redis, in one step."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.alterations import (
    AddedColumn,
    DroppedColumn,
    RenamedColumn,
    RetypedColumn,
    TableChange,
)
from millpond.connectors.databases.texts import to_texts
from millpond.connectors.table import OutsideTable
from millpond.errors import NotSupported
from millpond.types import type_name

# Sets a field of each row that has none, renames it, or removes it; a row without fields keeps the field "_".
CHANGE_FIELDS = """
local how, field, value = ARGV[2], ARGV[3], ARGV[4]
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local key = ARGV[1] .. id
  if redis.call('EXISTS', key) == 1 then
    if how == 'set' then redis.call('HSETNX', key, field, value)
    else
      local had = redis.call('HGET', key, field)
      if had and how == 'rename' then redis.call('HSET', key, value, had)
      elseif had and redis.call('HLEN', key) == 1 then redis.call('HSET', key, '_', '1') end
      redis.call('HDEL', key, field)
    end
  end
end
return 1
"""


def changed_fields(table: OutsideTable, change: TableChange, ranges: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the arguments of the script; None if the rows stay as they are. Raises NotSupported."""
    match change:
        case AddedColumn(column, value):
            if not value[0].is_valid:
                return None
            return "set", column.name, str(to_texts(value, column.type)[0].as_py())
        case RenamedColumn(old, new):
            _check_ranges(table, old, ranges)
            return ("rename", table.column(old).name, new) if table.column(old).name != new else None
        case DroppedColumn(name):
            _check_ranges(table, name, ranges)
            return "drop", table.column(name).name, ""
        case RetypedColumn(name, dtype):
            _check_ranges(table, name, ranges)
            t, have = pa.types, table.column(name).type
            if not (t.is_integer(have) and t.is_integer(dtype)) and not (
                t.is_decimal(have) and t.is_decimal(dtype)
            ):
                raise NotSupported(
                    f'column "{name}" of {table.what} is stored otherwise as {type_name(dtype)}',
                    hint="in Redis integers become wider integers, and DECIMAL one with more digits",
                )
    return None


def _check_ranges(table: OutsideTable, name: str, ranges: Sequence[str]) -> None:
    if name.lower() in (r.lower() for r in ranges):
        raise NotSupported(f'column "{name}" of {table.what} is one of its range.columns')
