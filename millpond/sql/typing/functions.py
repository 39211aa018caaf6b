"""Derives result types of scalar functions that depend on their arguments: numbers, strings, arrays, maps, structs."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from millpond.sql.functions import by_name
from millpond.sql.nodes import ArraySum, EachOnce
from millpond.sql.typing.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    DURATION,
    FLOAT,
    FLOATS,
    INT,
    NULL,
    STRING,
    is_decimal,
    is_integer,
    is_list,
    is_map,
    is_nested,
    is_numeric,
    list_of,
)
from millpond.sql.typing.conditionals import branches
from millpond.sql.typing.implicit import implicit, wanted
from millpond.sql.typing.literals import named_type
from millpond.sql.typing.operators import plain_number
from millpond.sql.typing.rule import Of, Rule, always, mismatch


def integer_value(node: exp.Expr | None) -> int | None:
    """Returns the value of an integer literal."""
    text = None if node is None else plain_number(node)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _first(node: exp.Expr) -> exp.Expr:
    found: exp.Expr = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    return found


def signed_number(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types ABS and POSITIVE: the number or interval itself; a text becomes a DOUBLE."""
    a = of(_first(node))
    if a is None or is_numeric(a) or a == DURATION:
        return a
    if a in (NULL, STRING):
        return DOUBLE
    raise mismatch(node.name.upper(), a, hint="it takes a number")


