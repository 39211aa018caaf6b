"""Renders LIKE and regular expressions."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import Unrenderable, text
from millpond.sql.render.duckdb.regex import finds_nothing, plain_text, replacement, translate
from millpond.sql.render.duckdb.strings import literal, number
from millpond.sql.typing.coercion import STRING


def like(r: Expressions, node: exp.Expr) -> str:
    """Renders LIKE and ILIKE; the default escape is a backslash, as in Spark."""
    escape = "\\"
    if isinstance(node, exp.Escape):
        escape, node = literal(node.expression, "an escape"), node.this
    if isinstance(node.expression, exp.Any | exp.All):
        return _like_several(r, node)
    return _like(r, node.this, node.expression, escape, node, bool(node.args.get("negate")))


def _like_several(r: Expressions, node: exp.Expr) -> str:
    """Renders LIKE ANY and LIKE ALL; a NOT negates each pattern."""
    patterns = node.expression.this
    items = patterns.expressions if isinstance(patterns, exp.Tuple) else [patterns.this]
    negated = bool(node.args.get("negate"))
    word = " AND " if isinstance(node.expression, exp.All) else " OR "
    return f"({word.join(_like(r, node.this, p, chr(92), node, negated) for p in items)})"


def _like(
    r: Expressions, value: exp.Expr, pattern: exp.Expr, escape: str, node: exp.Expr, negated: bool
) -> str:
    written = literal(pattern, "a pattern")
    if len(escape) != 1 or escape in "%_":
        raise Unrenderable("this escape")
    _check_pattern(written, escape)
    subject, sought = r.to(value, STRING), text(written)
    if isinstance(node, exp.ILike):
        if not written.isascii():
            raise Unrenderable("ILIKE with other letters than those of ASCII")
        subject, sought = f"lower({subject})", f"lower({sought})"
        written = written.lower()
    if _is_slow(written, escape):
        return f"({'NOT ' if negated else ''}regexp_full_match({subject}, {text(_regex(written, escape))}))"
    word = "NOT LIKE" if negated else "LIKE"
    # DuckDB finds the parts of a pattern one after the other only if no escape is named.
    escaped = f" ESCAPE {text(escape)}" if escape in written else ""
    return f"({subject} {word} {sought}{escaped})"


def _is_slow(pattern: str, escape: str) -> bool:
    """Returns whether DuckDB's LIKE would try all ways to split a text among several ``%``."""
    return pattern.count("%") > 1 and ("_" in pattern or escape in pattern)


def _regex(pattern: str, escape: str) -> str:
    """Returns the same as a regular expression, whose time grows only with the length of the text."""
    found, at = ["(?s)"], 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            char = pattern[at]
        elif char in "%_":
            found.append(".*" if char == "%" else ".")
            at += 1
            continue
        found.append(char if char.isalnum() or not char.isascii() else f"\\{char}")
        at += 1
    return "".join(found)


def _check_pattern(pattern: str, escape: str) -> None:
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise Unrenderable("a LIKE pattern that escapes an ordinary character")
        at += 1


def like_call(kind: type[exp.Expr]) -> Entry:
    """Returns the entry for LIKE(x, pattern[, escape]), which is x LIKE pattern [ESCAPE escape]."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        value, pattern, *escape = node.expressions
        written = literal(escape[0], "an escape") if escape else "\\"
        return _like(r, value, pattern, written, kind(), False)

    return entry


def matches(r: Expressions, node: exp.Expr) -> str:
    """Renders ``x RLIKE pattern``."""
    pattern, _ = translate(literal(node.expression, "a pattern"), finds=True)
    return f"regexp_matches({r.to(node.this, STRING)}, {text(pattern)})"


def matches_call(r: Expressions, node: exp.Expr) -> str:
    pattern, _ = translate(literal(node.expressions[1], "a pattern"), finds=True)
    return f"regexp_matches({r.given(node)[0]}, {text(pattern)})"


def extract(r: Expressions, node: exp.Expr) -> str:
    pattern, groups = translate(literal(node.expressions[1], "a pattern"))
    group = number(node.expressions[2], "a group") if len(node.expressions) > 2 else 1
    if not 0 <= group <= groups:
        raise Unrenderable("a group that is not in the pattern")
    return f"regexp_extract({r.given(node)[0]}, {text(pattern)}, {group})"


def regexp_replace(r: Expressions, node: exp.Expr) -> str:
    if len(node.expressions) > 3:
        raise Unrenderable("REGEXP_REPLACE from a position")
    written = literal(node.expressions[1], "a pattern")
    pattern, groups = translate(written)
    if finds_nothing(written):
        raise Unrenderable("REGEXP_REPLACE of what may be empty")
    new = replacement(literal(node.expressions[2], "a replacement"), groups)
    return f"regexp_replace({r.given(node)[0]}, {text(pattern)}, {text(new)}, 'g')"


def split(r: Expressions, node: exp.Expr) -> str:
    separator = plain_text(literal(node.expressions[1], "a pattern"))
    if not separator or len(node.expressions) > 2:
        raise Unrenderable("SPLIT by a pattern")
    return f"string_split({r.given(node)[0]}, {text(separator)})"


ENTRIES: dict[type[exp.Expr], Entry] = {
    exp.Like: like,
    exp.ILike: like,
    exp.Escape: like,
    exp.RegexpLike: matches,
}
