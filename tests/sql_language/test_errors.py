"""Mistakes: the message, the place, the hint, and going on behind them."""

from __future__ import annotations

import pytest

from millpond.errors import CheckFailed, SqlError, SqlSyntaxError, UnknownName
from millpond.sql.parse import parse, parse_condition, parse_one_statement


def only_error(text: str) -> SqlError:
    parsed = parse(text, {})
    assert len(parsed.errors) == 1, parsed
    return parsed.errors[0]


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        # names
        ("CREATE TABLE '' (a INT)", "''", "the name of a table cannot be empty"),
        ("CREATE TABLE `  ` (a INT)", "`  `", "the name of a table cannot be empty"),
        ("CREATE TABLE a-b (a INT)", "a-b", '"a-b" cannot be the name of a table'),
        ("CREATE TABLE `a://b` (a INT)", "`a://b`", '"a://b" cannot be the name of a table'),
        ("CREATE TABLE 1t (a INT)", "1t", '"1t" cannot be the name of a table'),
        ("CREATE STREAM 1t (a INT)", "1t", '"1t" cannot be the name of a stream'),
        ("CREATE TABLE db.t (a INT)", ".", "the name of a table has one part, without dots"),
        # what is left over or missing
        ("SELECT a FROM t x y", "y", '"y" is not expected here'),
        ("DROP TABLE t FOO", "FOO", '"FOO" is not expected here'),
        ("SELECT a FROM t LIMIT 10 20", "20", '"20" is not expected here'),
        ("SELECT a FROM t FOR UPDATE", "FOR", '"FOR" is not expected here'),
        ("SELECT a INTO x FROM t", "INTO", '"INTO" is not expected here'),
        ("SELECT FROM t", "FROM", 'expected what to select, found "FROM"'),
        ("SELECT a,, b FROM t", ", b", 'expected something after ",", found ","'),
        ("SELECT a, FROM t", "FROM", 'expected something after ",", found "FROM"'),
        ("SELECT a FROM t ORDER a", "a", 'expected BY, found "a"'),
        ("SELECT (a FROM t", "(", '"(" is never closed'),
        ("SELECT a) FROM t", ")", '")" closes nothing'),
        ("SELECT CAST(a AS FOO) FROM t", "FOO", 'expected a type, found "FOO"'),
        ("SELECT 'abc FROM t", "'abc", "this string is never closed"),
        ("SELECT /* abc", "/*", "this comment is never closed"),
        ("SELECT a FROM :t", ":t", "a parameter stands for a value, not for a name"),
        ("SELECT * FROM 'orders'", "'orders'", "\"'orders'\" is neither a name nor a URI"),
        # columns
        ("CREATE TABLE t (a INT, A INT)", "A INT)", 'column "A" is declared twice'),
        ("CREATE TABLE t (a DECIMAL(50,2))", "DECIMAL(50,2)", "DECIMAL(50,2) is not a type"),
        ("CREATE STREAM s (a INT, PRIMARY KEY (a))", "(a INT", "a stream has no primary key"),
        # clauses of ours
        ("SELECT 1 FROM s WINDOW TUMBLING(5x)", "5x", '"5x" is not a length of time'),
        ("SELECT 1 FROM s WINDOW TUMBLNG(5m)", "TUMBLNG", '"TUMBLNG" is not a kind of window'),
        ("SELECT 1 FROM s WINDOW HOPPING(5m)", "HOPPING", "HOPPING takes a size and a slide: (10m, 2m)"),
        ("SELECT * FROM t WITH (a = b c)", "c)", 'expected "," or ")", found "c"'),
        ("INSERT INTO t VALUES (1), (1, 2)", ")", "row 2 of VALUES has 2 values, but the first has 1"),
        ("UPDATE t SET x.a = 1", "x.a", '"x.a" is not a column of "t"'),
        ("DELETE t WHERE a", "t", 'expected FROM, found "t"'),
        ("SELECT UPPER(a, 3) FROM t", "UPPER", "UPPER takes 1 argument, here are 2"),
        ("SELECT ROUND() FROM t", "ROUND", "ROUND takes 1 or 2 arguments, here are none"),
        ("SELECT LISTAGG(a, b, c)", "LISTAGG", "LISTAGG takes 1 or 2 arguments, here are 3"),
        ("SELECT SUBSTRING(a) FROM t", "SUBSTRING", "SUBSTRING takes 2 or 3 arguments, here is 1"),
        ("SELECT MAP(1, 2, 3) FROM t", "MAP", "MAP takes an even number of arguments, here are 3"),
        ("SELECT DATEADD(EON, 1, a) FROM t", "EON", "EON is not a unit"),
        ("SELECT a + FROM t", "FROM", 'expected a value, found "FROM"'),
        ("SELECT a IS NULL IS NULL FROM t", "NULL FROM", '"NULL" is not expected here'),
        ("SELECT 300Y FROM t", "300Y", '"300Y" is out of the range of its type'),
    ],
)
def test_message_and_place(text: str, at: str, message: str) -> None:
    error = only_error(text)
    assert isinstance(error, SqlSyntaxError)
    assert error.message == message
    assert error.column is not None
    assert text[error.column - 1 :].startswith(at)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM",
        "SELECT * FROM t WHERE",
        "SELECT * FROM t WHERE a >",
        "SELECT a FROM t JOIN u ON",
        "SELECT a FROM b AS",
        "SELECT a FROM t UNION",
        "SELECT CASE WHEN a THEN b",
        "INSERT INTO t",
        "UPDATE t SET a =",
        "MERGE INTO t USING s ON a = b",
        "UPSERT INTO t SELECT a FROM s",
        "CREATE TABLE t",
        "SELECT * FROM s EMIT",
        "DELETE FROM t RETURNING a",
        "EXPLAIN",
        "STOP QUERY",
    ],
)
def test_an_unfinished_statement_is_told_at_its_end(text: str) -> None:
    error = only_error(text)
    assert error.column == len(text) + 1
    assert "ends here" in error.message or "missing" in error.message or "not complete" in error.message


