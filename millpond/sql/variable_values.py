"""Recognises other values of the variables ``${…}`` in the query of a statement, without storing them.

The text of a statement is stored as it was written, so a new value would go unnoticed. A fingerprint is stored with it:
a slow hash, with a salt, of all values in a query with variables. Options and addresses do not count: a new password or
host does not change what a query means. The fingerprint of all statements together tells at once that nothing has
another value.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

from sqlglot import exp

from millpond.errors import Place
from millpond.sql.statements import Statement

_COST = 2**12
"""The work of one hash: about 10 ms."""


def fingerprint_of(statement: Statement) -> str | None:
    """Returns what tells the values in its query apart from others; None if it has no variables."""
    return _fingerprint(statement, os.urandom(8).hex())


def has_values(statement: Statement, fingerprint: str | None) -> bool:
    """Returns whether a statement has the values that it had when the fingerprint was made, as far as that is known."""
    return fingerprint is None or _fingerprint(statement, fingerprint.partition(":")[0]) in (
        fingerprint,
        None,
    )


def have_values(stored: Sequence[tuple[Statement, str]], fingerprint: str | None) -> str:
    """Compares all statements with their fingerprints at once: if ``fingerprint`` is that of all of them, each has its
    values, and is not compared by itself any more. Returns the fingerprint of all.
    """
    digests = [(_digest(statement), known) for statement, known in stored]
    salt = (fingerprint or os.urandom(8).hex()).partition(":")[0]
    found = f"{salt}:{_hashed(repr(digests), salt)}"
    if found == fingerprint:
        _hashes.update({(d, s.partition(":")[0]): s.partition(":")[2] for d, s in digests if d is not None})
    return found


_hashes: dict[tuple[str, str], str] = {}
"""The slow hashes that are known in this process, by what is hashed and the salt."""


def _fingerprint(statement: Statement, salt: str) -> str | None:
    digest = _digest(statement)
    if digest is None:
        return None
    if (digest, salt) not in _hashes:
        _hashes[digest, salt] = _hashed("\0".join(_values(statement.query)), salt)  # type: ignore[attr-defined]
    return f"{salt}:{_hashes[digest, salt]}"


def _digest(statement: Statement) -> str | None:
    """Returns a digest of the values, for this process only; None if there are no variables."""
    query = getattr(statement, "query", None)
    if query is None or "${" not in statement.text:
        return None
    return hashlib.sha256("\0".join(_values(query)).encode()).hexdigest()


def _hashed(values: str, salt: str) -> str:
    return hashlib.scrypt(values.encode(), salt=salt.encode(), n=_COST, r=8, p=1, dklen=16).hex()


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
