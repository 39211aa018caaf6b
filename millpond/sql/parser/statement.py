"""Parses statements: the first word decides which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, cast

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from millpond.errors import UnknownName, did_you_mean
from millpond.sql.parser.functions import check_count, own_functions, worded_functions
from millpond.sql.parser.queries import Tail
from millpond.sql.parser.versions import parse_history, parse_optimize, parse_vacuum, skip_table
from millpond.sql.parser.writes import WriteParser
from millpond.sql.statements import (
    EXPLAIN_FORMATS,
    Begin,
    Commit,
    ControlQuery,
    Describe,
    DescribeHistory,
    Explain,
    ExplainFormat,
    ExplainUpgrade,
    NamedQuery,
    Replay,
    Rollback,
    Select,
    Show,
    ShowCreate,
    Statement,
)
from millpond.sql.timeliterals import HINT, is_impossible
from millpond.sql.typing.literals import named_type
from millpond.types import type_name

TIME_TYPES = (
    exp.DType.DATE,
    exp.DType.TIMESTAMP,
    exp.DType.TIMESTAMPTZ,
    exp.DType.TIMESTAMPLTZ,
    exp.DType.TIMESTAMPNTZ,
)
ShowKind = Literal["streams", "tables", "queries", "functions"]
_QUERY_CLAUSES = (
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ORDER_BY,
    TokenType.LIMIT,
    TokenType.OFFSET,
    TokenType.CLUSTER_BY,
    TokenType.DISTRIBUTE_BY,
    TokenType.SORT_BY,
    TokenType.TABLE_SAMPLE,
)
_INSTEAD = {
    "SET": "options stand in the WITH ('…' = '…') of a statement",
    "USE": "there are no databases or schemas: all names of an app are in one place",
    "GRANT": "there are no users: who may read the state directory may use the app",
}
_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
_SHOWN = ("STREAMS", "TABLES", "QUERIES", "FUNCTIONS")


def _placeholder(parser: MillpondParser) -> exp.Placeholder:
    """Parses ``?``, or ``:name`` with its name."""
    token, name = parser.previous, None
    if token.token_type == TokenType.COLON:
        if not parser.current or parser.current.start != token.end + 1:
            parser.fail_expected("the name of a parameter after :")
        parser.skip()
        name = parser.previous.text
    place = exp.Placeholder(this=name) if name else exp.Placeholder()
    return place.update_positions(start=token.start, end=parser.previous.end, line=token.line, col=token.col)


def _raw_string(parser: MillpondParser, token: Token) -> exp.Literal:
    return exp.Literal.string(token.text).update_positions(token)


def _time_literal(parser: MillpondParser, value: exp.Expr, dtype: exp.DataType) -> exp.Cast:
    """Parses ``DATE '2026-01-31'``; an invalid date is not a literal."""
    named, written = named_type(dtype), value
    while not isinstance(written, exp.Literal) and isinstance(written.this, exp.Expr):
        written = written.this
    if isinstance(written, exp.Literal) and named is not None and is_impossible(written.name, named):
        parser.fail(f'"{written.name}" is no {type_name(named)}', parser.previous, hint=HINT)
    literal = exp.Cast(this=written.copy(), to=dtype)
    if written is value:
        return literal
    # What follows the literal, as in DATE '2026-01-31'::STRING, applies to the date.
    written.replace(literal)
    return value  # type: ignore[return-value]


class MillpondParser(WriteParser):
    """Parses one statement; sqlglot's own statements are never reached."""

    STRICT_CAST = True
    FUNCTIONS = {}
    FUNCTION_PARSERS = worded_functions()
    UNARY_PARSERS = {}
    QUERY_MODIFIER_PARSERS = {
        k: v for k, v in WriteParser.QUERY_MODIFIER_PARSERS.items() if k in _QUERY_CLAUSES
    }
    QUERY_MODIFIER_TOKENS = set(QUERY_MODIFIER_PARSERS)
    COLUMN_OPERATORS = {
        k: v for k, v in WriteParser.COLUMN_OPERATORS.items() if k in (TokenType.DOT, TokenType.DCOLON)
    }
    PLACEHOLDER_PARSERS = {TokenType.PLACEHOLDER: _placeholder, TokenType.COLON: _placeholder}
    TYPE_LITERAL_PARSERS = {
        **WriteParser.TYPE_LITERAL_PARSERS,
        **dict.fromkeys(TIME_TYPES, _time_literal),
    }
    PRIMARY_PARSERS = {**WriteParser.PRIMARY_PARSERS, TokenType.RAW_STRING: _raw_string}
    NO_PAREN_FUNCTION_PARSERS = {
        k: v for k, v in WriteParser.NO_PAREN_FUNCTION_PARSERS.items() if k == "CASE"
    }

    def _parse_function_call(
        self,
        functions: dict[str, Callable[..., exp.Expr]] | None = None,
        anonymous: bool = False,
        optional_parens: bool = True,
        any_token: bool = False,
    ) -> exp.Expr | None:
        """Parses a call as sqlglot does, with the table of functions, which is loaded at the first call."""
        return super()._parse_function_call(
            own_functions() if functions is None else functions, anonymous, optional_parens, any_token
        )

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        token = self._tokens[self._index - 2]
        args = super()._parse_function_args(alias)
        if token.token_type == TokenType.IDENTIFIER:
            return args
        name = token.text.upper()
        distinct = args[0] if args and isinstance(args[0], exp.Distinct) else None
        if name == "COUNT" or not any(a.is_star for a in args):
            check_count(self, name, len(args) + (len(distinct.expressions) - 1 if distinct else 0), token)
        if name != "STRUCT" and any(isinstance(a, exp.Alias | exp.Aliases) for a in args):
            self.fail(f"an argument of {name} has no name", token)
        return args

    def parse_statement(self) -> Statement:
        """Parses the statement of the loaded tokens, and requires that all of them are used."""
        statement = self._parse_one()
        if self._curr:
            self.fail_unexpected()
        for token in self.unused_uris.values():
            self.fail(
                "a URI cannot stand here",
                token,
                hint="a URI is a source after FROM or JOIN, or a sink after INSERT INTO",
            )
        return statement

    def parse_whole_condition(self) -> exp.Expression:
        """Parses a condition that is all of the loaded tokens."""
        condition = self.expect_expression("a condition")
        if self._curr:
            self.fail_unexpected()
        return condition

    def _parse_one(self) -> Statement:
        first = self._curr
        if not first:
            self.fail("a statement is missing")
        statement = self._parse_statement_kind(first)
        start, end = first.start, self._prev.end + 1
        return replace(
            statement, place=self.script.place(start, end), text=self.script.slice(start, end).rstrip()
        )

    def _parse_statement_kind(self, first: Token) -> Statement:
        word = first.text.upper()
        if first.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            self.fail_expected("a statement")
        if first.token_type == TokenType.L_PAREN or word in _QUERIES:
            tail = Tail()
            query = self.parse_query(tail)
            return Select(query, tuple(tail.settings), tail.errors_into)
        parse = self._statements().get(word)
        if parse is None:
            if not word[:1].isalpha():
                self.fail_expected("a statement")
            known = [*_QUERIES, *self._statements()]
            self.fail(
                f"statement {self.shown()} is not known",
                hint=_INSTEAD.get(word)
                or did_you_mean(word, known, f"statements begin with {', '.join(known)}"),
                kind=UnknownName,
            )
        self._advance()
        return parse()

    def _statements(self) -> dict[str, Callable[[], Statement]]:
        return {
            "CREATE": self.parse_create,
            "INSERT": self.parse_insert,
            "UPSERT": self.parse_upsert,
            "UPDATE": self.parse_update,
            "DELETE": self.parse_delete,
            "MERGE": self.parse_merge,
            "BEGIN": self._parse_begin,
            "COMMIT": self._parse_commit,
            "ROLLBACK": self._parse_rollback,
            "DROP": self.parse_drop,
            "TRUNCATE": self.parse_truncate,
            "ALTER": self.parse_alter,
            "SHOW": self._parse_show_statement,
            "DESCRIBE": self._parse_describe_statement,
            "DESC": self._parse_describe_statement,
            "EXPLAIN": self._parse_explain,
            "STOP": self._parse_control,
            "START": self._parse_control,
            "PAUSE": self._parse_control,
            "RESUME": self._parse_control,
            "REPLAY": self._parse_replay,
            "OPTIMIZE": partial(parse_optimize, self),
            "VACUUM": partial(parse_vacuum, self),
        }

    def _parse_begin(self) -> Begin:
        self.match_words("TRANSACTION")
        return Begin()

    def _parse_commit(self) -> Commit:
        self.match_words("TRANSACTION")
        return Commit()

    def _parse_rollback(self) -> Rollback:
        self.match_words("TRANSACTION")
        return Rollback()

    def _parse_show_statement(self) -> Show | ShowCreate:
        if self.match_words("CREATE"):
            if not any(
                self.match_words(*kind) for kind in (("MATERIALIZED", "VIEW"), ("VIEW",), ("STREAM",))
            ):
                self.expect_words("TABLE")
            return ShowCreate(self.parse_name("the name of a table"))
        word = self._curr.text.upper() if self._curr else ""
        if word not in _SHOWN:
            hint = did_you_mean(word, _SHOWN)
            self.fail_expected("STREAMS, TABLES, QUERIES, FUNCTIONS or CREATE TABLE", hint=hint)
        self._advance()
        return Show(cast(ShowKind, word.lower()))

    def _parse_describe_statement(self) -> Describe | DescribeHistory:
        if self._next and self.match_words("HISTORY"):
            return parse_history(self)
        extended = bool(self._next) and self.match_words("EXTENDED")
        skip_table(self)
        name, _ = self.parse_target()
        return Describe(name, extended)

    def _parse_explain(self) -> Explain | ExplainUpgrade:
        if self.match_words("SHADOW", "UPGRADE"):
            return ExplainUpgrade(self._parse_path_of_file(), shadow=True)
        if self.match_words("UPGRADE"):
            return ExplainUpgrade(self._parse_path_of_file())
        analyze = self.match_words("ANALYZE")
        form = self._parse_explain_format()
        if analyze and form in ("mermaid", "svg"):
            self.fail("EXPLAIN ANALYZE has no picture", self._prev, hint="FORMAT JSON or TEXT")
        if analyze and self.match_words("QUERY"):
            return Explain(self._parse_named_query(self._prev), analyze, form)
        return Explain(self._parse_one(), analyze, form)

    def _parse_named_query(self, first: Token) -> NamedQuery:
        name = self.parse_query_name()
        start, end = first.start, self._prev.end + 1
        return NamedQuery(name, text=self.script.slice(start, end), place=self.script.place(start, end))

    def _parse_explain_format(self) -> ExplainFormat:
        """Parses ``FORMAT JSON``, ``FORMAT = JSON`` or ``(FORMAT JSON)``."""
        after = self.peek(1)
        wrapped = self.at_token(TokenType.L_PAREN) and after is not None and after.text.upper() == "FORMAT"
        if wrapped:
            self.expect_open()
        if not self.match_words("FORMAT"):
            return "text"
        self.match_token(TokenType.EQ)
        word = self._curr.text.lower() if self._curr else ""
        if word not in EXPLAIN_FORMATS:
            self.fail_expected("TEXT, JSON, MERMAID or SVG", hint=did_you_mean(word, EXPLAIN_FORMATS))
        self._advance()
        if wrapped:
            self.expect_close()
        return word

    def _parse_path_of_file(self) -> str:
        if not self._curr:
            self.fail_expected("the path of a SQL file")
        text = self._quoted()
        if text is not None:
            self.unused_uris.pop(self._prev.start, None)
            return text
        text = self._bare(set())
        return text

    def _parse_control(self) -> ControlQuery:
        action = self._prev.text.lower()
        self.expect_words("QUERY")
        name = self.parse_query_name()
        return ControlQuery(cast(Literal["stop", "start", "pause", "resume"], action), name)

    def _parse_replay(self) -> Replay:
        return Replay(self.parse_name("the name of an error table"))
