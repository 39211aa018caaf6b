"""Writes a path into nested values as an expression that returns the array of the values that the path finds.

``*`` and ``[*]`` are all fields of a STRUCT, values of a MAP or elements of an ARRAY, ``**`` any number of such levels,
``[0]`` the first element; a field of an array is that field of each element. What does not exist adds no value. The
types are known, so every step is; the evaluators differ only in their SQL.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from millpond.errors import TypeMismatch
from millpond.sql.typing import widest
from millpond.types import type_name

ANY, DEEP = "*", "**"
TEXTS, NUMBERS = "__path_texts", "__path_numbers"
"""Functions of the evaluators: (JSON text, JSON of the steps) → array of the values."""
JSON_NUMBER = pa.decimal128(38, 18)
Step = tuple[str, str | int]
"""("name", n), ("at", i), ("*", "") or ("**", "")."""
Steps = tuple[Step, ...]


class Words(ABC):
    """Declares how an evaluator writes the parts. ``x`` are expressions; arrays are never NULL."""

    @abstractmethod
    def cast(self, x: str, source: pa.DataType, target: pa.DataType) -> str: ...
    @abstractmethod
    def one(self, x: str) -> str:
        """Returns the array of one value."""

    @abstractmethod
    def none(self, dtype: pa.DataType) -> str:
        """Returns an empty array with that element type."""

    @abstractmethod
    def both(self, a: str, b: str) -> str:
        """Returns the concatenation of two arrays."""

    @abstractmethod
    def each(self, x: str, variable: str, body: str, none: str) -> str:
        """Returns the concatenated arrays that ``body`` returns for each element of an array."""

    @abstractmethod
    def when(self, condition: str, then: str, otherwise: str) -> str: ...
    @abstractmethod
    def field(self, x: str, name: str) -> str: ...
    @abstractmethod
    def values(self, x: str) -> str:
        """Returns the values of a map, as an array."""

    @abstractmethod
    def has(self, x: str, key: str) -> str:
        """Returns a test whether a map has a key."""

    @abstractmethod
    def of_key(self, x: str, key: str) -> str: ...
    @abstractmethod
    def key(self, value: str | int) -> str:
        """Returns a literal."""

    @abstractmethod
    def at(self, x: str, index: int) -> str: ...
    def json(self, x: str, steps: Steps, element: pa.DataType) -> str:
        """Returns the values in JSON text."""
        name = TEXTS if pa.types.is_string(element) else NUMBERS
        path = self.key(json.dumps(steps))
        return self.when(f"{x} IS NOT NULL", f"{name}({x}, {path})", self.none(element))

    @abstractmethod
    def longer(self, x: str, index: int) -> str:
        """Returns a test whether an array has an element at the index."""


def is_json(heads: list[tuple[pa.DataType, Steps]]) -> bool:
    """Returns whether a path finds its values in JSON text, and not in declared fields."""
    found = [how for dtype, steps in heads for _, how in _leaves(dtype, steps)]
    return "json" in found and set(found) == {"json"}


def element_type(heads: list[tuple[pa.DataType, Steps]], *, numbers: bool) -> pa.DataType | None:
    """Returns the type of the values of a path; None if it can find none. ``numbers`` says that values of JSON text
    should be numbers, not texts. Raises TypeMismatch if they have no common type.
    """
    if is_json(heads):
        return JSON_NUMBER if numbers else pa.string()
    found = [(d, how) for dtype, steps in heads for d, how in _leaves(dtype, steps) if how != "json"]
    if not found:
        return None
    types = [dtype for dtype, _ in found]
    # A MAP may have any key: if its values do not fit, a name means the declared fields.
    common = widest(types) or widest([dtype for dtype, how in found if how != "key"])
    if common is None:
        names = ", ".join(dict.fromkeys(type_name(t) for t in types))
        raise TypeMismatch(
            f"the values of the path have no common type: {names}", hint="name the fields that are meant"
        )
    return common


def write(words: Words, heads: list[tuple[str, pa.DataType, Steps]], element: pa.DataType) -> str:
    """Returns the array of the values that the paths find from these expressions, in order."""
    writer = _Writer(words, element, is_json([(dtype, steps) for _, dtype, steps in heads]))
    return writer.together([writer.walk(x, dtype, steps, 0) for x, dtype, steps in heads])


def _leaves(dtype: pa.DataType, steps: Steps, how: str = "") -> Iterator[tuple[pa.DataType, str]]:
    """Yields the types of the values, and how they are found: "key" if a name on the way is a key of a map, "json" in
    text that may contain JSON.
    """
    if not steps:
        yield dtype, how
        return
    (kind, what), rest = steps[0], steps[1:]
    t = pa.types
    if t.is_string(dtype) and steps != ((DEEP, ""),):
        yield dtype, "json"
    elif kind == DEEP:
        inner = list(_children(dtype))
        if rest:
            yield from _leaves(dtype, rest, how)
        elif not inner:
            yield dtype, how
        for child in inner:
            yield from _leaves(child, steps, how)
    elif kind == ANY:
        for child in _children(dtype):
            yield from _leaves(child, rest, how)
    elif kind == "at":
        if t.is_list(dtype):
            yield from _leaves(dtype.value_type, rest, how)
    elif t.is_list(dtype):
        if t.is_struct(dtype.value_type) or t.is_map(dtype.value_type):
            yield from _leaves(dtype.value_type, steps, how)
    elif t.is_struct(dtype):
        found = field_of(dtype, str(what))
        if found is not None:
            yield from _leaves(found.type, rest, how)
    elif t.is_map(dtype) and key_of(dtype, str(what)) is not None:
        yield from _leaves(dtype.item_type, rest, "key")


def _children(dtype: pa.DataType) -> list[pa.DataType]:
    t = pa.types
    if t.is_struct(dtype):
        return [f.type for f in dtype]
    return [dtype.item_type] if t.is_map(dtype) else [dtype.value_type] if t.is_list(dtype) else []


def field_of(dtype: pa.StructType, name: str) -> pa.Field | None:
    """Returns the field of that name, ignoring case."""
    return next((f for f in dtype if f.name.lower() == name.lower()), None)


def key_of(dtype: pa.MapType, name: str) -> str | int | None:
    """Returns the map key for a name; None if there can be none."""
    if pa.types.is_string(dtype.key_type):
        return name
    return int(name) if pa.types.is_integer(dtype.key_type) and name.isdigit() else None


class _Writer:
    def __init__(self, words: Words, element: pa.DataType, in_json: bool):
        self.words = words
        self.element = element
        self.in_json = in_json
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
        """Returns the array of the values; None if there can be none."""
        if not any(self.fits(*leaf) for leaf in _leaves(dtype, steps)):
            return None
        if self.in_json and pa.types.is_string(dtype):
            return self.words.json(x, steps, self.element)
        if not steps:
            return self.words.one(self.words.cast(x, dtype, self.element))
        (kind, what), rest = steps[0], steps[1:]
        words, t = self.words, pa.types
        if kind == DEEP:
            if not rest and not _children(dtype):
                return words.one(words.cast(x, dtype, self.element))
            # A name on an array means its elements, which are visited anyway.
            once = rest and not (t.is_list(dtype) and rest[0][0] == "name")
            own = self.walk(x, dtype, rest, depth) if once else None
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

    def fits(self, dtype: pa.DataType, how: str) -> bool:
        """Returns whether such values are among the wanted ones."""
        if self.in_json or how == "json":
            return self.in_json and how == "json"
        return bool(widest([dtype, self.element]) == self.element)

    def part(self, x: str, dtype: pa.StructType, name: str, rest: Steps, depth: int) -> str | None:
        """Returns the values in a field of a struct."""
        field = field_of(dtype, name)
        if field is None:
            return None
        body = self.walk(self.words.field(x, field.name), field.type, rest, depth)
        return None if body is None else self.words.when(f"{x} IS NOT NULL", body, self.none)

    def inside(self, x: str, dtype: pa.DataType, steps: Steps, depth: int) -> Iterator[str | None]:
        """Yields the values in each of the parts of a value."""
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
