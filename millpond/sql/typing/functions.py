"""Result types of scalar functions: strings, numbers, arrays, maps and structs."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.nodes import ArraySum, EachOnce
from millpond.sql.typing.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    NULL,
    STRING,
    is_decimal,
    is_integer,
    is_list,
    is_map,
    is_numeric,
    list_of,
)
from millpond.sql.typing.conditionals import branches
from millpond.sql.typing.literals import named_type
from millpond.sql.typing.operators import plain_number
from millpond.sql.typing.rule import Of, Rule, always, like_argument, mismatch, visit


def integer_value(node: exp.Expr | None) -> int | None:
    """The value of an integer that is written out."""
    text = None if node is None else plain_number(node)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def absolute(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    if a is None or is_numeric(a):
        return a
    if a in (NULL, STRING):
        return DOUBLE
    raise mismatch(node.key.upper(), a)


def rounded(node: exp.Expr, of: Of) -> pa.DataType | None:
    """ROUND: decimals keep the digits that are asked for, and one more in front."""
    a = of(node.this)
    decimals = node.args.get("decimals")
    places = 0 if decimals is None else integer_value(decimals)
    if a is None or places is None:
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
    raise mismatch("ROUND", a)


def whole(node: exp.Expr, of: Of) -> pa.DataType | None:
    """FLOOR, CEIL."""
    a = of(node.this)
    if a is None or node.args.get("decimals") is not None:
        return None
    if is_decimal(a):
        return pa.decimal128(min(a.precision - a.scale + 1, 38), 0)
    if is_numeric(a) or a in (NULL, STRING):
        return BIGINT
    raise mismatch(node.key.upper(), a)


def positive_modulo(node: exp.Expr, of: Of) -> pa.DataType | None:
    return of(exp.Mod(this=node.expressions[0].copy(), expression=node.expressions[1].copy()))


def array(node: exp.Expr, of: Of) -> pa.DataType | None:
    if not node.expressions:
        return list_of(NULL)
    inner = branches("ARRAY", node.expressions, of)
    return None if inner is None else list_of(inner)


def var_map(node: exp.Expr, of: Of) -> pa.DataType | None:
    keys, values = of(node.args["keys"]), of(node.args["values"])
    if keys is None or values is None or not is_list(keys) or not is_list(values):
        return None
    return pa.map_(keys.value_type, values.value_type)


def struct(node: exp.Expr, of: Of) -> pa.DataType | None:
    fields = []
    for item in node.expressions:
        dtype = of(item.expression if isinstance(item, exp.PropertyEQ) else item)
        if dtype is None or not isinstance(item, exp.PropertyEQ):
            return None
        fields.append(pa.field(item.name, dtype))
    return pa.struct(fields)


def array_of_arrays(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    return a.value_type if a is not None and is_list(a) else None


def element(node: exp.Expr, of: Of) -> pa.DataType | None:
    visit(node, of)
    a = of(node.expressions[0] if isinstance(node, exp.Anonymous) else node.this)
    return a.value_type if a is not None and is_list(a) else None


def map_keys(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    return list_of(a.key_type) if a is not None and is_map(a) else None


def map_values(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.expressions[0])
    return list_of(a.item_type) if a is not None and is_map(a) else None


def sequence(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = branches("SEQUENCE", [node.args["start"], node.args["end"]], of)
    return list_of(a) if a is not None and is_integer(a) else None


def reversal(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    return a if a is None or is_list(a) else STRING


def sliced(node: exp.Expr, of: Of) -> pa.DataType | None:
    """SUBSTRING, LEFT and the like: BINARY of BINARY, else STRING."""
    visit(node, of)
    return BINARY if of(node.this) == BINARY else STRING


def named(rule: Rule) -> Rule:
    """A rule about ``this`` for a function that sqlglot has no class for."""

    def wrapped(node: exp.Expr, of: Of) -> pa.DataType | None:
        visit(node, of)
        return rule(exp.Paren(this=node.expressions[0].copy()), of) if node.expressions else None

    return wrapped


_STRINGS = (
    exp.Upper,
    exp.Lower,
    exp.Trim,
    exp.Pad,
    exp.ConcatWs,
    exp.Replace,
    exp.SubstringIndex,
    exp.Initcap,
    exp.Repeat,
    exp.RegexpExtract,
    exp.RegexpReplace,
    exp.RegexpSubstr,
    exp.Translate,
    exp.Chr,
    exp.Space,
    exp.MD5,
    exp.SHA,
    exp.SHA2,
    exp.ToBase64,
    exp.Hex,
    exp.Soundex,
    exp.Format,
    exp.SplitPart,
    exp.TimeToStr,
    exp.UnixToStr,
    exp.Typeof,
    exp.ArrayToString,
    exp.JSONExtractScalar,
    exp.JSONFormat,
    exp.Uuid,
    exp.Dayname,
    exp.Monthname,
    exp.ToChar,
)
_INTEGERS = (
    exp.Length,
    exp.BitLength,
    exp.StrPosition,
    exp.Ascii,
    exp.Levenshtein,
    exp.RegexpCount,
    exp.ArraySize,
    exp.BitwiseCount,
)
_DOUBLES = (
    exp.Sqrt,
    exp.Cbrt,
    exp.Pow,
    exp.Ln,
    exp.Log,
    exp.Exp,
    exp.Sin,
    exp.Cos,
    exp.Tan,
    exp.Asin,
    exp.Acos,
    exp.Atan,
    exp.Atan2,
    exp.Sinh,
    exp.Cosh,
    exp.Tanh,
    exp.Pi,
    exp.Degrees,
    exp.Radians,
    exp.Rint,
    exp.MonthsBetween,
    exp.Rand,
    exp.Sign,
    exp.Cot,
)
_BOOLEANS = (exp.StartsWith, exp.EndsWith, exp.Contains, exp.IsNan, exp.ArrayContains, exp.MapContainsKey)

RULES: dict[type[exp.Expr], Rule] = {
    **dict.fromkeys(_STRINGS, always(STRING)),
    **dict.fromkeys(_INTEGERS, always(INT)),
    **dict.fromkeys(_DOUBLES, always(DOUBLE)),
    **dict.fromkeys(_BOOLEANS, always(BOOLEAN)),
    exp.Left: always(STRING),
    exp.Right: always(STRING),
    exp.Substring: sliced,
    exp.Overlay: sliced,
    exp.Reverse: reversal,
    exp.RegexpSplit: always(list_of(STRING)),
    exp.RegexpExtractAll: always(list_of(STRING)),
    exp.FromBase64: always(BINARY),
    exp.Unhex: always(BINARY),
    exp.Abs: absolute,
    exp.Round: rounded,
    exp.Floor: whole,
    exp.Ceil: whole,
    exp.Factorial: always(BIGINT),
    exp.Nanvl: lambda node, of: branches("NANVL", [node.this, node.expression], of),
    exp.Array: array,
    exp.VarMap: var_map,
    exp.Struct: struct,
    exp.ArrayDistinct: like_argument(),
    exp.ArrayCompact: like_argument(),
    exp.ArraySort: like_argument(),
    exp.ArraySlice: like_argument(),
    exp.ArrayRemove: like_argument(),
    exp.ArrayPosition: always(BIGINT),
    exp.ArrayMax: element,
    exp.ArrayMin: element,
    exp.Flatten: array_of_arrays,
    EachOnce: array_of_arrays,
    ArraySum: lambda node, of: named_type(node.args["to"]),
    exp.MapKeys: map_keys,
    exp.GenerateSeries: sequence,
}

NAMED: dict[str, Rule] = {
    **dict.fromkeys(("ISNULL", "ISNOTNULL", "ARRAYS_OVERLAP"), always(BOOLEAN)),
    **dict.fromkeys(("BTRIM", "FORMAT_NUMBER", "PRINTF", "BIN"), always(STRING)),
    **dict.fromkeys(("OCTET_LENGTH", "CARDINALITY"), always(INT)),
    **dict.fromkeys(("EXPM1", "LOG1P", "E", "HYPOT"), always(DOUBLE)),
    "POSITIVE": named(like_argument()),
    "PMOD": positive_modulo,
    "GET": element,
    "MAP_VALUES": map_values,
    "BIGINT": always(BIGINT),
    "SMALLINT": always(pa.int16()),
    "TINYINT": always(pa.int8()),
    "FLOAT": always(FLOAT),
}
