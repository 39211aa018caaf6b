"""Decodes messages of pgoutput, PostgreSQL's own format of logged changes (protocol version 1), to Arrow rows.

Messages are not parsed one by one. Those of a piece are concatenated, and a step goes to the next column in all of them
at once; then each column is collected as texts, and read like those of COPY.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.cdc.log import ADDED, EMPTIED, ENDED, MOVED, PUT, log_schema
from millpond.connectors.postgresql.nested_text import texts_of, with_nulls
from millpond.connectors.postgresql.text import from_texts
from millpond.connectors.postgresql.types import PgType
from millpond.errors import BadData
from millpond.types import Column, Schema

_INSERT, _UPDATE, _DELETE, _TRUNCATE = b"IUDT"
_NEW = ord("N")
_VALUE, _UNCHANGED = ord("t"), ord("u")


@dataclass(frozen=True, slots=True)
class Part:
    """Describes a column of a relation: its name, its type number and modifier, and whether it identifies rows."""

    name: str
    type: int
    modifier: int
    key: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """Describes a table as the log does before its first change, and again after it was altered."""

    oid: int
    namespace: str
    name: str
    parts: tuple[Part, ...]

    def place(self, name: str) -> int | None:
        """Returns the part for the name of a column, which ignores case if that is unambiguous."""
        names = [p.name for p in self.parts]
        if name in names:
            return names.index(name)
        lowered = [n.lower() for n in names]
        return lowered.index(name.lower()) if name.lower() in lowered else None


@dataclass(frozen=True, slots=True)
class Piece:
    """Contains changes of one relation, in order: the concatenated messages, and the length of each."""

    relation: Relation
    data: bytes
    lengths: np.ndarray

    @staticmethod
    def joined(pieces: Sequence[Piece]) -> Piece:
        if len(pieces) == 1:
            return pieces[0]
        lengths = np.concatenate([p.lengths for p in pieces])
        return Piece(pieces[0].relation, b"".join(p.data for p in pieces), lengths)


def relation_of(message: bytes) -> Relation:
    """Returns the relation that a message ``R`` describes."""
    (oid,) = struct.unpack_from(">I", message, 1)
    namespace, name, rest = message[5:].split(b"\0", 2)
    (count,) = struct.unpack_from(">H", rest, 1)
    parts, at = [], 3
    for _ in range(count):
        end = rest.index(b"\0", at + 1)
        kind, modifier = struct.unpack_from(">Ii", rest, end + 1)
        parts.append(Part(rest[at + 1 : end].decode(), kind, modifier, bool(rest[at] & 1)))
        at = end + 9
    return Relation(oid, namespace.decode() or "pg_catalog", name.decode(), tuple(parts))


@dataclass(slots=True)
class _Tuples:
    """Locates rows in the bytes: for each column the kind of each cell, where it begins and its length, all of them
    arrays over the rows; ``order`` is the order of the rows, ``op`` their operations.
    """

    kinds: list[np.ndarray]
    begins: list[np.ndarray]
    lengths: list[np.ndarray]
    order: np.ndarray
    op: np.ndarray
    ends: np.ndarray

    def keep(self, mask: np.ndarray) -> None:
        for cells in (self.kinds, self.begins, self.lengths):
            cells[:] = [c[mask] for c in cells]
        self.order, self.op, self.ends = self.order[mask], self.op[mask], self.ends[mask]


def decode(piece: Piece, schema: Schema, types: Callable[[Relation], Sequence[PgType]]) -> pa.RecordBatch:
    """Decodes the rows of a piece, with the columns of ``log_schema``."""
    relation = piece.relation
    data = np.frombuffer(piece.data + b"\0\0\0\0", np.uint8)
    at = np.concatenate([[0], np.cumsum(piece.lengths)])[:-1]
    kind, mark = data[at], data[np.minimum(at + 5, len(data) - 1)]
    width = len(relation.parts)

    with_old = np.flatnonzero((kind == _DELETE) | ((kind == _UPDATE) & (mark != _NEW)))
    old = _tuples(data, at[with_old] + 6, width)
    with_new = np.flatnonzero((kind == _INSERT) | (kind == _UPDATE))
    behind = np.zeros(len(at), np.int64)
    behind[with_old] = old.ends
    both = (kind == _UPDATE) & (mark != _NEW)
    new = _tuples(data, np.where(both, behind + 1, at + 6)[with_new], width)
    old.order, new.order = with_old * 2, with_new * 2 + 1
    old.op[:] = ENDED
    new.op[kind[with_new] == _INSERT] = ADDED
    keys = [p for k in schema.key if (p := relation.place(k)) is not None]
    _settle_updates(data, old, new, both[with_old], both[with_new], keys)

    emptied = np.flatnonzero(kind == _TRUNCATE) * 2
    order = np.argsort(np.concatenate([old.order, new.order, emptied]), kind="stable")
    op = np.concatenate([old.op, new.op, np.full(len(emptied), EMPTIED, np.int8)])[order]
    none = np.zeros(len(emptied), np.int64)
    kinds = [np.concatenate([o, n, none])[order] for o, n in zip(old.kinds, new.kinds, strict=True)]
    begins = [np.concatenate([o, n, none])[order] for o, n in zip(old.begins, new.begins, strict=True)]
    lengths = [np.concatenate([o, n, none])[order] for o, n in zip(old.lengths, new.lengths, strict=True)]

    found, kept, read = [], [], types(relation)
    for number, column in enumerate(schema):
        place = relation.place(column.name)
        if place is None:
            found.append(pa.nulls(len(op), column.type))
            continue
        texts = _texts(data, kinds[place], begins[place], lengths[place])
        found.append(_fitting(texts, read[place], column))
        unknown = np.flatnonzero((kinds[place] == _UNCHANGED) & (op == PUT))
        kept.append((unknown, np.full(len(unknown), number)))
    arrays = [*found, pa.array(op, pa.int8()), _lists(kept, len(op))]
    return pa.RecordBatch.from_arrays(arrays, schema=log_schema(schema))


def _tuples(data: np.ndarray, at: np.ndarray, width: int) -> _Tuples:
    counts = _number(data, at, 2)
    if (counts != width).any():
        raise BadData("the log of changes has a row with another number of columns than its table")
    at = at + 2
    kinds, begins, lengths = [], [], []
    for _ in range(width):
        kind = data[at].astype(np.int64)
        valued = kind == _VALUE
        length = np.where(valued, _number(data, at + 1, 4), 0)
        kinds.append(kind)
        begins.append(at + 5)
        lengths.append(length)
        at = at + np.where(valued, length + 5, 1)
    return _Tuples(kinds, begins, lengths, at, np.full(len(at), PUT, np.int8), at)


def _number(data: np.ndarray, at: np.ndarray, size: int) -> np.ndarray:
    """Returns the big-endian numbers at these places."""
    found = np.zeros(len(at), np.int64)
    last = len(data) - 1
    for i in range(size):
        found = (found << 8) | data[np.minimum(at + i, last)]
    return found


def _settle_updates(
    data: np.ndarray, old: _Tuples, new: _Tuples, in_old: np.ndarray, in_new: np.ndarray, keys: Sequence[int]
) -> None:
    """Handles updates that contain the row before: what the new row leaves out is taken from it; it becomes a deletion
    if its key has changed, or if rows are identified by all of their values.
    """
    o, n = np.flatnonzero(in_old), np.flatnonzero(in_new)
    for cells in range(len(old.kinds)):
        taken = (new.kinds[cells][n] == _UNCHANGED) & (old.kinds[cells][o] == _VALUE)
        for mine, theirs in ((new.kinds, old.kinds), (new.begins, old.begins), (new.lengths, old.lengths)):
            mine[cells][n[taken]] = theirs[cells][o[taken]]
    if not keys:
        return
    other = np.zeros(len(o), bool)
    for key in keys:
        before = _texts(data, old.kinds[key][o], old.begins[key][o], old.lengths[key][o])
        after = _texts(data, new.kinds[key][n], new.begins[key][n], new.lengths[key][n])
        same = pc.fill_null(pc.equal(before, after), False)
        other |= ~np.asarray(same) & (new.kinds[key][n] != _UNCHANGED)
    old.op[o] = MOVED
    stays = np.ones(len(old.op), bool)
    stays[o[~other]] = False
    old.keep(stays)


def _texts(data: np.ndarray, kinds: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Returns the cells of a column as texts."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places = np.repeat(begins - (ends - lengths), lengths) + np.arange(total)
    return with_nulls(texts_of(data[places], lengths), kinds != _VALUE)


def _fitting(texts: pa.Array, kind: PgType, column: Column) -> pa.Array:
    assert column.type is not None
    return from_texts(texts, kind, column.type, column.name)


def _lists(kept: list[tuple[np.ndarray, np.ndarray]], rows: int) -> pa.Array:
    """Returns for each row the places of the columns that it leaves out; NULL if there are none."""
    where = np.concatenate([w for w, _ in kept]) if kept else np.zeros(0, np.int64)
    if not len(where):
        return pa.nulls(rows, pa.list_(pa.int16()))
    columns = np.concatenate([c for _, c in kept])
    order = np.lexsort((columns, where))
    counts = np.bincount(where, minlength=rows)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    values = pa.array(columns[order].astype(np.int16))
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(pa.int16()), mask=pa.array(counts == 0))
