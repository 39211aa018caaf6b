"""Paths into nested values, written as an expression that gives the array of the values that a path finds.

``*`` and ``[*]`` are all fields of a STRUCT, values of a MAP or elements of an ARRAY, ``**`` any number of such levels,
``[0]`` the first element; a field of an array is that field of each element. What is not there gives no value. The
types are known, so every step is; the evaluators differ only in their words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from millpond.errors import TypeMismatch
from millpond.sql.typing import widest
from millpond.types import type_name

ANY, DEEP = "*", "**"
Step = tuple[str, str | int]
"""("name", n), ("at", i), ("*", "") or ("**", "")."""
Steps = tuple[Step, ...]


class Words(ABC):
    """How an evaluator says the parts. ``x`` are expressions, arrays are never NULL."""

    @abstractmethod
    def cast(self, x: str, source: pa.DataType, target: pa.DataType) -> str: ...
    @abstractmethod
    def one(self, x: str) -> str:
        """The array of one value."""

    @abstractmethod
    def none(self, dtype: pa.DataType) -> str:
        """The empty array of that type of elements."""

    @abstractmethod
    def both(self, a: str, b: str) -> str:
        """Two arrays one after the other."""

    @abstractmethod
    def each(self, x: str, variable: str, body: str, none: str) -> str:
        """The arrays that ``body`` gives for each element of an array, one after the other."""

    @abstractmethod
    def when(self, condition: str, then: str, otherwise: str) -> str: ...
    @abstractmethod
    def field(self, x: str, name: str) -> str: ...
    @abstractmethod
    def values(self, x: str) -> str:
        """The values of a map, as an array."""

    @abstractmethod
    def has(self, x: str, key: str) -> str:
        """Whether a map has a key."""

    @abstractmethod
    def of_key(self, x: str, key: str) -> str: ...
    @abstractmethod
    def key(self, value: str | int) -> str:
        """A literal."""

    @abstractmethod
    def at(self, x: str, index: int) -> str: ...
    @abstractmethod
    def longer(self, x: str, index: int) -> str:
        """Whether an array has an element at the index."""


def element_type(heads: list[tuple[pa.DataType, Steps]]) -> pa.DataType | None:
    """The type of the values of a path; None if it can find none. Raises TypeMismatch if they have none in common."""
    found = [leaf for dtype, steps in heads for leaf in _leaves(dtype, steps)]
    if not found:
        return None
    types = [dtype for dtype, _ in found]
    # A MAP may have any key: where its values do not fit, a name means the fields that are declared.
    common = widest(types) or widest([dtype for dtype, is_key in found if not is_key])
    if common is None:
        names = ", ".join(dict.fromkeys(type_name(t) for t in types))
        raise TypeMismatch(
            f"the values of the path have no common type: {names}", hint="name the fields that are meant"
        )
    return common


def write(words: Words, heads: list[tuple[str, pa.DataType, Steps]], element: pa.DataType) -> str:
    """The array of the values that the paths find from these expressions, in order."""
    writer = _Writer(words, element)
    return writer.together([writer.walk(x, dtype, steps, 0) for x, dtype, steps in heads])


def _leaves(dtype: pa.DataType, steps: Steps, is_key: bool = False) -> Iterator[tuple[pa.DataType, bool]]:
    """The types of the values, and whether a name on the way is a key of a map."""
    if not steps:
        yield dtype, is_key
        return
    (kind, what), rest = steps[0], steps[1:]
    t = pa.types
    if kind == DEEP:
        inner = list(_children(dtype))
        if rest:
            yield from _leaves(dtype, rest, is_key)
        elif not inner:
            yield dtype, is_key
        for child in inner:
            yield from _leaves(child, steps, is_key)
    elif kind == ANY:
        for child in _children(dtype):
            yield from _leaves(child, rest, is_key)
    elif kind == "at":
        if t.is_list(dtype):
            yield from _leaves(dtype.value_type, rest, is_key)
    elif t.is_list(dtype):
        if t.is_struct(dtype.value_type) or t.is_map(dtype.value_type):
            yield from _leaves(dtype.value_type, steps, is_key)
    elif t.is_struct(dtype):
        found = field_of(dtype, str(what))
        if found is not None:
            yield from _leaves(found.type, rest, is_key)
    elif t.is_map(dtype) and key_of(dtype, str(what)) is not None:
        yield from _leaves(dtype.item_type, rest, True)


def _children(dtype: pa.DataType) -> list[pa.DataType]:
    t = pa.types
    if t.is_struct(dtype):
        return [f.type for f in dtype]
    return [dtype.item_type] if t.is_map(dtype) else [dtype.value_type] if t.is_list(dtype) else []


def field_of(dtype: pa.StructType, name: str) -> pa.Field | None:
    """The field of that name; case does not count."""
    return next((f for f in dtype if f.name.lower() == name.lower()), None)


def key_of(dtype: pa.MapType, name: str) -> str | int | None:
    """The key of a map that a name is; None if none can be."""
    if pa.types.is_string(dtype.key_type):
        return name
    return int(name) if pa.types.is_integer(dtype.key_type) and name.isdigit() else None


class _Writer:
    def __init__(self, words: Words, element: pa.DataType):
        self.words = words
        self.element = element
        self.none = words.none(element)

    def together(self, arrays: list[str | None]) -> str:
        found = [a for a in arrays if a is not None]
        if not found:
            return self.none
        whole = found[0]
        for more in found[1:]:
            whole = self.words.both(whole, more)
        return whole

    def walk(self, x: str, dtype: pa.DataType, steps: Steps, depth: int) -> str | None:
        """The array of the values; None if there can be none."""
        if not any(widest([leaf, self.element]) == self.element for leaf, _ in _leaves(dtype, steps)):
            return None
        if not steps:
            return self.words.one(self.words.cast(x, dtype, self.element))
        (kind, what), rest = steps[0], steps[1:]
        words, t = self.words, pa.types
        if kind == DEEP:
            if not rest and not _children(dtype):
                return words.one(words.cast(x, dtype, self.element))
            own = self.walk(x, dtype, rest, depth) if rest else None
            return self.together([own, *self.inside(x, dtype, steps, depth)])
        if kind == ANY:
            return self.together(list(self.inside(x, dtype, rest, depth)))
        if kind == "at":
            body = self.walk(words.at(x, int(what)), dtype.value_type, rest, depth)
            return None if body is None else words.when(words.longer(x, int(what)), body, self.none)
        if t.is_list(dtype):
            return self.together(list(self.inside(x, dtype, steps, depth)))
        if t.is_struct(dtype):
            return self.part(x, dtype, str(what), rest, depth)
        key = key_of(dtype, str(what))
        assert key is not None
        body = self.walk(words.of_key(x, words.key(key)), dtype.item_type, rest, depth)
        return None if body is None else words.when(words.has(x, words.key(key)), body, self.none)

    def part(self, x: str, dtype: pa.StructType, name: str, rest: Steps, depth: int) -> str | None:
        """The values in a field of a struct."""
        field = field_of(dtype, name)
        if field is None:
            return None
        body = self.walk(self.words.field(x, field.name), field.type, rest, depth)
        return None if body is None else self.words.when(f"{x} IS NOT NULL", body, self.none)

    def inside(self, x: str, dtype: pa.DataType, steps: Steps, depth: int) -> Iterator[str | None]:
        """The values in each of the parts of a value."""
        t = pa.types
        if t.is_struct(dtype):
            for field in dtype:
                yield self.part(x, dtype, field.name, steps, depth)
            return
        items = self.words.values(x) if t.is_map(dtype) else x
        variable = f"e{depth}"
        for child in _children(dtype):
            body = self.walk(variable, child, steps, depth + 1)
            yield None if body is None else self.words.each(items, variable, body, self.none)
