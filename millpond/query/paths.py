"""Evaluates paths into nested values: ``positions.*.shares``, ``portfolio.**.price > 10``, ``orders[*].amount``,
``a[0].b``.

A path begins at a column, or with ``*`` or ``**`` at the row itself. ``*`` and ``[*]`` are all fields of a STRUCT,
values of a MAP or elements of an ARRAY, ``**`` is any number of such levels, ``[0]`` the first element. JSON text is
traversed like nested values. A path that does not exist returns no value.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.errors import SqlSyntaxError
from millpond.sql.paths import ANY, DEEP, Step, Steps, field_of, key_of

_ANY: Step = (ANY, "")
_DEEP: Step = (DEEP, "")
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
    """Contains the steps, and a comparison that the values must satisfy."""

    text: str
    steps: Steps
    compared: tuple[str, Any] | None = None
    """The operator, and the constant."""

    @property
    def column(self) -> str | None:
        """Returns the column that it begins at; None if it begins at the row."""
        kind, what = self.steps[0]
        return str(what) if kind == "name" else None

    def values(self, row: Any, dtype: pa.DataType | None) -> Iterator[Any]:
        """Yields the values that the path finds from a value of that type, in order."""
        holds = None if self.compared is None else _comparison(*self.compared)
        for value in _walk(row, dtype, self.steps):
            if holds is None or holds(value):
                yield value


def parse_path(text: str) -> Path:
    """Returns the path, with its comparison if it has one. Raises SqlSyntaxError."""
    steps: list[Step] = []
    at = 0
    while True:
        found = _STEP.match(text, at)
        if found is None:
            raise _wrong(text, at, "a field, * or **")
        if not (found["deep"] and steps[-1:] == [_DEEP]):  # any number of levels, twice
            steps.append(_DEEP if found["deep"] else _ANY if found["any"] else ("name", _named(found)))
        at = found.end()
        while found := _INDEX.match(text, at):
            steps.append(_ANY if found["any"] else _index(found))
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


def _index(found: re.Match[str]) -> Step:
    return ("at", int(found["at"])) if found["at"] else ("name", _text(found["key"]))


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
    """Returns a function that compares a value of the same kind; a value of another kind does not match."""
    compare = _OPERATORS[name]
    kinds: tuple[type, ...] = (str,) if isinstance(wanted, str) else (int, float, Decimal)
    logical = isinstance(wanted, bool)

    def holds(value: Any) -> bool:
        fits = isinstance(value, kinds) and isinstance(value, bool) == logical
        return fits and compare(value, wanted)

    return holds


def _walk(value: Any, dtype: pa.DataType | None, steps: Steps) -> Iterator[Any]:
    if not steps:
        yield value
        return
    value, dtype = _opened(value, dtype)
    (step, what), rest = steps[0], steps[1:]
    if step == DEEP:
        inner = list(_children(value, dtype))
        if not rest:
            if not (isinstance(value, (dict, list)) or (dtype is not None and pa.types.is_nested(dtype))):
                yield value
            for child, kind in inner:
                yield from _walk(child, kind, steps)
            return
        # A name on an array means its elements, which are traversed separately here.
        if not (isinstance(value, list) and rest[0][0] == "name"):
            yield from _walk(value, dtype, rest)
        for child, kind in inner:
            yield from _walk(child, kind, steps)
    elif step == ANY:
        for child, kind in _children(value, dtype):
            yield from _walk(child, kind, rest)
    elif step == "at":
        if isinstance(value, list) and int(what) < len(value):
            yield from _walk(value[int(what)], _element(dtype), rest)
    elif isinstance(value, list):
        # As in Spark, a field of an array of structs is that field of every element.
        for child, kind in _children(value, dtype):
            if isinstance(child, dict):
                yield from _walk(child, kind, steps)
    elif isinstance(value, dict):
        name = _spelled(str(what), value, dtype)
        if name is not None:
            yield from _walk(value[name], _field(dtype, name), rest)


def _opened(value: Any, dtype: pa.DataType | None) -> tuple[Any, pa.DataType | None]:
    """Returns the value, or what it contains if it is JSON text."""
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
    found: Any = name
    if dtype is not None and pa.types.is_struct(dtype):
        field = None if name in value else field_of(dtype, name)
        found = name if field is None else field.name
    elif dtype is not None and pa.types.is_map(dtype):
        found = key_of(dtype, name)
    return found if found in value else None
