"""Decodes Avro values to Arrow: many messages at once, field by field.

Where a field begins depends on what comes before it, separately in each message. So each message has a cursor, and each
step reads one value of all messages with numpy. Items of arrays are read in rounds, first all first items, then all
second ones, and sorted at the end. There is no loop over messages. Each message must end where its last field does.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.formats.avroschema import Node
from millpond.formats.messages.base import Decoded

Ints = npt.NDArray[np.int64]
_PAD = 16
"""Bytes after the last message that a step may read."""
_MOST_EMPTY = 10_000
"""Maximum items of an array that take no bytes."""
_SHORT = "it ends too early"


def read_avro(values: pa.Array, node: Node, skip: int = 0) -> Decoded:
    """Decodes a row for each value that is a record of the schema. The first ``skip`` bytes are left out;
    none is NULL.
    """
    reader = _Reader(values, skip)
    everything = np.arange(len(values))
    columns = [
        reader.field(inner, everything, name) for name, inner in zip(node.names, node.inner, strict=True)
    ]
    reader.fail(everything[reader.at != reader.end], "bytes are left behind the last field")
    rows = pa.RecordBatch.from_arrays(columns, schema=node.columns.arrow())
    bad = np.flatnonzero(reader.why >= 0)
    if len(bad):
        rows = rows.filter(pa.array(reader.why < 0))
    return Decoded(
        rows, bad.tolist(), [f"not Avro of the schema: {reader.texts[w]}" for w in reader.why[bad]]
    )


class _Reader:
    """Reads values at the cursors. ``at`` and ``end`` are the places of each message in ``data``; ``why`` is its error,
    -1 for none. The cursor of a bad message is at its end; what is then read of it is discarded.
    """

    def __init__(self, values: pa.Array, skip: int):
        values = values.cast(pa.large_binary())
        _, offsets, data = values.buffers()
        places = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
        first, last = int(places[0]), int(places[-1])
        raw = np.frombuffer(data, np.uint8)[first:last] if data is not None else np.empty(0, np.uint8)
        self.data = np.concatenate([raw, np.zeros(_PAD, np.uint8)])
        self.end: Ints = (places[1:] - first).copy()
        self.at: Ints = np.minimum(places[:-1] - first + skip, self.end)
        self.why = np.full(len(values), -1, np.int64)
        self.texts: list[str] = []
        self._path: list[str] = []

    def fail(self, messages: Ints, text: str) -> None:
        messages = messages[self.why[messages] < 0]
        if len(messages):
            where = f' in field "{".".join(self._path)}"' if self._path else ""
            self.texts.append(text + where)
            self.why[messages] = len(self.texts) - 1
            self.at[messages] = self.end[messages]

    def _go(self, messages: Ints, to: Ints) -> None:
        """Moves the cursors."""
        end = self.end[messages]
        self.at[messages] = np.minimum(to, end)
        over = to > end
        if over.any():
            self.fail(messages[over], _SHORT)

    def field(self, node: Node, messages: Ints, name: str) -> pa.Array:
        self._path.append(name)
        found = self.read(node, messages)
        self._path.pop()
        return found

    def read(self, node: Node, messages: Ints) -> pa.Array:
        """Reads one value of each of these messages, none of which is named twice."""
        found: pa.Array = getattr(self, f"_{node.kind}")(node, messages)
        return found

    # numbers

    def long(self, messages: Ints) -> Ints:
        at = self.at[messages]
        byte = self.data[at]
        value = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(byte & 0x80)
        shift = 7
        while len(more) and shift < 64:
            byte = self.data[at[more]]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[(byte & 0x80) != 0]
            shift += 7
        if len(more):
            self.fail(messages[more], "a number has more than 64 bits")
        self._go(messages, at)
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)

    def _small(self, messages: Ints) -> npt.NDArray[np.int32]:
        value = self.long(messages)
        wrong = (value < -(1 << 31)) | (value >= 1 << 31)
        if wrong.any():
            self.fail(messages[wrong], "a number has more than 32 bits")
        return value.astype(np.int32)

    def _null(self, node: Node, messages: Ints) -> pa.Array:
        return pa.nulls(len(messages))

    def _boolean(self, node: Node, messages: Ints) -> pa.Array:
        byte = self._bytes_of(messages, 1)[:, 0]
        self.fail(messages[byte > 1], "neither true nor false")
        return pa.array(byte == 1)

    def _int(self, node: Node, messages: Ints) -> pa.Array:
        return pa.array(self._small(messages))

    def _long(self, node: Node, messages: Ints) -> pa.Array:
        return pa.array(self.long(messages))

    def _date(self, node: Node, messages: Ints) -> pa.Array:
        return pa.array(self._small(messages)).cast(pa.date32())

    def _timestamp(self, node: Node, messages: Ints) -> pa.Array:
        value = self.long(messages)
        if node.unit == "ms":
            wrong = np.abs(value) > (1 << 63) // 1000 - 1
            self.fail(messages[wrong], "a time is out of range")
            value = np.where(wrong, 0, value) * 1000
        elif node.unit == "ns":
            value = value // 1000
        return pa.array(value).cast(node.type)

    def _float(self, node: Node, messages: Ints) -> pa.Array:
        return pa.array(self._bytes_of(messages, 4).copy().view("<f4")[:, 0])

    def _double(self, node: Node, messages: Ints) -> pa.Array:
        return pa.array(self._bytes_of(messages, 8).copy().view("<f8")[:, 0])

    def _bytes_of(self, messages: Ints, size: int) -> npt.NDArray[np.uint8]:
        """Returns the next ``size`` bytes of each."""
        at = self.at[messages]
        self._go(messages, at + size)
        found: npt.NDArray[np.uint8] = self.data[
            np.minimum(at[:, None] + np.arange(size), len(self.data) - 1)
        ]
        return found

    # texts and bytes

    def _span(self, node: Node, messages: Ints) -> tuple[Ints, Ints]:
        """Returns where the bytes of a value begin, and how many they are."""
        is_fixed = node.kind == "fixed" or node.size > 0
        size = np.full(len(messages), node.size) if is_fixed else self.long(messages)
        at = self.at[messages]
        wrong = (size < 0) | (size > self.end[messages] - at)
        if wrong.any():
            self.fail(messages[wrong], _SHORT)
            size = np.where(wrong, 0, size)
        self._go(messages, at + size)
        return at, size

    def _bytes(self, node: Node, messages: Ints) -> pa.Array:
        at, size = self._span(node, messages)
        offsets = np.concatenate([[0], np.cumsum(size)])
        places = np.repeat(at - offsets[:-1], size) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data[places])]
        return pa.Array.from_buffers(pa.large_binary(), len(messages), buffers).cast(pa.binary())

    _fixed = _bytes

    def _string(self, node: Node, messages: Ints) -> pa.Array:
        found = self._bytes(node, messages)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            fine = np.array([is_text(v) for v in found.to_pylist()])  # only if one of them is wrong
            self.fail(messages[~fine], "a text is not UTF-8")
            return pc.if_else(pa.array(fine), found, b"").cast(pa.string())

    def _enum(self, node: Node, messages: Ints) -> pa.Array:
        which = self.long(messages)
        wrong = (which < 0) | (which >= len(node.names))
        if wrong.any():
            self.fail(messages[wrong], "there is no such symbol")
            which = np.where(wrong, 0, which)
        return pa.array(node.names, pa.string()).take(pa.array(which))

    def _decimal(self, node: Node, messages: Ints) -> pa.Array:
        at, size = self._span(node, messages)
        wrong = (size > _PAD) | (size == 0)
        self.fail(messages[wrong], f"a decimal has more than {node.type.precision} digits")
        size = np.where(wrong, 0, size)
        negative = (self.data[np.minimum(at, len(self.data) - 1)] & 0x80 != 0) & (size > 0)
        little = np.repeat(np.where(negative, 0xFF, 0).astype(np.uint8)[:, None], 16, axis=1)
        for place in range(int(size.max(initial=0))):
            has = size > place
            little[has, place] = self.data[at[has] + size[has] - 1 - place]
        whole = pa.decimal128(38, node.type.scale)
        found = pa.Array.from_buffers(whole, len(messages), [None, pa.py_buffer(little)])
        over = _beyond(found, node.type.precision)
        if over.any():
            self.fail(messages[over], f"a decimal has more than {node.type.precision} digits")
            found = pc.if_else(pa.array(over), pa.scalar(None, whole), found)
        return found.cast(node.type)

    # nested

    def _record(self, node: Node, messages: Ints) -> pa.Array:
        fields = [self.field(i, messages, n) for n, i in zip(node.names, node.inner, strict=True)]
        if not fields:
            return pa.array([{}] * len(messages), node.type)
        return pa.StructArray.from_arrays(fields, fields=list(node.type))

    def _union(self, node: Node, messages: Ints) -> pa.Array:
        branch = self.long(messages)
        wrong = (branch < 0) | (branch >= len(node.inner))
        if wrong.any():
            self.fail(messages[wrong], "there is no such branch of a union")
        members = []
        for number, inner in enumerate(node.inner):
            chosen = branch == number
            found = self.read(inner, messages[chosen])
            if inner.kind != "null":
                members.append(_scattered(found, chosen))
        if len(members) == 1:
            return members[0]
        if pa.types.is_struct(node.type):
            empty = reduce(pc.and_, [m.is_null() for m in members])
            return pa.StructArray.from_arrays(members, fields=list(node.type), mask=empty)
        return pc.coalesce(*[m.cast(node.type) for m in members])

    def _array(self, node: Node, messages: Ints) -> pa.Array:
        offsets, (items,) = self._items(messages, (node.inner[0],))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=node.type)

    def _map(self, node: Node, messages: Ints) -> pa.Array:
        offsets, (keys, values) = self._items(messages, (Node("string", pa.string()), node.inner[0]))
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values, type=node.type)

    def _items(self, messages: Ints, nodes: tuple[Node, ...]) -> tuple[Ints, list[pa.Array]]:
        """Returns the items of blocks: how many of each message, as offsets, and their parts in order."""
        empty = all(n.can_be_empty for n in nodes)
        steps: list[tuple[Ints, list[pa.Array]]] = []
        open_ = np.arange(len(messages))
        while len(open_):
            left = self._count(messages[open_], empty)
            open_ = open_[left > 0]
            left = left[left > 0]
            owners = open_
            while len(owners):
                steps.append((owners, [self.read(n, messages[owners]) for n in nodes]))
                left = left - 1
                on = (left > 0) & (self.why[messages[owners]] < 0)
                owners, left = owners[on], left[on]
            open_ = open_[self.why[messages[open_]] < 0]
        if not steps:
            return np.zeros(len(messages) + 1, np.int64), [pa.nulls(0, n.type) for n in nodes]
        owner = np.concatenate([o for o, _ in steps])
        order = pa.array(np.argsort(owner, kind="stable"))
        parts = [pa.concat_arrays([p[at] for _, p in steps]).take(order) for at in range(len(nodes))]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(messages)))])
        return offsets, parts

    def _count(self, messages: Ints, empty: bool) -> Ints:
        """Returns the number of items of the next block; 0 ends them. A negative number says that the bytes of the
        block follow.
        """
        count = self.long(messages)
        sized = np.flatnonzero(count < 0)
        if len(sized):
            self.long(messages[sized])
            count = np.abs(count)
        room = np.full(len(messages), _MOST_EMPTY) if empty else self.end[messages] - self.at[messages]
        wrong = (count > room) | (count < 0)
        if wrong.any():
            self.fail(messages[wrong], _SHORT)
            count = np.where(wrong, 0, count)
        return count


def _scattered(found: pa.Array, chosen: npt.NDArray[np.bool_]) -> pa.Array:
    """Returns the values where they were chosen, NULL elsewhere."""
    if len(found) == len(chosen):
        return found
    places = np.cumsum(chosen) - 1
    return found.take(pa.array(places, mask=~chosen))


def _beyond(found: pa.Array, digits: int) -> npt.NDArray[np.bool_]:
    """Returns which decimals have more digits."""
    numbers = found.view(pa.decimal128(38, 0))
    limit = pa.scalar(10**digits - 1, pa.decimal128(38, 0))
    over = pc.or_(pc.greater(numbers, limit), pc.less(numbers, pc.negate(limit)))
    result: npt.NDArray[np.bool_] = over.to_numpy(zero_copy_only=False).astype(bool)
    return result


def is_text(value: Any) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
