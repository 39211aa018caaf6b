"""Tells executors which files of a Delta table a merge may change, and how rows become files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from millpond.changes import Changes
from millpond.connectors.delta.base_table import BaseTable
from millpond.connectors.delta.dataset import is_pruned
from millpond.connectors.delta.task_files import DataFiles
from millpond.connectors.divided_table import Merging
from millpond.records.checks import checked
from millpond.records.parquet import have_form
from millpond.types import Column, Schema

_PATTERN = re.compile(r"[*?\[\]{}\\%]")
"""What Spark takes for a pattern in the name of a folder, or for a code."""
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class MergedFiles(Merging):
    """Describes the files of a version of a Delta table in a folder."""

    what: str
    place: str
    version: int
    columns: Schema
    checks: Schema
    listed: pa.Table
    _paths: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        paths = {os.path.basename(path): path for path in self.listed["path"].to_pylist()}
        object.__setattr__(self, "_paths", paths)

    @property
    def fitting(self) -> Callable[[pa.Table], pa.Table]:
        return partial(fitting, self.what, self.checks, tuple(self.columns.names))

    @property
    def writer(self) -> DataFiles:
        return DataFiles(self.what, self.place, {}, None, tuple(self.columns.names), None)

    def files(self, low: Any, high: Any) -> dict[str, str]:
        (name, *_) = self.columns.key
        found = {}
        for file in self.listed.to_pylist():
            least, most = file.get(f"min.{name}"), file.get(f"max.{name}")
            if least is None or most is None or not (most < low or least > high):
                path = unquote(file["path"])
                found[os.path.basename(path)] = os.path.join(self.place, path)
        return found

    def removed(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._paths[name] for name in names)

    @property
    def is_readable(self) -> bool:
        """Returns whether Spark reads each file by its path, and tells them by their names."""
        names = [os.path.basename(path) for path in self._paths.values()]
        plain = all(_NAME.fullmatch(name) for name in names) and not _PATTERN.search(self.place)
        return plain and len(names) == self.listed.num_rows


def fitting(what: str, columns: Schema, names: Sequence[str], rows: pa.Table) -> pa.Table:
    """Returns rows with the columns of the files. Raises InvalidRecord for those that the table refuses."""
    found = checked(columns, Changes(rows), what=what, null_keys=False).rows
    spelled = {n.lower(): n for n in found.column_names}
    return found.select([spelled[name.lower()] for name in names]).rename_columns(list(names))


def can_merge(values: Mapping[str, Any], schema: Schema) -> bool:
    """Returns whether executors may merge into a table with these options: in a folder, by a key without fractions."""
    simple = all(is_pruned(c.type) for k in schema.key if (c := schema.find(k)) is not None)
    return simple and have_form(schema.arrow()) and "://" not in str(values.get("path") or "")


def merging(base: BaseTable, what: str, place: str, schema: Schema, checks: Schema) -> MergedFiles | None:
    """Returns how executors merge rows into the newest version; None if they cannot."""
    spelled = {n.lower(): n for n in base.names}
    key = tuple(spelled[k.lower()] for k in schema.key)
    found = filter(None, map(schema.find, base.names))
    columns = Schema(tuple(Column(c.name, c.type) for c in found), key)  # others may have written NULL
    simple = can_merge({"path": place}, columns) and tuple(columns.names) == base.names
    if not simple or base.partitions or base.constraints or base.has_change_feed:
        return None
    version = base.version
    merged = MergedFiles(what, place, version.number, columns, checks, version.listed)
    return merged if merged.is_readable else None
