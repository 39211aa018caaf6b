from __future__ import annotations

import pytest

from millpond.sql.parse import parse
from millpond.sql.statements import Select
from millpond.sql.text import Script, pieces


def test_pieces_cover_the_text() -> None:
    text = "SELECT 'a''b' /* x /* y */ z */ -- q\n, \"c\\\"d\", `e``f`, r'\\' FROM kafka://x ${A:-b}"
    found = list(pieces(text))
    assert "".join(text[p.start : p.end] for p in found) == text
    assert [p.kind for p in found if p.kind != "code"] == [
        "string",
        "comment",
        "comment",
        "string",
        "name",
        "string",
        "uri",
        "variable",
    ]


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("SELECT ${A}", "SELECT 1"),
        ("SELECT ${MISSING:-7} + ${A:-2}", "SELECT 7 + 1"),
        ("SELECT '${QUOTE}'", "SELECT 'it\\'s'"),
        ('SELECT "${QUOTE}"', 'SELECT "it\'s"'),
        ("SELECT `${TICK}`", "SELECT `a``b`"),
        ("-- ${MISSING}\nSELECT 1 /* ${MISSING} */", "-- ${MISSING}\nSELECT 1 /* ${MISSING} */"),
        ("SELECT * FROM kafka://${BROKERS}/t", "SELECT * FROM kafka://a:1,b:2/t"),
        ("SELECT * FROM postgres://u:${SPACE}@h/d", "SELECT * FROM postgres://u:a%20b%3B@h/d"),
        ("SELECT '$' || '${}' || '${a b}'", "SELECT '$' || '${}' || '${a b}'"),
        ("SELECT '${EMPTY:-x}${EMPTY}'", "SELECT 'x'"),
    ],
)
def test_variables(text: str, expanded: str) -> None:
    env = {"A": "1", "QUOTE": "it's", "TICK": "a`b", "BROKERS": "a:1,b:2", "SPACE": "a b;", "EMPTY": ""}
    script = Script.of(text, env)
    assert script.expanded == expanded
    assert script.errors == ()


def test_a_missing_variable_is_an_error_at_its_place_and_breaks_only_its_statement() -> None:
    parsed = parse("SELECT 1;\nSELECT '${NOPE}', ${ALSO:?tell me};\nSELECT 2", {})
    assert len(parsed.statements) == 2
    first, second = parsed.errors
    assert '"NOPE"' in first.message
    assert (first.line, first.column) == (2, 9)
    assert '"ALSO"' in second.message
    assert "tell me" in second.message


def test_places_are_those_of_the_original() -> None:
    text = "SELECT '${LONG}', a FROM t WHERE b == == c"
    (error,) = parse(text, {"LONG": "x" * 100}).errors
    assert error.column == text.index("== c") + 1
    assert error.place is not None
    assert error.place.text == text


def test_statements_know_their_original_text() -> None:
    parsed = parse("SELECT '${A}' ; -- end\n SELECT 2 /* x */ ;", {"A": "secret"})
    assert [s.text for s in parsed.statements] == ["SELECT '${A}'", "SELECT 2"]
    second = parsed.statements[1]
    assert second.place is not None
    assert (second.place.line, second.place.column) == (2, 2)


def test_secrets_are_masked() -> None:
    script = Script.of("SELECT '${PW}', '${FLAG}', '${D:-open}'", {"PW": "hunter2", "FLAG": "1"})
    assert script.secrets == {"hunter2", "1"}
    assert script.mask("login hunter2 failed 1 time, open") == "login ${PW} failed 1 time, open"


def test_strings_as_in_spark() -> None:
    (select,) = parse("SELECT 'it''s', \"a\"\"b\", 'x\\'y', r'\\d', 'a\\nb'").require()
    assert isinstance(select, Select)
    assert [e.name for e in select.query.expression.expressions] == ["it's", 'a"b', "x'y", "\\d", "a\nb"]
