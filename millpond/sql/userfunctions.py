"""Declares Python functions for SQL: each with the types of its arguments and values, and a name of its own in DuckDB
and Spark.
"""

from __future__ import annotations

import datetime
import inspect
import itertools
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.errors import AlreadyExists, BadExtension, InvalidOption, SqlError
from millpond.extensions import offered, offered_object, what_is_offered
from millpond.sql import statements as st
from millpond.sql.functions import known_functions
from millpond.sql.parse import parse
from millpond.types import TIMESTAMP, type_name

_BY_ANNOTATION: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
    datetime.datetime: TIMESTAMP,
}
_KEY = re.compile(r"\bpython_\d+_\w+", re.IGNORECASE)
_numbers = itertools.count(1)
_made: dict[str, UserFunction] = {}


@dataclass(frozen=True, eq=False)
class UserFunction:
    """Represents a Python function in SQL. ``call`` accepts and returns whole columns. ``key`` is its name in
    the engines.
    """

    name: str
    key: str
    arguments: tuple[pa.DataType, ...]
    returns: pa.DataType
    call: Callable[..., pa.Array]
    public: bool = False
    """Whether HTTP clients may call it."""

    def __deepcopy__(self, memo: object) -> UserFunction:
        return self

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(map(type_name, self.arguments))}) {type_name(self.returns)}"

    def forget(self) -> None:
        _made.pop(self.key, None)


@dataclass(frozen=True)
class PythonFunction:
    """Declares what another package offers as a function of SQL, where annotations are not enough: the arguments are
    those of ``App.function``.
    """

    function: Callable[..., Any]
    arguments: Sequence[str] | None = None
    returns: str | None = None
    vectorized: bool = False
    public: bool = False


def offered_function(name: str) -> UserFunction | None:
    """Returns the function of another package with that lower-case name; None if there is none. Raises BadExtension."""
    # Names that no package offers are not kept: clients may send any number of them.
    return _offered_function(name) if name in offered("function") else None


@cache
def _offered_function(name: str) -> UserFunction:
    found = offered_object("function", name)
    if not isinstance(found, PythonFunction):
        if not callable(found):
            raise BadExtension(f"{what_is_offered('function', name)} is no function")
        found = PythonFunction(found)
    try:
        return make_function(
            found.function,
            name=name,
            arguments=found.arguments,
            returns=found.returns,
            vectorized=found.vectorized,
            public=found.public,
        )
    except (InvalidOption, AlreadyExists) as error:
        raise BadExtension(
            f"{what_is_offered('function', name)} cannot be used: {error.message}", hint=error.hint
        ) from error


def all_functions() -> list[UserFunction]:
    """Returns all functions of the programs in this process."""
    return list(_made.values())


def functions_in(sql: str) -> Iterator[UserFunction]:
    """Yields those that a text for an engine names."""
    for key in {key.lower() for key in _KEY.findall(sql)}:
        if (found := _made.get(key)) is not None:
            yield found


def calls_functions_of_programs(query: exp.Expr) -> bool:
    """Returns whether a query calls functions of a program or of another package."""
    return not {f.name.lower() for f in query.find_all(exp.Anonymous)} <= known_functions()


def make_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    arguments: Sequence[str] | None = None,
    returns: str | None = None,
    vectorized: bool = False,
    public: bool = False,
) -> UserFunction:
    """Returns the function as SQL sees it. Types are given as in SQL, or by annotations. With ``vectorized`` it accepts
    and returns Arrow arrays, else it is called for each row.
    """
    name = str(name or getattr(function, "__name__", ""))
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise InvalidOption(f'"{name}" cannot be the name of a function', hint="give it one: name='tier'")
    if name.lower() in known_functions() or not _is_free(name):
        raise AlreadyExists(f'function "{name}" is one of SQL', hint="give it another name: name='my_…'")
    types = _types_of(function, name, arguments, returns)
    if len(types) == 1:
        raise InvalidOption(
            f'function "{name}" takes no arguments', hint="give it one, if only to leave it alone"
        )
    found = UserFunction(
        name,
        f"python_{next(_numbers)}_{name.lower()}",
        types[:-1],
        types[-1],
        _on_columns(function, name, types, vectorized),
        public,
    )
    _made[found.key] = found
    return found


def _is_free(name: str) -> bool:
    """Returns whether the name is not a word of the language, so that a call can use it."""
    from sqlglot import exp

    try:
        (statement,) = parse(f"SELECT {name}(1)").require()
    except SqlError:
        return False
    assert isinstance(statement, st.Select)
    return isinstance(statement.query.expression.expressions[0], exp.Anonymous)


def _types_of(
    function: Callable[..., Any], name: str, arguments: Sequence[str] | None, returns: str | None
) -> tuple[pa.DataType, ...]:
    """Returns the types of the arguments, and of the values."""
    try:
        hints = typing.get_type_hints(function)
        parameters = [p for p in inspect.signature(function).parameters.values() if p.kind != p.KEYWORD_ONLY]
    except (TypeError, ValueError, NameError):
        hints, parameters = {}, []
    if arguments is not None:
        found = [_type_from(text, name) for text in arguments]
        if parameters and not _takes(parameters, len(found)):
            raise InvalidOption(f'function "{name}" does not take {len(found)} arguments')
    else:
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise InvalidOption(f'the arguments of function "{name}" have no types', hint=_SAY_TYPES)
        found = [_type_of(hints.get(p.name), f'argument "{p.name}" of function "{name}"') for p in parameters]
    value = (
        _type_from(returns, name)
        if returns
        else _type_of(hints.get("return"), f'the value of function "{name}"')
    )
    return (*found, value)


def _takes(parameters: list[inspect.Parameter], count: int) -> bool:
    needed = sum(p.default is p.empty and p.kind != p.VAR_POSITIONAL for p in parameters)
    most = float("inf") if any(p.kind == p.VAR_POSITIONAL for p in parameters) else len(parameters)
    return needed <= count <= most


_SAY_TYPES = (
    "annotate it (int, float, str, bool, bytes, date, datetime), "
    "or say arguments=['DECIMAL(10,2)'], returns='STRING'"
)


def _type_of(annotation: Any, what: str) -> pa.DataType:
    inner = [a for a in typing.get_args(annotation) if a is not type(None)]
    if len(inner) == 1 and type(None) in typing.get_args(annotation):
        annotation = inner[0]
    found = _BY_ANNOTATION.get(annotation)
    if found is None:
        raise InvalidOption(f"{what} has no type that SQL knows", hint=_SAY_TYPES)
    return found


def _type_from(text: str, name: str) -> pa.DataType:
    try:
        (statement,) = parse(f"CREATE TABLE t (c {text})").require()
    except SqlError as error:
        raise InvalidOption(f'function "{name}": "{text}" is no type: {error.message}') from None
    assert isinstance(statement, st.CreateTable)
    found = statement.columns[0].type
    assert found is not None
    return found


def _on_columns(
    function: Callable[..., Any], name: str, types: Sequence[pa.DataType], vectorized: bool
) -> Callable[..., pa.Array]:
    returns = types[-1]

    def call(*columns: Any) -> pa.Array:
        try:
            if vectorized:
                values = function(*columns)
                values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
                return values if values.type == returns else values.cast(returns)
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            return pa.array([function(*row) for row in rows], returns)
        except Exception as error:
            raise ValueError(f'function "{name}": {type(error).__name__}: {error}') from error

    # DuckDB inspects how many there are.
    given = [inspect.Parameter(f"c{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(types) - 1)]
    call.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    return call