def rounded(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types ROUND and BROUND: decimals keep the requested digits, and one more in front."""
    a = of(node.expressions[0])
    written = len(node.expressions) > 1
    places = integer_value(node.expressions[1]) if written else 0
    if a is None or (written and of(node.expressions[1]) != INT) or places is None:
        return None
    if is_decimal(a):
        integral = a.precision - a.scale + 1
        if places < 0:
            return pa.decimal128(min(max(integral, -places + 1), 38), 0)
        scale = min(a.scale, places)
        return pa.decimal128(min(integral + scale, 38), scale)
    if is_numeric(a):
        return a
    if a in (NULL, STRING):
        return DOUBLE
    raise mismatch(node.name.upper(), a, hint="it takes a number")


def whole(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types FLOOR and CEIL."""
    a = of(node.expressions[0])
    if a is None or len(node.expressions) > 1:
        return None
    if is_decimal(a):
        return pa.decimal128(min(a.precision - a.scale + 1, 38), 0) if a.scale else a
    if is_numeric(a) or a in (NULL, STRING):
        return BIGINT
    raise mismatch(node.name.upper(), a, hint="it takes a number")


def operator(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types MOD, TRY_ADD and similar as their operators."""
    return of(as_operator(node))


def as_operator(node: exp.Expr) -> exp.Expr:
    """Returns the operator that a function such as MOD or TRY_ADD applies."""
    made = by_name()[str(node.this).lower()].operator
    assert made is not None
    return made(*(e.copy() for e in node.expressions))


def array(node: exp.Expr, of: Of) -> pa.DataType | None:
    if not node.expressions:
        return list_of(NULL)
    inner = branches("ARRAY", node.expressions, of)
    return None if inner is None else list_of(inner)


def make_map(node: exp.Expr, of: Of) -> pa.DataType | None:
    if not node.expressions:
        return None  # Arrow has no map without types
    keys = branches("MAP", node.expressions[::2], of)
    values = branches("MAP", node.expressions[1::2], of)
    if keys is None or values is None:
        return None
    return None if keys == NULL or is_map(keys) else pa.map_(keys, values)


def struct(node: exp.Expr, of: Of) -> pa.DataType | None:
    fields = []
    for item in node.expressions:
        dtype = of(item.expression if isinstance(item, exp.PropertyEQ) else item)
        if dtype is None or not isinstance(item, exp.PropertyEQ):
            return None
        fields.append(pa.field(item.name, dtype))
    return pa.struct(fields)


def of_array(result: Callable[[pa.DataType], pa.DataType | None]) -> Rule:
    """Returns the rule of a function of one array; its other arguments are left to Spark."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        a = of(_first(node))
        if a is None or not isinstance(node, exp.Anonymous) or len(node.expressions) == 1:
            return result(a) if a is not None and is_list(a) else None
        return None

    return rule


def ordered_element(array: pa.DataType) -> pa.DataType | None:
    return None if is_nested(array.value_type) or array.value_type == NULL else array.value_type


def flattened(array: pa.DataType) -> pa.DataType | None:
    return array.value_type if is_list(array.value_type) else None


def compacted(array: pa.DataType) -> pa.DataType | None:
    return None if array.value_type == NULL else array


def sort_array(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.expressions[0])
    if len(node.expressions) > 1 and not isinstance(node.expressions[1], exp.Boolean):
        return None
    plain = a is not None and is_list(a) and not is_nested(a.value_type) and a.value_type != NULL
    return a if plain else None


def size(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types SIZE and CARDINALITY, which count arrays and maps, and ARRAY_SIZE, which counts arrays."""
    a = of(_first(node))
    if a is None:
        return INT
    if is_list(a) or (is_map(a) and node.name.upper() != "ARRAY_SIZE"):
        return INT
    return None


def member(result: Callable[[pa.DataType], pa.DataType]) -> Rule:
    """Returns the rule of a function of an array and a value of its element type; other types are left to Spark."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        a, b = (of(e) for e in node.expressions[:2])
        same = a is not None and b is not None and is_list(a) and a.value_type == b and b != NULL
        return result(a) if a is not None and same and not is_map(a.value_type) else None

    return rule


def element_at(node: exp.Expr, of: Of) -> pa.DataType | None:
    a, b = (of(e) for e in node.expressions)
    if a is None or b is None:
        return None
    if is_list(a) and b in (pa.int8(), pa.int16(), INT):
        return a.value_type
    return a.item_type if is_map(a) and a.key_type == b else None


def get(node: exp.Expr, of: Of) -> pa.DataType | None:
    a, b = (of(e) for e in node.expressions)
    return a.value_type if a is not None and b is not None and is_list(a) and is_integer(b) else None


def map_keys(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.expressions[0])
    return list_of(a.key_type) if a is not None and is_map(a) else None


def map_values(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.expressions[0])
    return list_of(a.item_type) if a is not None and is_map(a) else None


def contains_key(node: exp.Expr, of: Of) -> pa.DataType | None:
    a, b = (of(e) for e in node.expressions)
    return BOOLEAN if a is not None and is_map(a) and a.key_type == b else None


def array_join(node: exp.Expr, of: Of) -> pa.DataType | None:
    types = [of(e) for e in node.expressions]
    return STRING if types[0] == list_of(STRING) and all(t == STRING for t in types[1:]) else None


def reversal(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.expressions[0])
    return a if a is None or is_list(a) else _bound("REVERSE", a, "string|binary", 1)


def _bound(name: str, given: pa.DataType, expected: str, at: int) -> pa.DataType:
    found = implicit(given, expected)
    if found is None:
        raise mismatch(name, given, hint=f"argument {at} is {wanted(expected)}")
    return found


def sliced(*expected: str) -> Rule:
    """Returns the rule for SUBSTRING, LEFT and similar: BINARY of BINARY, else STRING."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        types = [of(e) for e in node.expressions]
        for at, (dtype, parameter) in enumerate(zip(types, expected, strict=False), 1):
            if dtype is not None:
                _bound(node.name.upper(), dtype, parameter, at)
        if types[0] is None:
            return None
        return BINARY if types[0] == BINARY else STRING

    return rule


def padded(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types LPAD and RPAD: of STRING or BINARY; a filler of the other type is left to Spark."""
    types = [of(e) for e in node.expressions]
    if any(t is None for t in types):
        return None
    value, width = types[0], types[1]
    assert value is not None and width is not None
    _bound(node.name.upper(), width, "int", 2)
    if BINARY in (value, types[-1] if len(types) > 2 else None):
        return BINARY if len(types) == 2 or types[2] == BINARY == value else None
    for at, dtype in ((1, value), *(((3, types[2]),) if len(types) > 2 else ())):
        assert dtype is not None
        _bound(node.name.upper(), dtype, "string", at)
    return STRING


def found(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types CONTAINS, STARTSWITH and ENDSWITH: of two strings, or of two BINARY."""
    for at, dtype in enumerate((of(e) for e in node.expressions), 1):
        if dtype is not None:
            _bound(node.name.upper(), dtype, "string|binary", at)
    return BOOLEAN


def concat_ws(node: exp.Expr, of: Of) -> pa.DataType | None:
    for at, dtype in enumerate((of(e) for e in node.expressions), 1):
        if dtype is not None and not (at > 1 and is_list(dtype) and not is_nested(dtype.value_type)):
            _bound("CONCAT_WS", dtype, "string", at)
    return STRING


def trimmed(node: exp.Expr, of: Of) -> pa.DataType | None:
    for at, argument in enumerate((node.this, node.args.get("expression")), 1):
        dtype = of(argument)
        if dtype is not None:
            _bound("TRIM", dtype, "string", at)
    return STRING


def regexp_replace(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types REGEXP_REPLACE. A position must be a literal; otherwise it is left to Spark."""
    for at, dtype in enumerate((of(e) for e in node.expressions[:3]), 1):
        if dtype is not None:
            _bound("REGEXP_REPLACE", dtype, "string", at)
    return STRING if len(node.expressions) == 3 else None


def like(node: exp.Expr, of: Of) -> pa.DataType | None:
    for at, dtype in enumerate((of(e) for e in node.expressions), 1):
        if dtype is not None:
            _bound(node.name.upper(), dtype, "string", at)
    return BOOLEAN


def nanvl(node: exp.Expr, of: Of) -> pa.DataType | None:
    types = [of(e) for e in node.expressions]
    if any(t is None for t in types):
        return None
    if all(t in FLOATS for t in types):
        return DOUBLE if DOUBLE in types else FLOAT
    return DOUBLE if all(t in (DOUBLE, NULL) for t in types) and DOUBLE in types else None


def named_cast(target: exp.DType) -> Rule:
    """Returns the rule for ``BIGINT(x)``: a cast to the type of that name."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        return of(exp.Cast(this=node.expressions[0].copy(), to=exp.DataType(this=target)))

    return rule


RULES: dict[type[exp.Expr], Rule] = {
    exp.ArraySize: always(INT),
    exp.ArrayMax: of_array(lambda a: a.value_type),
    exp.ArrayMin: of_array(lambda a: a.value_type),
    exp.ArrayCompact: of_array(lambda a: a),
    exp.ArraySort: of_array(lambda a: a),
    EachOnce: of_array(flattened),
    ArraySum: lambda node, of: named_type(node.args["to"]),
}