def test_options_stand_last() -> None:
    error = only_error("SELECT a FROM t WITH ('watch' = 'false') LIMIT 1")
    assert error.hint == "WITH (…) stands last, after LIMIT"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELCT 1", 'did you mean "SELECT"?'),
        ("SET x = 1", "options stand in the WITH ('…' = '…') of a statement"),
        ("CREATE TABEL t (a INT)", 'did you mean "TABLE"?'),
        ("CREATE TABLE t (a STRNG)", 'did you mean "STRING"?'),
        ("CREATE TABLE t (abc INT, PRIMARY KEY (abd))", 'did you mean "abc"?'),
    ],
)
def test_unknown_names_offer_the_nearest(text: str, hint: str) -> None:
    error = only_error(text)
    assert isinstance(error, UnknownName)
    assert error.hint == hint


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT a FROM t WHRE a = 1", "WHERE"),
        ("SELECT a FROM t GROPU BY a", "GROUP"),
        ("SHOW TABELS", "TABLES"),
    ],
)
def test_misspelled_clauses(text: str, word: str) -> None:
    hint = only_error(text).hint
    assert hint is not None
    assert f'did you mean "{word}"' in hint


def test_the_line_and_its_caret() -> None:
    error = only_error("SELECT a,\n\t b FROM t\nWHERE c ==== 3")
    assert str(error) == '3:11: expected a value, found "=="\n  WHERE c ==== 3\n            ^^'


def test_every_broken_statement_is_reported_and_the_others_are_read() -> None:
    parsed = parse("SELECT 1; SELCT 2; SELECT b FROM; SELECT 3; CREATE FOO x; SELECT 'open")
    assert [st.text for st in parsed.statements] == ["SELECT 1", "SELECT 3"]
    assert len(parsed.errors) == 4
    assert [e.column for e in parsed.errors] == sorted(e.column or 0 for e in parsed.errors)
    with pytest.raises(CheckFailed) as failed:
        parsed.require()
    assert len(failed.value.errors) == 4


def test_no_statement_is_no_error() -> None:
    for text in ("", " ;; ;", "-- only a comment", "/* a */"):
        parsed = parse(text)
        assert (parsed.statements, parsed.errors) == ((), ())


def test_one_statement_and_conditions() -> None:
    with pytest.raises(SqlSyntaxError, match="found 2"):
        parse_one_statement("SELECT 1; SELECT 2")
    with pytest.raises(SqlSyntaxError, match="found 0"):
        parse_one_statement("")
    with pytest.raises(SqlSyntaxError, match="never closed"):
        parse_condition("a = 'x")
    with pytest.raises(SqlSyntaxError, match="not expected"):
        parse_condition("a = 1 b")
    with pytest.raises(SqlSyntaxError, match="expected a condition"):
        parse_condition("")


def test_deep_nesting_is_an_error_and_not_a_crash() -> None:
    error = only_error("SELECT " + "(" * 5000 + "1" + ")" * 5000)
    assert "nested" in error.message


def test_what_the_tokenizer_cannot_read_harms_only_its_statement() -> None:
    parsed = parse("SELECT 1; SELECT X'zz'; SELECT * FROM kafka://x WHERE a; SELCT")
    assert [st.text for st in parsed.statements] == ["SELECT 1", "SELECT * FROM kafka://x WHERE a"]
    assert [e.column for e in parsed.errors] == [11, 58]
