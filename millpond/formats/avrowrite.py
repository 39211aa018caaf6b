"""Encodes rows as Avro values: column by column, then all columns of a row in sequence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BadData
from millpond.formats.avroschema import Node
from millpond.types import whole

_BYTES = pa.large_binary()


def write_avro(rows: pa.Table, node: Node) -> pa.Array:
    """Encodes one value for each row, as bytes. The columns are those of the record, in any order and ignoring case.
    Raises BadData.
    """
    by_name = {n.lower(): whole(c) for n, c in zip(rows.column_names, rows.columns, strict=True)}
    fields = []
    for name, inner in zip(node.names, node.inner, strict=True):
        column = by_name.pop(name.lower(), None)
        if column is None:
            column = pa.nulls(rows.num_rows, inner.type)
        fields.append(_field(name, inner, column))
    return _joined(fields, rows.num_rows).cast(pa.binary())


def write_keys(keys: pa.Array, node: Node) -> pa.Array:
    """Encodes one value of any type for each key, as bytes; NULL stays NULL. Raises BadData."""
    there = np.asarray(keys.is_valid())
    places = pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there)
    return _field("_key", node, keys.drop_null()).cast(pa.binary()).take(places)


def write_long(value: int) -> bytes:
    """Encodes one whole number."""
    return bytes(_numbers(np.array([value], np.int64))[0].as_py())


def _field(name: str, node: Node, column: pa.Array) -> pa.Array:
    try:
        return _encoded(node, column)
    except (BadData, pa.ArrowException, ValueError) as error:
        why = error.message if isinstance(error, BadData) else str(error)
        raise BadData(f'field "{name}" cannot be written as Avro: {why}') from None


def _encoded(node: Node, array: pa.Array) -> pa.Array:
    """Encodes the bytes of each value."""
    if node.kind == "union":
        return _union(node, array)
    if node.kind == "null":
        return pa.array([b""] * len(array), _BYTES)
    if array.null_count:
        raise BadData("it is NULL, which the schema does not allow")
    if node.kind not in ("record", "array", "map"):
        array = array.cast(node.type)
    match node.kind:
        case "boolean":
            return _fixed(np.asarray(array.cast(pa.uint8())).astype(np.uint8)[:, None])
        case "int" | "long" | "date":
            width = pa.int64() if node.kind == "long" else pa.int32()
            return _numbers(np.asarray(array.cast(width).cast(pa.int64())))
        case "timestamp":
            return _numbers(np.asarray(array.cast(pa.timestamp(node.unit, array.type.tz)).cast(pa.int64())))
        case "float" | "double":
            size = 4 if node.kind == "float" else 8
            values = np.asarray(array).astype(f"<f{size}")
            return _fixed(values.view(np.uint8).reshape(len(values), size))
        case "bytes" | "string":
            return _sized(array)
        case "fixed":
            if any(size != node.size for size in pc.unique(pc.binary_length(array)).to_pylist()):
                raise BadData(f"it must have {node.size} bytes")
            return array.cast(_BYTES)
        case "enum":
            which = pc.index_in(array, pa.array(node.names, pa.string()))
            if which.null_count:
                raise BadData(f"it is not one of {', '.join(node.names)}")
            return _numbers(np.asarray(which.cast(pa.int64())))
        case "decimal":
            return _decimals(node, array)
        case "record":
            return _record(node, array)
        case "array":
            return _blocks(array, _encoded(node.inner[0], array.flatten()))
        case _:
            pairs = [_sized(_flat(array, array.keys)), _encoded(node.inner[0], _flat(array, array.items))]
            return _blocks(array, _joined(pairs, len(pairs[0])))


def _union(node: Node, array: pa.Array) -> pa.Array:
    kinds = [i.kind for i in node.inner]
    real = [at for at, kind in enumerate(kinds) if kind != "null"]
    if len(real) > 1:
        raise BadData("a union of several types cannot be written")
    there = np.asarray(array.is_valid())
    if not there.all() and "null" not in kinds:
        raise BadData("it is NULL, which the schema does not allow")
    values = _encoded(node.inner[real[0]], array.filter(pa.array(there)))
    lead = _scalar(bytes([real[0] * 2]))
    values = pc.binary_join_element_wise(lead, values, _scalar(b""))
    if there.all():
        return values
    places = pa.array(np.cumsum(there) - 1, mask=~there)
    return values.take(places).fill_null(_scalar(bytes([kinds.index("null") * 2])))


def _record(node: Node, array: pa.Array) -> pa.Array:
    by_name = {f.name.lower(): at for at, f in enumerate(array.type)}
    flat = array.flatten()
    fields = [
        _field(
            name,
            inner,
            flat[by_name[name.lower()]] if name.lower() in by_name else pa.nulls(len(array), inner.type),
        )
        for name, inner in zip(node.names, node.inner, strict=True)
    ]
    return _joined(fields, len(array))


def _flat(maps: pa.Array, part: pa.Array) -> pa.Array:
    """Returns the keys or values that belong to the maps, which may be a slice of a longer array."""
    offsets = maps.offsets
    first, last = (offsets[0].as_py(), offsets[-1].as_py()) if len(maps) else (0, 0)
    return part.slice(first, last - first)


def _blocks(array: pa.Array, items: pa.Array) -> pa.Array:
    """Encodes the items of each value as one block, and the end."""
    places = np.asarray(array.offsets).astype(np.int64)
    places = places - places[0] if len(places) else np.zeros(1, np.int64)
    counts = np.diff(places)
    _, offsets, data = items.buffers()
    ends = np.frombuffer(offsets, np.int64)[items.offset : items.offset + len(items) + 1]
    ends = ends if len(ends) else np.zeros(1, np.int64)
    body = pa.Array.from_buffers(_BYTES, len(array), [None, pa.py_buffer(ends[places].copy()), data])
    count = _numbers(counts)
    head = pc.if_else(pa.array(counts > 0), count, _scalar(b""))
    return pc.binary_join_element_wise(head, body, _scalar(b"\x00"), _scalar(b""))


def _sized(array: pa.Array) -> pa.Array:
    data = array.cast(pa.binary()).cast(_BYTES)
    return _joined([_numbers(np.asarray(pc.binary_length(data)).astype(np.int64)), data], len(array))


def _joined(parts: list[pa.Array], rows: int) -> pa.Array:
    if not parts:
        return pa.array([b""] * rows, _BYTES)
    return pc.binary_join_element_wise(*parts, _scalar(b""))


def _scalar(value: bytes) -> pa.Scalar:
    return pa.scalar(value, _BYTES)


def _numbers(values: npt.NDArray[np.int64]) -> pa.Array:
    """Encodes whole numbers, seven bits a byte."""
    folded = ((values << 1) ^ (values >> 63)).view(np.uint64)
    shifts = np.arange(10, dtype=np.uint64) * np.uint64(7)
    parts = (folded[:, None] >> shifts) & np.uint64(0x7F)
    size = 1 + ((folded[:, None] >> shifts[1:]) != 0).sum(axis=1)
    more = np.arange(10) < (size - 1)[:, None]
    cells = (parts | np.where(more, np.uint64(0x80), np.uint64(0))).astype(np.uint8)
    return _cut(cells[np.arange(10) < size[:, None]], size)


def _cut(data: npt.NDArray[np.uint8], size: npt.NDArray[np.int64]) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    return pa.Array.from_buffers(_BYTES, len(size), [None, pa.py_buffer(offsets), pa.py_buffer(data.copy())])


def _fixed(cells: npt.NDArray[np.uint8]) -> pa.Array:
    """Encodes rows of bytes, all of one length."""
    return _cut(cells.reshape(-1), np.full(len(cells), cells.shape[1]))


def _decimals(node: Node, array: pa.Array) -> pa.Array:
    buffer = array.buffers()[1]
    little = np.frombuffer(buffer, np.uint8).reshape(-1, 16)[array.offset : array.offset + len(array)]
    big = little[:, ::-1]
    if not node.size:
        return _sized(_fixed(big).cast(pa.binary()))
    if node.size >= 16:
        sign = np.repeat(np.where(big[:, :1] & 0x80, 0xFF, 0).astype(np.uint8), node.size - 16, axis=1)
        return _fixed(np.concatenate([sign, big], axis=1))
    cut, sign = big[:, : 16 - node.size], np.where(big[:, 16 - node.size] & 0x80, 0xFF, 0)
    if (cut != sign[:, None]).any():
        raise BadData(f"a decimal does not fit into {node.size} bytes")
    return _fixed(big[:, 16 - node.size :])
