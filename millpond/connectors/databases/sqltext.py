"""Checks SQL that comes from options before it is sent, so that it can only read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name
from sqlglot import errors, exp, parse, tokenize
from sqlglot.tokens import TokenType

from millpond.errors import InvalidOption

_CHANGING = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.DDL, exp.Command, exp.Into, exp.Lock)
_WORDS = frozenset(
    "INSERT UPDATE DELETE MERGE CREATE DROP ALTER TRUNCATE GRANT REVOKE COPY CALL INTO LOCK REPLACE".split()
)
_ORDER = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>\w+))(?:\s+(?P<way>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*',
    re.IGNORECASE,
)


_HIDDEN = re.compile(r"/\*M?!", re.IGNORECASE)


def check_query(option: str, text: str, dialect: str) -> None:
    """Raises unless the text is one SELECT."""
    _refuse_hidden(option, text)
    try:
        trees = parse(text, read=dialect)
    except errors.SqlglotError:
        trees = None
    if trees is None:  # keywords of the database that are not known here: it must look like a SELECT
        good = _reads_by_its_words(text, dialect)
    else:
        good = len(trees) == 1 and isinstance(trees[0], exp.Query) and trees[0].find(*_CHANGING) is None
    if not good:
        raise InvalidOption(f'option "{option}" is not one SELECT', hint=f"'{option}' = 'SELECT … FROM …'")


def check_condition(option: str, text: str, dialect: str) -> None:
    """Raises unless the text is one condition."""
    _refuse_hidden(option, text)
    try:
        trees = parse(f"SELECT 1 WHERE (\n{text}\n)", read=dialect)
        tree = trees[0] if len(trees) == 1 else None
        where = tree.args.get("where") if isinstance(tree, exp.Select) else None
        # What follows the condition would belong to the statement: only WHERE is allowed.
        alone = (
            where is not None
            and isinstance(where.this, exp.Paren)
            and set(_set(tree)) == {"expressions", "where"}
        )
        good = alone and where is not None and where.find(*_CHANGING) is None
    except errors.SqlglotError:
        good = False
    if not good:
        raise InvalidOption(f'option "{option}" is not a condition', hint=f"'{option}' = 'status = ''open'''")


def _refuse_hidden(option: str, text: str) -> None:
    """Refuses comments that a database executes as statements, which are not checked."""
    if _HIDDEN.search(text):
        raise InvalidOption(f'option "{option}" has a comment that is run: /*! … */', hint="write it without")


def _set(tree: exp.Expr | None) -> list[str]:
    return [name for name, value in tree.args.items() if value] if tree is not None else []


def _reads_by_its_words(text: str, dialect: str) -> bool:
    try:
        tokens = tokenize(text, read=dialect)
    except errors.SqlglotError:
        return False
    words = [t.text.upper() for t in tokens if t.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)]
    return bool(words) and words[0] in ("SELECT", "WITH") and ";" not in words and not _WORDS & set(words)


def marks(text: str, dialect: str) -> list[int]:
    """Returns the places of the ? in a text that are parameters."""
    return [t.start for t in tokenize(text, read=dialect) if t.token_type is TokenType.PLACEHOLDER]


def bound(option: str, text: str, values: Sequence[Any] | None, dialect: str) -> sa.TextClause:
    """Returns the text with its ? bound to values; without values a ? has its meaning in the database."""
    places = marks(text, dialect) if values is not None else []
    given = list(values or ())
    if len(places) != len(given):
        raise InvalidOption(
            f'option "{option}" has {len(places)} ? and {len(given)} values',
            hint="one value for each ?: 'query.params' = '[1, \"a\"]'",
        )
    parts, last = [], 0
    for number, at in enumerate(places):
        parts += [_escaped(text[last:at]), f":p{number}"]
        last = at + 1
    parts.append(_escaped(text[last:]))
    clause = sa.text("".join(parts).rstrip().rstrip(";") + "\n")  # a comment at its end must end
    return clause.bindparams(*(sa.bindparam(f"p{n}", v) for n, v in enumerate(given)))


def _escaped(text: str) -> str:
    """Doubles colons: for SQLAlchemy a single one begins a parameter, wherever it is."""
    return re.sub(r"(?<!:):(?=\w)(?!:)", r"\\:", text)


def params_of(text: str | None) -> list[Any] | None:
    """Returns the values of ``query.params``: one, or a JSON array of them."""
    if text is None:
        return None
    stripped = text.strip()
    if not stripped.startswith("["):
        return [_one(stripped)]
    try:
        found = json.loads(stripped, parse_float=str)
    except ValueError as error:
        raise InvalidOption(
            f'option "query.params" is no JSON array: {error}', hint="""'[1, "a"]'"""
        ) from None
    for value in found:
        if isinstance(value, dict | list):
            raise InvalidOption(
                'option "query.params" has a value that is an object or an array',
                hint="values are numbers, texts, true, false and null",
            )
    return list(found)


def _one(text: str) -> Any:
    try:
        value = json.loads(text, parse_float=str)
    except ValueError:
        return text
    return text if isinstance(value, dict | list) else value


def order_of(text: str, names: Sequence[str]) -> list[sa.ColumnElement[Any]]:
    """Returns the columns of ``order.by``, which are among ``names``."""
    found = []
    for part in text.split(","):
        match = _ORDER.fullmatch(part)
        name = (match["quoted"] or "").replace('""', '"') or match["plain"] if match is not None else None
        known = {n.lower(): n for n in names}
        if match is None or name is None or name.lower() not in known:
            raise InvalidOption(
                f'option "order.by" cannot be "{part.strip()}"',
                hint=f"columns, each with ASC or DESC; the columns are {', '.join(names)}",
            )
        column: Any = named(known[name.lower()])
        column = column.desc() if (match["way"] or "").upper() == "DESC" else column.asc()
        nulls = (match["nulls"] or "").upper()
        found.append(column.nulls_first() if nulls == "FIRST" else column.nulls_last() if nulls else column)
    return found


def named(name: str) -> sa.ColumnClause[Any]:
    """Returns a column by its name, which is always quoted."""
    return sa.column(quoted_name(name, True))
