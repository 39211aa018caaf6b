"""Defines our SQL as a dialect of sqlglot, on top of its Spark dialect."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.dialect import groupconcat_sql
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.tokens import TokenType

from millpond.sql.nodes import (
    LETTER,
    AnyDepth,
    AnyValue,
    ArraySum,
    EachOnce,
    Element,
    FilteredValues,
    Index,
    Path,
    PathValues,
    StreamWindow,
)
from millpond.sql.parser.statement import MillpondParser
from millpond.sql.render.sparkpaths import sum_sql, values_sql

# The words that the tokenizer recognises; every other word is an ordinary name.
_WORDS = frozenset(
    """
    ALL AND ANTI ANY AS ASC BETWEEN CASE COLLATE CROSS CUBE CURRENT_DATE CURRENT_TIMESTAMP
    CURRENT_USER DEFAULT DESC DISTINCT DIV ELSE END ESCAPE EXCEPT EXISTS FALSE FILTER FIRST FOR FROM
    FULL HAVING ILIKE IN INNER INTERSECT INTERVAL INTO IS JOIN LATERAL LEFT LIKE LIMIT
    LOCALTIMESTAMP MINUS NATURAL NOT NULL OFFSET ON OR OUTER OVER PARTITION PERCENT PIVOT RANGE
    RECURSIVE REGEXP RIGHT RLIKE ROLLUP ROW ROWS SELECT SEMI SESSION_USER SET SOME TABLESAMPLE THEN
    TRUE UNION UNPIVOT USING VALUES VIEW WHEN WHERE WITH ARRAY BIGINT BINARY BOOL BOOLEAN BYTE CHAR
    CHARACTER DATE DEC DECIMAL DOUBLE FLOAT INT INTEGER LONG MAP NUMERIC REAL SHORT SMALLINT STRING
    STRUCT TEXT TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TINYINT VARCHAR VARIANT VOID
    """.split()
)
_PHRASES = frozenset(
    "CLUSTER BY,DISTRIBUTE BY,GROUP BY,GROUPING SETS,ORDER BY,PARTITION BY,PRIMARY KEY,SORT BY".split(",")
)
_OPERATORS = frozenset("/*+ == :: || |> >= <= <> != := <=> -> =>".split())

# What sqlglot writes for these differs from what it read.
_REPLACED = (exp.WithinGroup, exp.TsOrDsToDate)
_TO_DATE = SparkGenerator.TRANSFORMS[exp.TsOrDsToDate]


class Millpond(Spark):
    """Defines the tokenizer, parser and generator of our SQL."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {
            k: v
            for k, v in Spark.Tokenizer.KEYWORDS.items()
            if k in _WORDS or k in _PHRASES or k in _OPERATORS
        }
        COMMANDS = set[TokenType]()
        STRING_ESCAPES = ["\\", "'", '"']
        VAR_SINGLE_TOKENS = {"$"}

    Parser = MillpondParser

    class Generator(SparkGenerator):
        # A WITH stays in its place: one in a subquery may read the outer query.
        EXPRESSIONS_WITHOUT_NESTED_CTES = set[type[exp.Expr]]()
        TRANSFORMS = {
            **{k: v for k, v in SparkGenerator.TRANSFORMS.items() if k not in _REPLACED},
            Path: lambda self, e: self.path_sql(e),
            AnyDepth: lambda self, e: "**",
            Index: lambda self, e: f"[{self.sql(e, 'this')}]",
            PathValues: lambda self, e: values_sql([self.sql(h) for h in e.expressions], e),
            ArraySum: lambda self, e: sum_sql(self.sql(e, "this"), self.sql(e, "to")),
            EachOnce: lambda self, e: f"array_distinct(array_compact(flatten({self.sql(e, 'this')})))",
            FilteredValues: lambda self, e: (
                f"filter({self.sql(e, 'this')}, {e.args['variable'].name} -> {self.sql(e, 'condition')})"
            ),
            AnyValue: lambda self, e: (
                f"coalesce(exists({self.sql(e, 'this')}, "
                f"{e.args['variable'].name} -> {self.sql(e, 'condition')}), FALSE)"
            ),
            Element: lambda self, e: e.name,
            StreamWindow: lambda self, e: self.stream_window_sql(e),
            exp.GroupConcat: lambda self, e: groupconcat_sql(self, e, sep=None),
            exp.ParseJSON: lambda self, e: self.func("PARSE_JSON", e.this),
            exp.Space: lambda self, e: self.func("SPACE", e.this),
            exp.ToChar: lambda self, e: self.func("TO_CHAR", e.this, e.args.get("format")),
        }

        def not_sql(self, node: exp.Not) -> str:
            """Writes IS NOT NULL in these words: Spark plans NOT … IS NULL differently, and may fail unnecessarily."""
            test = node.this
            if isinstance(test, exp.Is) and not isinstance(test.expression, exp.Not):
                return f"{self.sql(test, 'this')} IS NOT {self.sql(test, 'expression')}"
            return super().not_sql(node)

        def cast_sql(self, node: exp.Cast, safe_prefix: str | None = None) -> str:
            letter = node.meta.get(LETTER)
            return f"{self.sql(node, 'this')}{letter}" if letter else super().cast_sql(node, safe_prefix)

        def tsordstodate_sql(self, node: exp.TsOrDsToDate) -> str:
            if node.args.get("format"):
                return self.func("TO_DATE", node.this, self.format_time(node))
            return _TO_DATE(self, node)

        def filter_sql(self, node: exp.Filter) -> str:
            """Writes IGNORE NULLS after FILTER."""
            inner = node.this
            if isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
                word = "IGNORE" if isinstance(inner, exp.IgnoreNulls) else "RESPECT"
                return (
                    f"{self.sql(inner, 'this')} FILTER({self.sql(node, 'expression').strip()}) {word} NULLS"
                )
            return super().filter_sql(node)

        def path_sql(self, path: Path) -> str:
            text = ""
            for step in path.expressions:
                text += ("" if isinstance(step, Index) or not text else ".") + self.sql(step)
            return text

        def stream_window_sql(self, window: StreamWindow) -> str:
            time = window.args.get("time")
            sizes = [f"{size.name}s" for size in (window.args["size"], window.args.get("slide")) if size]
            return f"{window.name.upper()}({', '.join([self.sql(time)] * bool(time) + sizes)})"


def sql_of(node: exp.Expression) -> str:
    """Returns the text of an expression or query in our dialect."""
    return node.sql(dialect=Millpond, comments=False, normalize_functions=False)
