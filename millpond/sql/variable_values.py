"""Recognises other values of the variables ``${…}`` in the query of a statement, without storing them.

The text of a statement is stored as it was written, so a new value would go unnoticed. A seal is stored with it: a slow
hash, with a salt, of all values in a query with variables. Options and addresses do not count: a new
password or host does not change what a query means.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

from sqlglot import exp

from millpond.errors import Place
from millpond.sql.statements import Statement

_COST = 2**12
"""The work of one hash: about 10 ms."""


def seal_of(statement: Statement) -> str | None:
    """Returns what tells the values in its query apart from others; None if it has no variables."""
    return _seal(statement, os.urandom(8).hex())


def has_values(statement: Statement, seal: str | None) -> bool:
    """Returns whether a statement has the values that it had when the seal was made, as far as that is known."""
    return seal is None or _seal(statement, seal.partition(":")[0]) in (seal, None)


def _seal(statement: Statement, salt: str) -> str | None:
    query = getattr(statement, "query", None)
    if query is None or "${" not in statement.text:
        return None
    values = "\0".join(_values(query))
    found = hashlib.scrypt(values.encode(), salt=salt.encode(), n=_COST, r=8, p=1, dklen=16)
    return f"{salt}:{found.hex()}"


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, exp.Expr):
        yield from (repr(node.this) for node in value.find_all(exp.Literal, exp.Boolean))
    elif isinstance(value, tuple):
        for item in value:
            yield from _values(item)
    elif is_dataclass(value) and not isinstance(value, Place):
        for field in fields(value):
            yield from _values(getattr(value, field.name))
    elif isinstance(value, int | float | timedelta):
        yield repr(value)
