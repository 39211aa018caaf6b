"""Fits the columns of a query to a target: by position, cast to its types, NULL where a column is not given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Place, SqlError, TypeMismatch
from millpond.sql.resolve import Resolved
from millpond.types import Column, Schema, type_name

_OUT = "__out"


def build_type(dtype: pa.DataType) -> exp.DataType:
    """Returns a type as a node of the tree."""
    return exp.DataType.build(type_name(dtype), dialect="spark")


def assignable(source: pa.DataType | None, target: pa.DataType | None) -> bool:
    """Returns whether a value may be stored without CAST, by the rules of Spark's ANSI store assignment."""
    if source is None or target is None or source == target:
        return True
    t = pa.types
    if t.is_null(source):
        return True

    def number(d: pa.DataType) -> bool:
        return bool(t.is_integer(d) or t.is_floating(d) or t.is_decimal(d))

    def is_time(d: pa.DataType) -> bool:
        return bool(t.is_date(d) or t.is_timestamp(d))

    if number(source) and number(target):
        return True
    if t.is_string(target):
        return not t.is_nested(source) and not t.is_binary(source)
    if is_time(source) and is_time(target):
        return True
    if t.is_list(source) and t.is_list(target):
        return assignable(source.value_type, target.value_type)
    if t.is_map(source) and t.is_map(target):
        return assignable(source.key_type, target.key_type) and assignable(source.item_type, target.item_type)
    if t.is_struct(source) and t.is_struct(target):
        return source.num_fields == target.num_fields and all(
            assignable(a.type, b.type) for a, b in zip(source, target, strict=True)
        )
    return False


def check_count(given: int, columns: Sequence[str], what: str, place: Place | None) -> SqlError | None:
    """Returns the error for a wrong number of columns; it names the missing ones."""
    if given == len(columns):
        return None
    if given < len(columns):
        missing = ", ".join(f'"{c}"' for c in columns[given:])
        return TypeMismatch(
            f"{what} gives {given} columns, the target has {len(columns)}: {missing} missing",
            hint=f"give every column, or name the ones you give: ({', '.join(columns[:given])})",
            place=place,
        )
    return TypeMismatch(
        f"{what} gives {given} columns, the target has {len(columns)}: {', '.join(columns)}",
        place=place,
    )


def assign(
    resolved: Resolved,
    target: Schema,
    columns: Sequence[str],
    place: Place | None,
    default: Callable[[Column], exp.Expr] = lambda _: exp.Null(),
) -> tuple[Resolved, list[SqlError]]:
    """Returns the query in the shape of the target. It fills ``columns``, in order; the others have their ``default``,
    which is of their type, or NULL.
    """
    count = check_count(len(resolved.schema), columns, "the query", place)
    if count is not None:
        return resolved, [count]
    errors: list[SqlError] = []
    filled = {name.lower(): i for i, name in enumerate(columns)}
    outputs: list[exp.Expr] = []
    inner_names = _inner_names(resolved.expression, len(resolved.schema))
    for column in target:
        index = filled.get(column.name.lower())
        value: exp.Expr
        if index is None:
            value = default(column)
            source: pa.DataType | None = pa.null() if isinstance(value, exp.Null) else column.type
        else:
            given = resolved.schema.columns[index]
            source = given.type
            if not assignable(source, column.type):
                errors.append(
                    TypeMismatch(
                        f'column "{column.name}" is {type_name(column.type)}, '
                        f'"{given.name}" is {type_name(source)}',
                        hint=f"CAST({given.name} AS {type_name(column.type)})",
                        place=place,
                    )
                )
                continue
            value = exp.Column(
                this=exp.to_identifier(inner_names[index], quoted=True),
                table=exp.to_identifier(_OUT, quoted=True),
            )
            value.meta["dtype"] = source
        if column.type is not None and source != column.type:
            value = exp.Cast(this=value, to=build_type(column.type))
        outputs.append(exp.alias_(value, column.name, quoted=True))
    wrapped = exp.Select(
        expressions=outputs,
        from_=exp.From(
            this=exp.Subquery(
                this=resolved.expression,
                alias=exp.TableAlias(this=exp.to_identifier(_OUT, quoted=True)),
            )
        ),
    )
    return Resolved(wrapped, target, resolved.inputs), errors


def _inner_names(tree: exp.Expr, count: int) -> list[str]:
    select = tree
    while not isinstance(select, exp.Select):
        if isinstance(select, exp.Values):
            return [f"col{i + 1}" for i in range(count)]
        select = select.this
    return [p.alias for p in select.expressions]
