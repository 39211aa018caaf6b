"""Mistakes as people make them: the caret is at the word, and the hint offers what can be meant."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond import App, Error

SQL = """
CREATE STREAM orders (id BIGINT, sku STRING, qty INT);
CREATE TABLE items (sku STRING PRIMARY KEY, name STRING, price DECIMAL(10, 2));
CREATE VIEW cheap AS SELECT * FROM items WHERE price < 1;
"""


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with App(SQL) as app:
        yield app


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT * FROM ^oders^", 'did you mean "orders"? If not, declare it first with CREATE STREAM'),
        ("SELECT * FROM ^oders^", "or read a Kafka topic with kafka_topic('oders')"),
        (
            "SELECT * FROM ^xyzzy^",
            "declare it first with CREATE STREAM or CREATE TABLE, or read a Kafka topic",
        ),
        ("SELECT * FROM ^`what is it`^", "declare it first with CREATE STREAM or CREATE TABLE"),
        ("CREATE TABLE xyzzy2 AS SELECT * FROM ^xyzzy1^", "declare it first"),
        ("CREATE VIEW xyzzy2 AS SELECT * FROM ^xyzzy1^", "declare it first"),
        ("CREATE MATERIALIZED VIEW xyzzy2 AS SELECT * FROM ^xyzzy1^", "declare it first"),
        ("CREATE STREAM xyzzy2 AS SELECT * FROM ^xyzzy1^", "kafka_topic('xyzzy1')"),
        ("CREATE TABLE xyzzy AS SELECT * FROM ^xyzzy^", "kafka_topic('xyzzy')"),
        ("SELECT o.sku FROM orders o JOIN ^itms^ i ON i.sku = o.sku", 'did you mean "items"?'),
        ("SELECT i.^nam^ FROM items i", 'did you mean "name"?'),
        ("SELECT ^x^.name FROM items i", "its inputs: i"),
        ("SELECT ^x^.* FROM items itm", None),
        ("SELECT ^uper^(name) FROM items", 'did you mean "upper"?'),
        ("UPDATE items SET ^prise^ = 3", 'did you mean "price"?'),
        ("DELETE FROM ^item^", 'did you mean "items"?'),
        ("INSERT INTO items (sku, ^nme^) VALUES ('a', 'b')", 'did you mean "name"?'),
        ("CREATE TABLE t (id INT, PRIMARY KEY (^idd^))", 'did you mean "id"?'),
        ("SELECT name FROM items ^EMIT FINAL^", "add WINDOW"),
        ("DROP TABLE ^items^", "DROP TABLE items CASCADE"),
        ("CREATE TABLE ^items^ (id INT)", "DROP TABLE items first"),
    ],
)
def test_the_word_and_the_hint(app: App, text: str, hint: str | None) -> None:
    before, word, after = text.split("^")
    with pytest.raises(Error) as caught:
        app.sql(before + word + after)
    found = caught.value
    assert found.place is not None
    assert (found.line, found.column, found.place.length) == (1, len(before) + 1, len(word))
    assert hint is None or hint in str(found.hint)
    assert "xyzzy2" not in str(found.hint)


def test_a_word_among_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,qty,name\n1,5,x\n2,n/a,y\n3,7,3\n4,-1.5,z\n")
    with App() as app, caplog.at_level(logging.WARNING, "millpond"):
        app.sql(f"CREATE TABLE t AS SELECT * FROM file://{file} WITH ('refresh' = 'once')")
        told = [r.getMessage() for r in caplog.records if "null.value" in r.getMessage()]
        assert len(told) == 1 and 'column "qty" is STRING' in told[0] and "'null.value' = 'n/a'" in told[0]
        app.sql(
            f"CREATE TABLE u AS SELECT * FROM file://{file} WITH ('refresh' = 'once', 'null.value' = 'n/a')"
        )
        assert app.sql("SELECT SUM(qty) AS n, COUNT(qty) AS c FROM u").to_arrow().to_pylist()[0]["c"] == 3
        with pytest.raises(Error, match="is not a INT") as caught:
            app.sql(
                f"CREATE TABLE v (id INT, qty INT) AS SELECT id, qty FROM file://{file}"
                " WITH ('refresh' = 'once', 'on.error' = 'fail')"
            )
        assert "'null.value' = 'n/a'" in str(caught.value.hint)
