"""Parses queries with pipes, ``FROM t |> WHERE … |> SELECT …``, into nested plain SELECTs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from millpond.errors import SqlSyntaxError
from millpond.sql.grouping import contains_aggregate, contains_window
from millpond.sql.nodes import StreamWindow
from millpond.sql.parser.base import Failure
from millpond.sql.parser.pipe_select import Pipe, Stage, qualified_columns
from millpond.sql.parser.queries import QueryParser
from millpond.sql.spans import span_of
from millpond.sql.text import Script

_JOINS = frozenset("JOIN INNER CROSS LEFT RIGHT FULL NATURAL SEMI ANTI".split())
_SETS = frozenset("UNION EXCEPT INTERSECT MINUS".split())
_ORDERS = {"ORDER BY": "order", "SORT BY": "sort", "CLUSTER BY": "cluster", "DISTRIBUTE BY": "distribute"}
_LIMITS = ("LIMIT", "OFFSET")
_WORDS = (
    *("SELECT", "EXTEND", "SET", "DROP", "AS", "WHERE", "AGGREGATE", "JOIN", "UNION", "EXCEPT", "INTERSECT"),
    *("ORDER BY", "LIMIT", "OFFSET"),
)
_CALLED = ("LEFT", "RIGHT")
"""Words of joins that are also functions."""
_ENDS = (TokenType.ORDER_BY, TokenType.SORT_BY, TokenType.CLUSTER_BY, TokenType.DISTRIBUTE_BY)
_GROUPS = ("rollup", "cube", "grouping_sets", "all", "totals")


def mark_pipes(tokens: list[Token]) -> None:
    """Makes ``|`` before the word of an operator a pipe, as Spark does."""
    words = {*_JOINS, *_SETS, *_ORDERS, *_LIMITS, *_WORDS, "PIVOT", "UNPIVOT", "TABLESAMPLE"}
    for i, token in enumerate(tokens[:-1]):
        after = tokens[i + 1]
        if token.token_type != TokenType.PIPE or after.token_type == TokenType.IDENTIFIER:
            continue
        opens = i + 2 < len(tokens) and tokens[i + 2].token_type == TokenType.L_PAREN
        word = " ".join(after.text.upper().split())
        if word in words and not (word in _CALLED and opens):
            token.token_type = TokenType.PIPE_GT


class PipeParser(QueryParser):
    """Parses what follows ``|>``. Nothing after the parser knows that there was a pipe."""

    _query_at = -1

    def load(self, tokens: list[Token], script: Script, uris: dict[int, str]) -> None:
        mark_pipes(tokens)
        self._query_at = -1
        super().load(tokens, script, uris)

    def _parse_query_expression(self) -> exp.Expression:
        self._query_at = self._index
        return super()._parse_query_expression()

    def _may_begin(self) -> bool:
        """Returns whether a query may begin here, so that FROM or TABLE is its first word."""
        before = self._tokens[self._index - 2].text.upper() if self._index > 1 else ""
        return (
            self._index == self._query_at
            or (self._prev.token_type == TokenType.L_PAREN and before != "TRIM")
            or self._prev.text.upper() in (*_SETS, "ALL", "DISTINCT")
        )

    def _is_table_query(self) -> bool:
        name = self.peek(1)
        if not self.at_words("TABLE") or name is None or not self._may_begin():
            return False
        return name.token_type in self.ID_VAR_TOKENS or name.token_type == TokenType.IDENTIFIER

    def _parse_from(
        self, joins: bool = False, skip_from_token: bool = False, consume_pipe: bool = False
    ) -> exp.From | None:
        # sqlglot sets consume_pipe where it looks for a query that begins with FROM.
        if consume_pipe and not self._may_begin():
            return None
        return super()._parse_from(joins and not consume_pipe, skip_from_token)

    def _parse_select(self, *args: object, **kwargs: object) -> exp.Expr | None:
        return super()._parse_select(*args, **{**kwargs, "consume_pipe": False})

    def _parse_set_operations(self, this: exp.Expr | None) -> exp.Expr | None:
        query = super()._parse_set_operations(this)
        while isinstance(query, exp.Query | exp.Values) and self.at_token(TokenType.PIPE_GT):
            query = super()._parse_set_operations(self._parse_pipes(query))
        return query

    def _parse_pipes(self, query: exp.Query | exp.Values) -> exp.Query:
        """Returns the query with the operators applied."""
        if not isinstance(query, exp.Subquery) and any(
            query.args.get(k) for k in (*_ORDERS.values(), "limit", "offset")
        ):
            self.fail(
                "a query with ORDER BY or LIMIT stands in parentheses before |>",
                hint="or write |> before ORDER BY and LIMIT too",
            )
        pipe = Pipe.of(query)
        while self.match_token(TokenType.PIPE_GT):
            self._pipe_operator(pipe)
        if self._at_more():
            self.fail_unexpected()
        if self._curr and self._curr.token_type in (*_ENDS, TokenType.LIMIT, TokenType.OFFSET):
            pipe.close()
            self._parse_query_modifiers(pipe.select)
            return pipe.select
        return pipe.query()

    def _at_more(self) -> bool:
        """Returns whether a clause comes next that only an operator may introduce."""
        word = " ".join(self._curr.text.upper().split()) if self._curr else ""
        called = self.peek(1)
        if word in _JOINS and not (called and called.token_type == TokenType.L_PAREN):
            return True
        return word in ("WHERE", "GROUP BY", "HAVING", "LATERAL", "PIVOT", "UNPIVOT") or (
            self._at_clause() and self._at_window_or_qualify()
        )

    def _pipe_operator(self, pipe: Pipe) -> None:
        word = " ".join(self._curr.text.upper().split()) if self._curr else ""
        if self._curr and self._curr.token_type == TokenType.IDENTIFIER:
            word = ""
        operators: dict[str, Callable[[Pipe], None]] = {
            "SELECT": self._pipe_select,
            "EXTEND": self._pipe_extend,
            "SET": self._pipe_set,
            "DROP": self._pipe_drop,
            "AS": self._pipe_as,
            "WHERE": self._pipe_where,
            "AGGREGATE": self._pipe_aggregate,
            "PIVOT": self._pipe_pivot,
            "UNPIVOT": self._pipe_pivot,
            "TABLESAMPLE": self._pipe_sample,
            **dict.fromkeys(_JOINS, self._pipe_join),
            **dict.fromkeys(_SETS, self._pipe_set_operation),
            **dict.fromkeys(_ORDERS, self._pipe_order),
            **dict.fromkeys(_LIMITS, self._pipe_limit),
        }
        parse = operators.get(word)
        if parse is None:
            hint = f"behind |> stands one of {', '.join(_WORDS)}"
            if word == "GROUP BY":
                hint = "|> AGGREGATE … GROUP BY …"
            self.fail_expected("an operator after |>", hint=hint)
        parse(pipe)

    def _pipe_select(self, pipe: Pipe) -> None:
        self._advance()
        pipe.reach(Stage.PROJECTED)
        hint = self._parse_hint()
        self._match(TokenType.ALL)
        distinct = exp.Distinct() if self._match(TokenType.DISTINCT) else None
        items, _ = self._parse_projections()
        group = self._parse_group() if self.at_token(TokenType.GROUP_BY) else None
        made = pipe.select
        made.set("hint", hint)
        made.set("distinct", distinct)
        made.set("expressions", items)
        made.set("group", group)
        self._parse_windows_of(made)
        for item in (*items, *([group] if group else [])):
            self._check_names(item, pipe)
        pipe.gives(items)

    def _parse_windows_of(self, select: exp.Select) -> None:
        """Parses ``WINDOW w AS (…)`` and ``WINDOW TUMBLING(…)``."""
        if self._at_stream_window():
            select.append("windows", self._parse_stream_window())
        elif self._at_named_windows():
            self._advance()
            for window in self._parse_csv(self._parse_named_window):
                select.append("windows", window)

    def _pipe_extend(self, pipe: Pipe) -> None:
        self._advance()
        pipe.reach(Stage.PROJECTED)
        items = self._items("what to add to the columns")
        for item in items:
            if item.is_star:
                self._fail_at(item, "EXTEND takes expressions, not *", hint="* is there already")
            self._check_names(item, pipe)
        made = [exp.Star(), *items]
        pipe.select.set("expressions", made)
        pipe.gives(made)

    def _pipe_set(self, pipe: Pipe) -> None:
        self._advance()
        while True:
            pipe.reach(Stage.PROJECTED)
            column = self._parse_id_var(any_token=True)
            if column is None:
                self.fail_expected("the name of a column after SET")
            if self.at_token(TokenType.DOT):
                self.fail("SET takes the name of a column, not of a field")
            if not self.match_token(TokenType.EQ):
                self.fail_expected('"=" after the name of a column')
            value = self.expect_expression("a value")
            self._check_names(value, pipe)
            pipe.replace(column, value)
            if not self.match_token(TokenType.COMMA):
                return

    def _pipe_drop(self, pipe: Pipe) -> None:
        self._advance()
        pipe.reach(Stage.PROJECTED)
        columns = self._parse_csv(self._parse_column)
        if not columns:
            self.fail_expected("the name of a column after DROP")
        for column in columns:
            self._check_names(column, pipe)
        pipe.select.set("expressions", [exp.Star(except_=columns)])
        pipe.gives(pipe.select.expressions)

    def _pipe_as(self, pipe: Pipe) -> None:
        self._advance()
        name = self._parse_id_var(any_token=False)
        if name is None:
            self.fail_expected("a name after AS")
        pipe.rename(name)

    def _pipe_where(self, pipe: Pipe) -> None:
        self._advance()
        pipe.reach(Stage.FILTERED)
        condition = self.expect_expression("a condition")
        self._check_names(condition, pipe)
        pipe.filter(condition)

    def _pipe_join(self, pipe: Pipe) -> None:
        pipe.reach(Stage.INPUT)
        join = self._parse_join()
        if join is None:
            self.fail_expected("JOIN")
        pipe.join(join)
        if condition := join.args.get("on"):
            self._check_names(condition, pipe)

    def _pipe_set_operation(self, pipe: Pipe) -> None:
        left = pipe.operand()
        made = self.parse_set_operation(left)
        if made is None or made.expression is None:
            self.fail_expected("a query")
        pipe.begin(made)

    def _parse_modifier(self) -> tuple[str, exp.Expr]:
        parse: Any = self.QUERY_MODIFIER_PARSERS[self._curr.token_type]
        kind, clause = parse(self)
        return kind, clause

    def _pipe_order(self, pipe: Pipe) -> None:
        pipe.reach(Stage.ORDERED)
        while self._curr and self._curr.token_type in _ENDS:
            kind, clause = self._parse_modifier()
            if pipe.select.args.get(kind):
                break
            self._check_names(clause, pipe)
            pipe.select.set(kind, clause)
            if kind in ("order", "cluster"):
                break
        if self._curr and self._curr.token_type in (TokenType.LIMIT, TokenType.OFFSET, TokenType.SORT_BY):
            self.fail(f"{self.shown()} is an operator of its own", hint="write |> before it")

    def _pipe_limit(self, pipe: Pipe) -> None:
        pipe.reach(Stage.LIMITED)
        while self._curr and self._curr.text.upper() in _LIMITS:
            kind, clause = self._parse_modifier()
            if pipe.select.args.get(kind):
                self.fail_unexpected()
            pipe.select.set(kind, clause)

    def _pipe_aggregate(self, pipe: Pipe) -> None:
        word = self._curr
        self._advance()
        pipe.reach(Stage.PROJECTED)
        items = [] if self.at_token(TokenType.GROUP_BY) else self._items("an aggregate")
        for item in items:
            self._check_names(item, pipe)
            if contains_window(item):
                self._fail_at(item, "OVER cannot stand in AGGREGATE", hint="use |> EXTEND behind it")
            if not contains_aggregate(item):
                hint = "columns to group by stand behind GROUP BY"
                self._fail_at(item, "each item of AGGREGATE needs an aggregate function", hint=hint)
            if item.find(exp.Grouping, exp.GroupingId):
                self._fail_at(item, "GROUPING cannot stand in AGGREGATE")
        keys = self._keys(pipe) if self.match_token(TokenType.GROUP_BY) else []
        if not items and not keys:
            self.fail("AGGREGATE needs an aggregate or GROUP BY", word)
        made = pipe.select
        made.set("expressions", [*keys, *items])
        if keys:
            values = [k.this if isinstance(k, exp.Alias) else k for k in keys]
            made.set("group", exp.Group(expressions=[v.copy() for v in values]))
        self._parse_windows_of(made)
        if not keys and any(isinstance(w, StreamWindow) for w in made.args.get("windows") or ()):
            made.set("group", exp.Group(expressions=[]))
        pipe.gives([*keys, *items])

    def _keys(self, pipe: Pipe) -> list[exp.Expr]:
        """Parses the keys of AGGREGATE. A number is the position of an input column."""
        if self._curr and self._curr.text.upper() in ("ROLLUP", "CUBE", "GROUPING SETS", "ALL"):
            self.fail(f"GROUP BY {self._curr.text.upper()} cannot stand behind |> AGGREGATE")
        keys = self._items("what to group by")
        if self._curr and self._curr.text.upper() == "GROUPING SETS":
            self.fail("GROUPING SETS cannot stand behind |> AGGREGATE")
        found: list[exp.Expr] = []
        for key in keys:
            self._check_names(key, pipe)
            if contains_aggregate(key):
                self._fail_at(key, "an aggregate cannot stand in GROUP BY")
            if isinstance(key, exp.Tuple) and not key.expressions:
                self._fail_at(key, "GROUP BY () cannot stand behind |> AGGREGATE")
            found.append(self._column_at(key, pipe) if key.is_int else key)
        return found

    def _column_at(self, key: exp.Expr, pipe: Pipe) -> exp.Expr:
        columns, at = pipe.columns, int(key.name)
        if columns is None:
            self._fail_at(key, "the place of a column is not known here", hint="name the column")
        if not 1 <= at <= len(columns):
            self._fail_at(key, f"there are {len(columns)} columns, none at {at}")
        return exp.column(exp.to_identifier(columns[at - 1], quoted=True))

    def _pipe_pivot(self, pipe: Pipe) -> None:
        pipe.close()
        pipe.source.set("pivots", [self._parse_pivot()])
        pipe.rename(None)

    def _pipe_sample(self, pipe: Pipe) -> None:
        pipe.close()
        pipe.source.set("sample", self._parse_table_sample())

    def _items(self, what: str) -> list[exp.Expr]:
        items = self._parse_csv(self._parse_expression)
        if not items:
            self.fail_expected(what)
        return items

    def _fail_at(self, node: exp.Expr, message: str, hint: str | None = None) -> NoReturn:
        span = span_of(node)
        if span is None:
            self.fail(message, self._prev, hint=hint)
        raise Failure(message, *span, hint, SqlSyntaxError)

    def _check_names(self, node: exp.Expr, pipe: Pipe) -> None:
        """Refuses a column of an input that can no longer be named, which would otherwise be one of an outer query."""
        for column, first in qualified_columns(node):
            if message := pipe.misses(column, first):
                self._fail_at(column, message, hint="|> AS gives what comes out so far a name")
