"""Decides which arguments a parameter accepts, and what they are cast to: Spark's implicit casts in ANSI mode."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from millpond.sql.typing import decimals
from millpond.sql.typing.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    INTEGERS,
    NULL,
    STRING,
    is_decimal,
    is_integer,
    is_list,
    is_map,
    is_nested,
    is_numeric,
    is_struct,
    list_of,
)
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

CONCRETE: dict[str, pa.DataType] = {
    "boolean": BOOLEAN,
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": INT,
    "bigint": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "binary": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "array<string>": list_of(STRING),
    "array<int>": list_of(INT),
    "map<string,string>": pa.map_(STRING, STRING),
}
DATETIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_TIMES = (TIMESTAMP, TIMESTAMP_NTZ)

# A kind: the types that it accepts unchanged; what NULL and STRING become, if it accepts them.
_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], pa.DataType | None, pa.DataType | None]] = {
    "any": (lambda t: True, None, None),
    "number": (is_numeric, DOUBLE, DOUBLE),
    "integral": (is_integer, INT, None),
    "decimal": (is_decimal, pa.decimal128(38, 18), pa.decimal128(38, 18)),
    "interval": (lambda t: t == DURATION, None, None),
    "plain": (lambda t: not has_map(t), NULL, STRING),
    "time": (lambda t: t in _TIMES, TIMESTAMP, TIMESTAMP),
}


def has_map(dtype: pa.DataType) -> bool:
    return is_map(dtype) or any(has_map(dtype.field(i).type) for i in range(dtype.num_fields))


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether CAST accepts values of one type for another, in ANSI mode."""
    if source in (target, NULL) or target == STRING:
        return True
    if source == STRING:
        return not is_nested(target)
    if is_numeric(source):
        interval = target == DURATION and (is_integer(source) or is_decimal(source))
        return is_numeric(target) or target in (BOOLEAN, TIMESTAMP) or interval
    if source == BOOLEAN:
        return is_numeric(target)
    if source in DATETIMES:
        return target in DATETIMES or (source == TIMESTAMP and is_numeric(target))
    if source == DURATION:
        return is_integer(target) or is_decimal(target)
    return _all_parts(source, target, castable)


def assignable(source: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether a value of one type may be stored in a column of another."""
    if source in (target, NULL):
        return True
    if is_numeric(source) and is_numeric(target):
        return True
    if target == STRING:
        return not is_nested(source)
    if source in DATETIMES and target in DATETIMES:
        return True
    return _all_parts(source, target, assignable)


def _all_parts(
    source: pa.DataType, target: pa.DataType, rule: Callable[[pa.DataType, pa.DataType], bool]
) -> bool:
    """Returns whether two nested types are of one kind, and a rule is true for each of their parts."""
    if is_list(source) and is_list(target):
        return rule(source.value_type, target.value_type)
    if is_map(source) and is_map(target):
        return rule(source.key_type, target.key_type) and rule(source.item_type, target.item_type)
    if is_struct(source) and is_struct(target):
        same = len(source) == len(target)
        return same and all(rule(a.type, b.type) for a, b in zip(source, target, strict=True))
    return False


def implicit(given: pa.DataType, expected: str) -> pa.DataType | None:
    """Returns the type that an argument is cast to for a parameter; None if it is refused. After a ``!``, only NULL is
    cast.
    """
    if expected.endswith("!"):
        found = implicit(given, expected[:-1])
        return found if given == NULL or found == given else None
    if "|" in expected:
        return _one_of(given, expected.split("|"))
    if expected == "small":
        # DATE_ADD and DATE_SUB accept all integers except BIGINT.
        return given if given in INTEGERS[:3] else INT if given in (NULL, STRING) else None
    kind = _KINDS.get(expected)
    if kind is not None:
        takes, null, text = kind
        if takes(given) and not (given == NULL and null is not None):
            return given
        if given == NULL:
            return null
        if given == STRING:
            return text
        if expected == "decimal" and is_numeric(given):
            return decimals.of_integer(given) or pa.decimal128(30, 15) if given == DOUBLE else None
        return TIMESTAMP if expected == "time" and given == DATE else None
    target = CONCRETE[expected]
    if given == STRING and not is_nested(target):
        return target
    return target if assignable(given, target) else None


_WORDS = {
    "plain": "without MAP",
    "number": "a number",
    "integral": "an integer",
    "interval": "an INTERVAL",
    "time": "TIMESTAMP or TIMESTAMP_NTZ",
    "small": "INT",
}


def wanted(expected: str) -> str:
    """Returns what a parameter accepts, in words."""
    choices = expected.removesuffix("!").split("|")
    return " or ".join(_WORDS.get(choice, choice.upper()) for choice in choices)


def _one_of(given: pa.DataType, choices: list[str]) -> pa.DataType | None:
    """Resolves a parameter of several types: unchanged if one accepts it, else the first that it can be cast to."""
    if any(implicit(given, choice) == given for choice in choices):
        return given
    found = [t for t in (implicit(given, choice) for choice in choices) if t is not None]
    return found[0] if found else None
