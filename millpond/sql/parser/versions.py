"""Parses what concerns the versions of a table: AS OF, DESCRIBE HISTORY, OPTIMIZE and VACUUM."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from millpond.sql.parser.names import NameParser
from millpond.sql.statements import DescribeHistory, Optimize, Vacuum

MOST_HOURS = 1_000_000
"""A hundred years: logs of versions do not count much longer times."""
_PHRASES = (["VERSION", "AS", "OF"], ["TIMESTAMP", "AS", "OF"])


def at_version(parser: NameParser) -> bool:
    """Returns whether ``VERSION AS OF`` or ``TIMESTAMP AS OF`` begins here; without AS OF the word is a name."""
    after = 1 if parser.at_words("FOR") else 0
    return [token.text.upper() for i in range(after, after + 3) if (token := parser.peek(i))] in _PHRASES


def whole_version(parser: NameParser, found: exp.Version | None, start: int) -> exp.Version:
    """Returns the clause that began at ``start`` with its place in the text."""
    if found is None or found.expression is None:
        parser.fail_expected("a version after AS OF", hint="VERSION AS OF 3, TIMESTAMP AS OF '2026-01-31'")
    found.meta.update(start=start, end=parser.previous.end)
    return found


def parse_history(parser: NameParser) -> DescribeHistory:
    skip_table(parser)
    return DescribeHistory(parser.parse_target()[0])


def parse_optimize(parser: NameParser) -> Optimize:
    skip_table(parser)
    return Optimize(parser.parse_name("the name of a table"))


def parse_vacuum(parser: NameParser) -> Vacuum:
    skip_table(parser)
    name = parser.parse_name("the name of a table")
    if not parser.match_words("RETAIN"):
        return Vacuum(name)
    number = parser.current
    if not parser.at_token(TokenType.NUMBER) or not number.text.isdecimal() or int(number.text) > MOST_HOURS:
        parser.fail_expected(
            f"a whole number of hours after RETAIN, at most {MOST_HOURS}", hint="VACUUM t RETAIN 168 HOURS"
        )
    parser.skip()
    parser.expect_words("HOURS")
    return Vacuum(name, int(number.text))


def skip_table(parser: NameParser) -> None:
    """Skips the word TABLE before a name."""
    if parser.at_words("TABLE") and parser.peek(1):
        parser.skip()
