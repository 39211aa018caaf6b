"""Selects which changes of a table a client gets: all, those of one key, or of rows under a condition. Clients with
the same selection share its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.allowance import Allowance, given
from millpond.http.net_changes import Netted
from millpond.http.responses import objects

if TYPE_CHECKING:
    from millpond.query.conditions import Condition
    from millpond.tables.base import Snapshot

Key = tuple[Any, ...]
_SECONDS = 30.0
"""The time limit of each evaluation of a client's condition."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Describes the changes that a client wants. Equal selections are one group: its events are encoded once."""

    key: Key | None = None
    where: str | None = None
    seconds: float = 0.0
    """If more than 0, the changes of that time come as one event."""


def keys_of(rows: pa.Table, key: Sequence[str]) -> list[Key]:
    return list(zip(*(rows.column(k).to_pylist() for k in key), strict=True))


def data_of(rows: Sequence[bytes], deleted: Sequence[bytes], commits: int) -> bytes:
    """Returns the data of an event: existing rows, deleted keys, and the number of commits."""
    return b'{"rows":[%b],"deleted":[%b],"commits":%d}' % (b",".join(rows), b",".join(deleted), commits)


def encoded(change: Netted, commits: int) -> bytes | None:
    """Returns the data of a whole change; None if it is empty."""
    if not change.size:
        return None
    return data_of(objects(change.rows), objects(change.deleted), commits)


class Conditional:
    """Selects the rows that fulfil a condition. It records which keys it has passed on, so that a row that no longer
    fulfils the condition is sent as deleted, and others are not.
    """

    def __init__(self, condition: Condition, key: Sequence[str]):
        self._condition = condition
        self._key = list(key)
        self._there: set[Key] | None = None

    def begin(self, rows: pa.Table) -> None:
        """Records that ``rows`` fulfil the condition now."""
        self._there = set(keys_of(rows, self._key)) if self._key else set()

    def of(self, view: Snapshot) -> pa.Table:
        return self._rows(view.scan())

    def _rows(self, rows: pa.Table) -> pa.Table:
        with given(Allowance(_SECONDS)):
            return self._condition.rows(rows)

    def narrow(self, change: Netted, *, sent: bool = True) -> Netted:
        """Returns the part of a change that concerns the condition. If it is not known what a client was ``sent``
        before, all keys that do not fulfil it are returned as deleted: that is always right.
        """
        rows = self._rows(change.rows) if change.rows.num_rows else change.rows
        if not self._key:
            return Netted(rows, change.deleted)
        now = set(keys_of(rows, self._key))
        touched = [*keys_of(change.rows, self._key), *keys_of(change.deleted, self._key)]
        all_keys = pa.concat_tables([change.rows.select(self._key), change.deleted])
        there = self._there
        mask = [k not in now and (not sent or there is None or k in there) for k in touched]
        if there is not None and sent:
            there.difference_update(touched)
            there.update(now)
        return Netted(rows, all_keys.filter(pa.array(mask, pa.bool_())))


def of_keys(change: Netted, key: Sequence[str], followed: pa.Array) -> Netted:
    """Returns the part of a change whose first key column is among the followed ones."""

    def among(rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows
        return rows.filter(pc.is_in(rows.column(key[0]), value_set=followed))

    return Netted(among(change.rows), among(change.deleted))
