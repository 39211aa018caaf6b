"""Evaluates paths into nested values: ``positions.*.shares``, ``portfolio.**.price > 10``, ``orders[*].amount``,
``a[0].b``.

A path begins at a column, or with ``*`` or ``**`` at the row itself. ``*`` and ``[*]`` are all fields of a STRUCT,
values of a MAP or elements of an ARRAY, ``**`` any number of such levels, ``[0]`` the first element. Text that holds
JSON is gone into as if it were nested. What a path does not find gives no value.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.errors import SqlSyntaxError
from millpond.sql.paths import ANY, DEEP, Step, Steps

_ANY, _DEEP = object(), object()
_STEP = re.compile(r"\s*(?:(?P<deep>\*\*)|(?P<any>\*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<name>[^\W\d]\w*))")
_INDEX = re.compile(r"\s*\[\s*(?:(?P<any>\*)|(?P<at>\d+)|(?P<key>'(?:[^']|'')*'))\s*\]")
_COMPARE = re.compile(r"\s*(?P<op><=|>=|<>|!=|==|=|<|>)\s*(?P<value>\S.*?)\s*")
_NUMBER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+[eE][+-]?\d+|\d+\.\d*[eE][+-]?\d+)")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Path:
    """Steps, and a comparison that the values must hold."""

    text: str
    steps: tuple[Any, ...]
    compared: tuple[str, Any] | None = None
    """The operator, and the constant."""

    @property
    def parts(self) -> Steps:
        """The steps as ``sql/paths.py`` has them."""
        return tuple(_part(step) for step in self.steps)

    @property
    def column(self) -> str | None:
        """The column that it begins at; None where it begins at the row."""
        first = self.steps[0]
        return first if isinstance(first, str) else None

    def values(self, row: Any, dtype: pa.DataType | None) -> Iterator[Any]:
        """Yields the values that the path finds from a value of that type, in order."""
        holds = None if self.compared is None else _comparison(*self.compared)
        for value in _walk(row, dtype, self.steps):
            if holds is None or holds(value):
                yield value


def steps_from(steps: Sequence[tuple[str, Any]]) -> tuple[Any, ...]:
    """Returns the steps of what ``sql/paths.py`` has."""
    kinds = {ANY: _ANY, DEEP: _DEEP}
    return tuple(kinds.get(kind, what) for kind, what in steps)


def _part(step: Any) -> Step:
    if step is _ANY or step is _DEEP:
        return (ANY if step is _ANY else DEEP, "")
    return ("at" if isinstance(step, int) else "name", step)


def parse_path(text: str) -> Path:
    """Returns the path, with its comparison if it has one. Raises SqlSyntaxError."""
    steps: list[Any] = []
    at = 0
    while True:
        found = _STEP.match(text, at)
        if found is None:
            raise _wrong(text, at, "a field, * or **")
        if not (found["deep"] and steps[-1:] == [_DEEP]):  # any number of levels, twice
            steps.append(_DEEP if found["deep"] else _ANY if found["any"] else _named(found))
        at = found.end()
        while found := _INDEX.match(text, at):
            steps.append(_ANY if found["any"] else int(found["at"]) if found["at"] else _text(found["key"]))
            at = found.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    if not text[at:].strip():
        return Path(text, tuple(steps))
    compared = _COMPARE.fullmatch(text, at)
    if compared is None:
        raise _wrong(text, at, "the end or a comparison")
    wanted = _constant(compared["value"], text)
    return Path(text, tuple(steps), (compared["op"], wanted))


def _named(found: re.Match[str]) -> str:
    quoted = found["quoted"]
    return found["name"] if quoted is None else quoted.replace("``", "`")


def _text(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


def _constant(text: str, path: str) -> Any:
    if _NUMBER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    if re.fullmatch(r"'(?:[^']|'')*'", text) or re.fullmatch(r'"[^"]*"', text):
        return _text(text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise SqlSyntaxError(
        f'path "{path}" compares with "{text}", which is not a constant',
        hint="compare with a number, a text in quotes, true or false",
    )


def _wrong(text: str, at: int, expected: str) -> SqlSyntaxError:
    found = f'"{text[at:].strip()}"' if text[at:].strip() else "its end"
    return SqlSyntaxError(
        f'path "{text}": expected {expected}, found {found}', hint="positions.*.shares, orders[0].amount"
    )


def _comparison(name: str, wanted: Any) -> Callable[[Any], bool]:
    """Returns whether a value of the same kind compares so; a value of another kind does not."""
    compare = _OPERATORS[name]
    kinds: tuple[type, ...] = (str,) if isinstance(wanted, str) else (int, float, Decimal)
    logical = isinstance(wanted, bool)

    def holds(value: Any) -> bool:
        fits = isinstance(value, kinds) and isinstance(value, bool) == logical
        return fits and compare(value, wanted)

    return holds


def _walk(value: Any, dtype: pa.DataType | None, steps: tuple[Any, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    value, dtype = _opened(value, dtype)
    step, rest = steps[0], steps[1:]
    if step is _DEEP:
        inner = list(_children(value, dtype))
        if not rest:
            if not (isinstance(value, (dict, list)) or (dtype is not None and pa.types.is_nested(dtype))):
                yield value
            for child, kind in inner:
                yield from _walk(child, kind, steps)
            return
        # A name on an array means its elements, which come by themselves here.
        if not (isinstance(value, list) and isinstance(rest[0], str)):
            yield from _walk(value, dtype, rest)
        for child, kind in inner:
            yield from _walk(child, kind, steps)
    elif step is _ANY:
        for child, kind in _children(value, dtype):
            yield from _walk(child, kind, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and step < len(value):
            yield from _walk(value[step], _element(dtype), rest)
    elif isinstance(value, list):
        # As in Spark, a field of an array of structs is that field of every element.
        for child, kind in _children(value, dtype):
            if isinstance(child, dict):
                yield from _walk(child, kind, steps)
    elif isinstance(value, dict):
        name = _spelled(step, value, dtype)
        if name is not None:
            yield from _walk(value[name], _field(dtype, name), rest)


def _opened(value: Any, dtype: pa.DataType | None) -> tuple[Any, pa.DataType | None]:
    """Returns the value, or what it holds if it is JSON text."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value, parse_float=Decimal), None
        except ValueError:
            pass
    return value, dtype


def _children(value: Any, dtype: pa.DataType | None) -> Iterator[tuple[Any, pa.DataType | None]]:
    value, dtype = _opened(value, dtype)
    if isinstance(value, dict):
        for name, child in value.items():
            yield child, _field(dtype, name)
    elif isinstance(value, list):
        for child in value:
            yield child, _element(dtype)


def _element(dtype: pa.DataType | None) -> pa.DataType | None:
    return dtype.value_type if dtype is not None and pa.types.is_list(dtype) else None


def _field(dtype: pa.DataType | None, name: str) -> pa.DataType | None:
    if dtype is not None and pa.types.is_struct(dtype):
        return dtype.field(name).type
    return dtype.item_type if dtype is not None and pa.types.is_map(dtype) else None


def _spelled(name: str, value: Mapping[Any, Any], dtype: pa.DataType | None) -> Any:
    """Returns the field of that name, or None: fields of a STRUCT ignore case, keys of a MAP or of JSON do not."""
    if name in value:
        return name
    if dtype is not None and pa.types.is_struct(dtype):
        return next((known for known in value if known.lower() == name.lower()), None)
    if dtype is not None and pa.types.is_map(dtype) and pa.types.is_integer(dtype.key_type):
        return int(name) if name.isdigit() and int(name) in value else None
    return None
