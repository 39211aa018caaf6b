"""LIKE, regular expressions, and what splits by them."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql import measures
from millpond.sql.functions.base import Function
from millpond.sql.render.duckdb import patterns as duckdb
from millpond.sql.typing import functions as types

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("ilike", "Whether a text matches a pattern of LIKE, in any case.", "ilike('Stream', 's%')",
        arity="2-3", type=types.like, duckdb=duckdb.like_call(exp.ILike)),
    Function("like", "Whether a text matches a pattern: % is any text, _ one character.",
        "like('stream', 's%m')", arity="2-3", type=types.like, duckdb=duckdb.like_call(exp.Like)),
    Function("regexp_count", "How often a regular expression matches in a text.",
        "regexp_count('a1b22', '[0-9]+') = 2", takes="(string, string) int"),
    Function("regexp_extract",
        "The group of the first match of a regular expression (by default the first group); an empty "
        "text if there is none.", "regexp_extract('id=42', '([a-z]+)=([0-9]+)', 2) = '42'",
        takes="(string, string[, int]) string", duckdb=duckdb.extract),
    Function("regexp_extract_all", "The group of every match, as an array.",
        "regexp_extract_all('a1b2', '([0-9])') = array('1', '2')",
        takes="(string, string[, int]) array<string>"),
    Function("regexp_instr", "Where a regular expression first matches, counted from 1; 0 if nowhere.",
        "regexp_instr('ab12', '[0-9]') = 3", takes="(string, string[, int]) int"),
    Function("regexp_like", "Whether a regular expression matches somewhere in a text.",
        "regexp_like('order-17', '-[0-9]+$')", also=("rlike", "regexp"), takes="(string, string) boolean",
        duckdb=duckdb.matches_call),
    Function("regexp_replace",
        "The text with every match of a regular expression replaced; $1 is its first group.",
        "regexp_replace('a1b22', '[0-9]+', '#') = 'a#b#'", takes="(string, string, string[, int]) ?",
        type=types.regexp_replace, duckdb=duckdb.regexp_replace, grows=measures.replaced),
    Function("regexp_substr", "The first match of a regular expression; NULL if there is none.",
        "regexp_substr('ab12', '[0-9]+') = '12'", takes="(string, string) string"),
    Function("split", "The parts of a text between the matches of a regular expression, as an array.",
        "split('a,b,c', ',') = array('a', 'b', 'c')", takes="(string, string[, int]) array<string>",
        duckdb=duckdb.split),
)
# fmt: on
