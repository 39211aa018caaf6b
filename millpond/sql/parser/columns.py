"""Parses columns and their types."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from millpond.errors import UnknownName, did_you_mean
from millpond.sql.parser.pipes import PipeParser
from millpond.sql.statements import ColumnDef, Watermark
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), pa.bool_()),
    **dict.fromkeys(("TINYINT", "BYTE"), pa.int8()),
    **dict.fromkeys(("SMALLINT", "SHORT"), pa.int16()),
    **dict.fromkeys(("INT", "INTEGER"), pa.int32()),
    **dict.fromkeys(("BIGINT", "LONG"), pa.int64()),
    **dict.fromkeys(("FLOAT", "REAL"), pa.float32()),
    "DOUBLE": pa.float64(),
    **dict.fromkeys(("STRING", "TEXT", "VARCHAR", "CHAR", "CHARACTER"), pa.string()),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), TIMESTAMP),
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
    "VOID": pa.null(),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_KNOWN = (*_TYPES, *_DECIMALS, "ARRAY", "MAP", "STRUCT", "INTERVAL DAY TO SECOND")


@dataclass
class Columns:
    """Parses what is between the brackets after a name."""

    columns: list[ColumnDef] = field(default_factory=list)
    key: tuple[str, ...] = ()
    watermark: Watermark | None = None


class ColumnParser(PipeParser):
    def parse_columns(self) -> Columns:
        """Parses ``( a INT NOT NULL, …, PRIMARY KEY (a), WATERMARK FOR ts AS … )``."""
        found = Columns()
        keys: list[tuple[Token, list[tuple[str, Token]]]] = []
        self.wrapped(lambda: self._parse_column_item(found, keys))
        if len(keys) > 1:
            self.fail(
                "a table has one primary key", keys[1][0], hint="of several columns: PRIMARY KEY (a, b)"
            )
        if keys:
            found.key = tuple(name for name, _ in keys[0][1])
            names = {c.name.lower(): c.name for c in found.columns}
            for name, token in keys[0][1]:
                if names and name.lower() not in names:
                    self.fail(
                        f'column "{name}" of the primary key is not among the columns',
                        token,
                        hint=did_you_mean(name, names.values()),
                        kind=UnknownName,
                    )
            lowered = {k.lower() for k in found.key}
            found.columns = [replace(c, primary_key=c.name.lower() in lowered) for c in found.columns]
        return found

    def _parse_column_item(self, found: Columns, keys: list[tuple[Token, list[tuple[str, Token]]]]) -> None:
        token = self._curr
        if self.match_token(TokenType.PRIMARY_KEY):
            keys.append((token, self.wrapped(lambda: (self.parse_column_name(), self._prev))))
        elif self.at_words("WATERMARK", "FOR"):
            if found.watermark:
                self.fail("WATERMARK is there twice")
            found.watermark = self._parse_watermark()
        else:
            column = self.parse_column_def()
            if any(c.name.lower() == column.name.lower() for c in found.columns):
                self.fail(f'column "{column.name}" is declared twice', token)
            found.columns.append(column)
            if column.primary_key:
                keys.append((token, [(column.name, token)]))

    def parse_column_def(self) -> ColumnDef:
        """Parses ``name TYPE [NOT NULL] [PRIMARY KEY] [DEFAULT value]``."""
        first = self._curr
        name = self.parse_column_name()
        type_ = self.parse_data_type()
        nullable, key, default = True, False, None
        while True:
            if self.match_words("NOT", "NULL"):
                nullable = False
            elif self.match_token(TokenType.PRIMARY_KEY):
                key = True
            elif default is None and self.match_words("DEFAULT"):
                default = self.expect_expression("a value")
            elif not self.match_words("NULL"):
                break
        return ColumnDef(name, type_, nullable, key, self.script.place(first.start, first.end + 1), default)

    def _parse_watermark(self) -> Watermark:
        self._advance(2)
        column = self.parse_column_name()
        self.expect_words("AS")
        first = self._curr
        value = self.expect_expression("a time")
        time, delay = (value.this, value.expression) if isinstance(value, exp.Sub) else (value, None)
        if not isinstance(time, exp.Column) or time.name.lower() != column.lower():
            self.fail(
                f'the watermark of "{column}" has to be "{column}" less an interval',
                first,
                hint=f"WATERMARK FOR {column} AS {column} - INTERVAL 5 SECONDS",
            )
        if delay is None:
            delay = exp.Interval(this=exp.Literal.string("0"), unit=exp.var("SECONDS"))
        return Watermark(column, delay, self.interval_seconds(delay, first))

    # Types

    def parse_data_type(self) -> pa.DataType:
        token = self._curr
        if not token or not token.text[:1].isalpha():
            self.fail_expected("a type", hint="for example INT, STRING or DECIMAL(10,2)")
        self._advance()
        name = token.text.upper()
        if name in _DECIMALS:
            return self._parse_decimal(token)
        if name == "ARRAY":
            (element,) = self._parse_inner_types(token, 1)
            return pa.list_(pa.field("element", element))
        if name == "MAP":
            key, value = self._parse_inner_types(token, 2)
            return pa.map_(key, value)
        if name == "STRUCT":
            return self._parse_struct()
        if name == "INTERVAL":
            self.expect_words("DAY", "TO", "SECOND")
            return pa.duration("us")
        if name not in _TYPES:
            self.fail(
                f"type {self.shown(token)} is not known",
                token,
                hint=did_you_mean(name, _KNOWN, f"types are {', '.join(_KNOWN)}"),
                kind=UnknownName,
            )
        if name in ("VARCHAR", "CHAR", "CHARACTER") and self.at_token(TokenType.L_PAREN):
            self.wrapped(self._parse_integer)
        return _TYPES[name]

    def _parse_decimal(self, token: Token) -> pa.DataType:
        numbers = self.wrapped(self._parse_integer) if self.at_token(TokenType.L_PAREN) else [10]
        self.check_decimal([str(n) for n in numbers], token)
        precision, scale = [*numbers, 0][:2]
        return pa.decimal128(precision, scale)

    def _parse_integer(self) -> int:
        token = self._curr
        if not token or token.token_type != TokenType.NUMBER or not token.text.isdigit():
            self.fail_expected("a number")
        self._advance()
        return int(token.text)

    def _parse_inner_types(self, token: Token, count: int) -> list[pa.DataType]:
        closing = TokenType.R_PAREN if self.at_token(TokenType.L_PAREN) else TokenType.GT
        if not self.match_token(TokenType.L_PAREN) and not self.match_token(TokenType.LT):
            form = "ARRAY<T>" if count == 1 else "MAP<K, V>"
            self.fail_expected(f'"<" after {token.text.upper()}', hint=f"write {form}")
        types = [self.parse_data_type()]
        while self.match_token(TokenType.COMMA):
            types.append(self.parse_data_type())
        if not self.match_token(closing):
            self.fail_expected('")"' if closing == TokenType.R_PAREN else '">"')
        if len(types) != count:
            self.fail(f"{token.text.upper()} takes {count} type{'s' * (count > 1)}", token, until=self._prev)
        return types

    def _parse_struct(self) -> pa.DataType:
        closing = TokenType.R_PAREN if self.at_token(TokenType.L_PAREN) else TokenType.GT
        if not self.match_token(TokenType.L_PAREN) and not self.match_token(TokenType.LT):
            self.fail_expected('"<" after STRUCT', hint="write STRUCT<a: INT, b: STRING>")
        fields = [self._parse_struct_field()]
        while self.match_token(TokenType.COMMA):
            fields.append(self._parse_struct_field())
        if not self.match_token(closing):
            self.fail_expected('">"')
        return pa.struct(fields)

    def _parse_struct_field(self) -> pa.Field:
        name = self.parse_column_name()
        self.match_token(TokenType.COLON)
        return pa.field(name, self.parse_data_type())
