"""'on.conflict' = 'error': INSERT of a key that is there, or that comes twice, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millpond import App, Error, Table
from millpond.errors import Conflict, DuplicateKey, InvalidOption

SQL = """
CREATE TABLE item (id INT PRIMARY KEY, name STRING) WITH ('on.conflict' = 'error');
CREATE TABLE pair (a INT, b STRING, n INT, PRIMARY KEY (a, b)) WITH ('on.conflict' = 'error');
CREATE TABLE loose (id INT PRIMARY KEY, name STRING) WITH ('on.conflict' = 'upsert');
INSERT INTO item VALUES (1, 'one'), (2, 'two');
INSERT INTO pair VALUES (1, 'x', 1);
"""


@pytest.fixture
def app() -> Iterator[App]:
    with App(SQL) as app:
        yield app


def items(app: App) -> dict[int, str]:
    return {r["id"]: r["name"] for r in app.table("item").all_rows()}


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "INSERT INTO item VALUES (3, 'three'), (2, 'TWO')",
            'the key id = 2 is there already in table "item"',
        ),
        (
            "INSERT INTO item VALUES (3, 'a'), (4, 'b'), (3, 'c')",
            'the key id = 3 comes twice in table "item"',
        ),
        ("INSERT INTO item SELECT id + 1, name FROM item", 'the key id = 2 is there already in table "item"'),
        ("INSERT INTO item SELECT 7, name FROM item", 'the key id = 7 comes twice in table "item"'),
        ("INSERT INTO pair VALUES (1, 'y', 2), (1, 'x', 2)", "the key a = 1, b = 'x' is there already"),
    ],
)
def test_a_statement_fails_whole(app: App, statement: str, message: str) -> None:
    with pytest.raises(DuplicateKey) as e:
        app.sql(statement)
    assert message in str(e.value)
    assert (e.value.line, e.value.code) == (1, "duplicate_key")
    assert items(app) == {1: "one", 2: "two"}
    assert len(app.table("pair")) == 1


def test_new_keys_are_taken(app: App) -> None:
    assert app.sql("INSERT INTO item VALUES (3, 'three'), (4, 'four')").count == 2
    app.sql("DELETE FROM item WHERE id = 3")
    app.sql("INSERT INTO item VALUES (3, 'again')")
    assert items(app) == {1: "one", 2: "two", 3: "again", 4: "four"}


def test_what_is_not_an_insert_still_changes_rows(app: App) -> None:
    app.sql("UPDATE item SET name = 'ONE' WHERE id = 1")
    app.sql("UPSERT INTO item SELECT 2, 'TWO' ON item.id = 2")
    app.sql("MERGE INTO item USING loose ON item.id = loose.id WHEN MATCHED THEN DELETE")
    assert items(app) == {1: "ONE", 2: "TWO"}


def test_the_default_replaces(app: App) -> None:
    app.sql("INSERT INTO loose VALUES (1, 'a'), (1, 'b')")
    app.table("loose").insert({"id": 1, "name": "c"})
    assert app.table("loose").all_rows() == [{"id": 1, "name": "c"}]


@pytest.mark.parametrize("alone", [True, False])
def test_methods_of_a_table(app: App, alone: bool) -> None:
    table = (
        Table("id INT PRIMARY KEY, name STRING", name="item", options={"on.conflict": "error"})
        if alone
        else app.table("item")
    )
    if alone:
        table.bulk_insert([{"id": 1, "name": "one"}, {"id": 2, "name": "two"}])
    with pytest.raises(DuplicateKey, match='id = 2 is there already in table "item"'):
        table.insert({"id": 2, "name": "x"})
    with pytest.raises(DuplicateKey, match="id = 2 is there already"):
        table.bulk_insert([{"id": 3}, {"id": 2}])
    with pytest.raises(DuplicateKey, match="id = 5 comes twice"):
        table.bulk_insert(pa.table({"id": [5, 6, 5]}))
    table.insert({"id": 3, "name": "three"})
    table.update("id = 1", {"name": "ONE"})
    assert {r["id"]: r["name"] for r in table.all_rows()} == {1: "ONE", 2: "two", 3: "three"}


def test_inside_a_transaction(app: App) -> None:
    with app.begin_transaction() as tx:
        tx.sql("INSERT INTO item VALUES (3, 'three')")
        with pytest.raises(DuplicateKey):
            tx.sql("INSERT INTO item VALUES (3, 'again')")
        with pytest.raises(DuplicateKey):
            tx.table("item").insert({"id": 1})
        tx.sql("DELETE FROM item WHERE id = 1")
        tx.table("item").insert({"id": 1, "name": "new"})
    assert items(app) == {1: "new", 2: "two", 3: "three"}


def test_two_transactions_insert_one_key(app: App) -> None:
    one, two = app.begin_transaction(), app.begin_transaction()
    for tx, name in ((one, "first"), (two, "second")):
        tx.sql("INSERT INTO item VALUES (9, ?)", [name])
    one.commit()
    with pytest.raises(Conflict):
        two.commit()
    assert items(app)[9] == "first"


def test_a_block_fails_whole(app: App) -> None:
    with pytest.raises(DuplicateKey):
        app.sql("BEGIN; INSERT INTO item VALUES (3, 'three'); INSERT INTO item VALUES (1, 'x'); COMMIT;")
    assert items(app) == {1: "one", 2: "two"}


def test_after_a_restart(tmp_path: Path) -> None:
    with App(SQL, state=tmp_path / "state"):
        pass
    with App(SQL, state=tmp_path / "state") as app:
        with pytest.raises(DuplicateKey):
            app.table("item").insert({"id": 1})
        assert items(app) == {1: "one", 2: "two"}


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (id INT) WITH ('on.conflict' = 'error')",
        "CREATE TABLE t (id INT PRIMARY KEY) WITH ('on.conflict' = 'ignore')",
    ],
)
def test_wrong_uses(app: App, statement: str) -> None:
    with pytest.raises(InvalidOption):
        app.sql(statement)
    with pytest.raises(Error):
        Table("id INT", options={"on.conflict": "error"})


@pytest.mark.usefixtures("spark")
def test_a_running_insert_puts_the_row_aside_or_stops(app: App) -> None:
    app.sql("CREATE STREAM arriving (id INT, name STRING)")
    app.sql("INSERT INTO item SELECT id, name FROM arriving WITH ('query.name' = 'aside')")
    app.send("arriving", [{"id": 2, "name": "x"}, {"id": 3, "name": "three"}, {"id": 3, "name": "y"}])
    app.drain()
    assert items(app) == {1: "one", 2: "two", 3: "three"}
    assert [r["seq"] for r in app.sql("SELECT seq FROM aside$errors").rows()] == [0, 2]
    app.sql("DROP QUERY aside; DELETE FROM item WHERE id = 3; DROP STREAM arriving")
    app.sql("CREATE STREAM arriving (id INT, name STRING)")
    app.sql("INSERT INTO item SELECT id, name FROM arriving WITH ('on.error' = 'fail')")
    app.send("arriving", [{"id": 3, "name": "three"}, {"id": 4, "name": "four"}])
    app.drain()
    app.send("arriving", [{"id": 5, "name": "five"}, {"id": 3, "name": "x"}])
    with pytest.raises(DuplicateKey, match="id = 3 is there already"):
        app.drain()
    assert items(app) == {1: "one", 2: "two", 3: "three", 4: "four"}
