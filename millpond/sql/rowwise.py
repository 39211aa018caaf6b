"""Compiles assignments to a Python function of one row, where an engine would take most of the time of an UPDATE by
key.

It supports sums, differences and products of numbers, concatenated texts, and plain values. Where Spark would raise, or
the values are not those that the function was made for, it raises Unfit: the general path then returns the result or
the error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from millpond.lookup import RowFunction
from millpond.records.values import Unfit
from millpond.sql.bind import PARAMETER
from millpond.sql.resolve import Resolved
from millpond.sql.template import name_of
from millpond.sql.typing import type_of
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Schema

_WIDE = Context(prec=100, rounding=ROUND_HALF_UP)
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_INT, _DOUBLE, _STRING = pa.int32(), pa.float64(), pa.string()
_GIVEN_DECIMAL = pa.decimal128(16, 6)
"""Decimals in a text have different digits from one text to the next; in sums and products all are treated as
this type.
"""
_KINDS: Mapping[type, pa.DataType] = {
    int: pa.int64(),
    float: _DOUBLE,
    str: _STRING,
    bool: pa.bool_(),
    Decimal: pa.decimal128(38, 18),
    date: pa.date32(),
    type(None): pa.null(),
}
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{3}(\d{3})?)?", re.ASCII)
_OPERATORS: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_JOINED, _LENGTH = 16, 10_000
"""The maximum number of texts concatenated here, and of characters of a given text: nothing measures the bytes."""
_EXACT = {"+": "add", "-": "subtract", "*": "multiply"}


class _Other(Exception):
    """Signals that the function cannot be compiled here."""


class _Value(NamedTuple):
    code: str
    type: pa.DataType
    given: bool = False


def row_function(
    outputs: Mapping[str, exp.Expr], schema: Schema, values: Sequence[Any] = (), *, stored: bool = True
) -> RowFunction | None:
    """Returns the function that computes the values of these columns, whose expressions are resolved and were bound
    from parameters ``__v0``, … with such values; None if only an engine can. If they are not ``stored``, their types
    are those of the expressions, which other values must not change.
    """
    writer = _Writer(values, stored=stored)
    try:
        cells = {}
        for name, node in outputs.items():
            column = schema.find(name)
            assert column is not None
            cells[name] = writer.cell(writer.value(node), column.type)
    except _Other:
        return None
    arguments = "".join(f", v{at}" for at in range(len(values)))
    made = ", ".join(f"{name!r}: {code}" for name, code in cells.items())
    lines = [*writer.checks(), *writer.lines, f"return {{{made}}}"]
    scope: dict[str, Any] = {
        "Unfit": Unfit, "wide": _WIDE, "Decimal": Decimal, "rounded": _rounded, "short": _short,
        "day": _day, "time": _time,
        **{f"k{at}": type(v) for at, v in enumerate(values)}, **writer.constants,
    }  # fmt: skip
    exec("\n    ".join([f"def made(row{arguments}):", *lines]), scope)
    made_function: RowFunction = scope["made"]
    return made_function


class _Writer:
    """Writes lines of Python, one for each step."""

    def __init__(self, values: Sequence[Any], *, stored: bool):
        self._stored = stored
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._values = values
        self._numbers = {name_of(at): at for at in range(len(values))}
        self._next = 0
        self._joined = 0

    def checks(self) -> list[str]:
        """Returns lines that raise Unfit if a value does not have the type that the function was made for."""
        return [f"if type(v{at}) is not k{at}: raise Unfit" for at in range(len(self._values))]

    def value(self, node: exp.Expr) -> _Value:
        at = self._numbers.get(str(node.meta.get(PARAMETER)))
        if at is not None:
            value = _Value(f"v{at}", self._kind(self._values[at]), given=True)
            if not self._stored and type(self._values[at]) in (int, Decimal):
                if type_of(node) != _INT:
                    raise _Other
                return self._operand(value)
            return value
        if isinstance(node, exp.Paren | exp.Alias):
            return self.value(node.this)
        if isinstance(node, exp.Null):
            return _Value("None", pa.null())
        if isinstance(node, exp.Boolean):
            return _Value(str(bool(node.this)), pa.bool_())
        if isinstance(node, exp.Literal):
            return self._literal(node, "", type_of(node))
        if isinstance(node, exp.Column):
            dtype = type_of(node)
            if dtype is None:
                raise _Other
            return self._step(f"row[{node.name!r}]", dtype)
        if isinstance(node, exp.Cast) and type(node) is exp.Cast:
            dtype = type_of(node)
            inner = self.value(node.this)
            return _Value(self.fitted(inner, dtype), dtype) if dtype is not None else self._no()
        if isinstance(node, exp.Neg):
            return self._negative(node)
        if isinstance(node, exp.DPipe) and type_of(node) == _STRING:
            left, right = self.value(node.this), self.value(node.expression)
            if left.type != _STRING or right.type != _STRING:
                raise _Other
            self._joined += 1
            if self._joined > _JOINED:
                raise _Other
            for part in (left, right):
                if part.given:
                    self.lines.append(f"if len({part.code}) > {_LENGTH}: raise Unfit")
            return self._step(f"{left.code} + {right.code}", _STRING, left, right)
        operator = _OPERATORS.get(type(node))
        if operator is None:
            raise _Other
        left, right = self._operand(self.value(node.this)), self._operand(self.value(node.expression))
        return self._arithmetic(operator, left, right)

    def cell(self, value: _Value, target: pa.DataType | None) -> str:
        """Returns the value of a column. The table itself checks the range of an integer that it stores."""
        whole = pa.types.is_integer(value.type) and target is not None and pa.types.is_integer(target)
        return value.code if self._stored and whole else self.fitted(value, target)

    def fitted(self, value: _Value, target: pa.DataType | None) -> str:
        """Returns the value in another type."""
        source, t = value.type, pa.types
        if target is None:
            raise _Other
        if t.is_null(source) or source == target:
            return value.code
        if t.is_integer(source) and t.is_integer(target):
            if target.bit_width >= source.bit_width:
                return value.code
            return self._checked(value, target)
        if t.is_float64(target) and (t.is_integer(source) or t.is_decimal128(source)):
            return self._step(f"float({value.code})", target, value).code
        if t.is_decimal128(target) and (t.is_integer(source) or t.is_decimal128(source)):
            whole = f"Decimal({value.code})" if t.is_integer(source) else value.code
            return self._step(f"rounded({whole}, {target.precision}, {target.scale})", target, value).code
        if source == _STRING and (t.is_date32(target) or t.is_timestamp(target)):
            return self._step(f"{'day' if t.is_date32(target) else 'time'}({value.code})", target, value).code
        raise _Other

    def _arithmetic(self, operator: str, left: _Value, right: _Value) -> _Value:
        t = pa.types
        kinds = left.type, right.type
        if any(t.is_float64(k) for k in kinds):
            code = f"{self.fitted(left, _DOUBLE)} {operator} {self.fitted(right, _DOUBLE)}"
            return self._step(code, _DOUBLE, left, right)
        if all(t.is_integer(k) for k in kinds):
            dtype = max(kinds, key=lambda k: k.bit_width)
            found = self._step(f"{left.code} {operator} {right.code}", dtype, left, right)
            return found._replace(code=self._checked(found, dtype))
        a, b = (_bound(k) for k in kinds)
        if operator == "*":
            precision, scale = a.precision + b.precision + 1, a.scale + b.scale
        else:
            scale = max(a.scale, b.scale)
            precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
        if precision > 38:
            raise _Other
        code = f"wide.{_EXACT[operator]}({left.code}, {right.code})"
        return self._step(code, pa.decimal128(precision, scale), left, right)

    def _negative(self, node: exp.Neg) -> _Value:
        if isinstance(node.this, exp.Literal) and PARAMETER not in node.this.meta:
            return self._literal(node.this, "-", type_of(node))
        inner = self._operand(self.value(node.this))
        if pa.types.is_float64(inner.type):
            return self._step(f"-{inner.code}", _DOUBLE, inner)
        return self._arithmetic("-", _Value("0", inner.type), inner)

    def _operand(self, value: _Value) -> _Value:
        """Returns a value in a sum or product, where the type of a literal depends on its digits."""
        dtype = value.type
        if value.given and pa.types.is_integer(dtype):
            self.lines.append(f"if not -2147483648 <= {value.code} <= 2147483647: raise Unfit")
            return _Value(value.code, _INT)
        if value.given and pa.types.is_decimal128(dtype):
            self.lines.append(f"short({value.code})")
            return _Value(value.code, _GIVEN_DECIMAL)
        if not (pa.types.is_integer(dtype) or pa.types.is_decimal128(dtype) or pa.types.is_float64(dtype)):
            raise _Other
        return value

    def _checked(self, value: _Value, dtype: pa.DataType) -> str:
        half = 1 << (dtype.bit_width - 1)
        self.lines.append(
            f"if {value.code} is not None and not {-half} <= {value.code} < {half}: raise Unfit"
        )
        return value.code

    def _step(self, code: str, dtype: pa.DataType, *operands: _Value) -> _Value:
        """Adds a line that computes; the result is NULL if an operand is."""
        self._next += 1
        name = f"t{self._next}"
        nullable = [o.code for o in operands if not o.given and o.code.startswith("t")]
        missing = " or ".join(f"{c} is None" for c in dict.fromkeys(nullable))
        self.lines.append(f"{name} = None if {missing} else {code}" if missing else f"{name} = {code}")
        return _Value(name, dtype)

    def _literal(self, node: exp.Literal, sign: str, dtype: pa.DataType | None) -> _Value:
        if dtype is None or (sign and node.is_string):
            raise _Other
        self._next += 1
        name, text = f"c{self._next}", sign + str(node.this)
        t = pa.types
        constant = (
            text if node.is_string else int(text) if t.is_integer(dtype)
            else float(text) if t.is_float64(dtype) else Decimal(text)
        )  # fmt: skip
        self.constants[name] = constant
        return _Value(name, dtype)

    def _kind(self, value: Any) -> pa.DataType:
        if type(value) is datetime:
            return TIMESTAMP_NTZ if value.tzinfo is None else TIMESTAMP
        return _KINDS.get(type(value)) or self._no()

    def _no(self) -> Any:
        raise _Other


def _bound(dtype: pa.DataType) -> pa.DataType:
    """Returns the decimal type that can represent a number."""
    return pa.decimal128(_DIGITS[dtype.bit_width], 0) if pa.types.is_integer(dtype) else dtype


def _rounded(value: Decimal, precision: int, scale: int) -> Decimal:
    """Returns the value in DECIMAL(precision, scale), as Spark stores it."""
    found = value.quantize(Decimal((0, (1,), -scale)), context=_WIDE)
    if found and found.adjusted() >= precision - scale:
        raise Unfit("out of range")
    return found


def _day(text: str) -> date:
    """Returns the date in a text of the one form that is unambiguous."""
    if _DAY.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    raise Unfit("a date in another spelling")


def _time(text: str) -> datetime:
    if _TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    raise Unfit("a time in another spelling")


def _short(value: Decimal) -> None:
    """Raises Unfit for a decimal with too many digits."""
    exponent = value.as_tuple().exponent
    if not (isinstance(exponent, int) and -6 <= exponent <= 0 and value.adjusted() < 10):
        raise Unfit("many digits")


def computed_by_rows(query: Resolved, names: Sequence[str]) -> RowFunction | None:
    """Returns the function that computes these columns of a SELECT from one row, by the names of its input; None if
    only an engine can. The condition is left out.
    """
    outputs = {p.alias: p.unalias() for p in query.expression.expressions}
    return row_function({name: outputs[name] for name in names}, query.schema, stored=False)
