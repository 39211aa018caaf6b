"""Tables of an app that live in a database: every way to change and to read them, and what may change together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from millpond import App, Error
from millpond.changes import Changes
from millpond.errors import AlreadyExists, Conflict, InvalidRecord, NotSupported
from millpond.testing.crash import crash
from tests.contract.places import OUTSIDE, Places


@pytest.fixture(params=OUTSIDE)
def options(request: pytest.FixtureRequest, places: Places) -> str:
    """WITH (…) of tables that live together."""
    place = places.new(request.param)
    settings = {"extension": place.backend, **place.settings}
    return "WITH (" + ", ".join(f"'{k}' = '{v}'" for k, v in settings.items()) + ")"


@pytest.fixture
def app(options: str, tmp_state: Path) -> Iterator[App]:
    text = f"""
        CREATE TABLE users (id BIGINT PRIMARY KEY, name STRING, tier STRING, spent DECIMAL(10,2)) {options};
        CREATE TABLE log (at INT, what STRING) {options};
        CREATE TABLE plain (id BIGINT PRIMARY KEY, name STRING);
        INSERT INTO users VALUES (1, 'Ann', 'GOLD', 10.50), (2, 'Bob', 'IRON', 2.25), (3, 'Cid', 'GOLD', 0.10);
    """
    with App(text, state=tmp_state) as app:
        yield app


def test_the_table_api(app: App) -> None:
    users = app.table("users")
    users.insert({"id": 4, "name": "Dee", "tier": "IRON", "spent": "7.00"})
    assert users.bulk_insert([{"id": 5, "name": "Eve"}, {"id": 6, "name": "Fay"}]) == 2
    assert len(users) == 6
    assert users.get_record(4)["name"] == "Dee" and users.get_record(99) is None
    assert users.contains(1) and not users.contains(99) and users.contains(tier="GOLD")
    assert [r["id"] for r in users.find("spent > 5 AND tier = 'GOLD'")] == [1]
    assert [r["id"] for r in users.find(tier=None)] == [5, 6]
    assert users.update("tier = 'IRON'", "spent = spent * 2") == 2
    assert users.update({"id": 1}, {"name": "Anna"}) == 1
    assert users.bulk_update([{"id": 5, "tier": "GOLD"}, {"id": 77, "tier": "GOLD"}]) == 1
    assert users.delete(6) == 1 and users.bulk_delete([5, 99]) == 1
    assert users.sql_scalar("SUM(spent)") is not None
    assert str(users.sql_scalar("SUM(spent)")) == "29.10"
    assert users.sql_column_values("name", "tier = 'GOLD'") == ["Anna", "Cid"]
    assert [r["id"] for r in users.query_batch(2)] == [1, 2]
    assert [r["id"] for r in users.query_batch(2, 2)] == [3, 4]
    assert users.clone().sql_scalar("COUNT(*)") == 4
    assert users.get_stats().rows == 4
    assert users.health_check().status == "healthy"


def test_a_record_by_its_key_is_what_a_scan_gives(app: App, options: str) -> None:
    app.sql(
        f"""
        CREATE TABLE one (a INT, b STRING, t BOOLEAN, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(20,3), day DATE,
          at TIMESTAMP, local TIMESTAMP_NTZ, i INTERVAL DAY TO SECOND, PRIMARY KEY (a, b)) {options};
        """
    )
    noon = datetime(2024, 5, 6, 7, 8, 9, 1)
    odd = 1e300 if "every_float" not in app.table("one")._backend.abilities else float("nan")
    values = {
        "t": [True, False],
        "l": [2**63 - 1, -1],
        "f": [0.5, -1.25],
        "d": [odd, 0.1],
        "m": ["12.5", "-0.001"],
        "day": [date(1, 1, 1), date(9999, 12, 31)],
        "at": [noon.replace(tzinfo=UTC), None],
        "local": [datetime(1900, 1, 1), noon],
        "i": [timedelta(days=1), timedelta(days=-3, microseconds=1)],
    }
    one = app.table("one")
    one.bulk_insert(
        [
            {"a": 1, "b": "x", **{name: v[0] for name, v in values.items()}},
            {"a": 2, "b": "", **{name: v[1] for name, v in values.items()}},
            {"a": 3, "b": 'ž"\\'},
        ]
    )
    rows = one.all_rows()
    assert len(rows) == 3
    for row in rows:
        assert repr(one.get_record((row["a"], row["b"]))) == repr(row)
        assert one.contains((row["a"], row["b"])) and not one.contains((row["a"], "other"))
    with pytest.raises(InvalidRecord):
        one.get_record((2**40, "x"))


def test_standalone_statements(app: App) -> None:
    assert app.sql("UPDATE users SET spent = spent + 1 WHERE tier = 'GOLD'").count == 2
    assert app.sql("DELETE FROM users WHERE id = 2").count == 1
    assert app.sql("INSERT INTO plain SELECT id, name FROM users").count == 2
    app.sql("INSERT INTO users SELECT id + 10, name, 'NEW', 0 FROM plain")
    app.sql(
        "MERGE INTO users USING plain p ON users.id = p.id WHEN MATCHED THEN UPDATE SET name = upper(users.name)"
    )
    app.sql("INSERT INTO log VALUES (1, 'a'), (1, 'a'), (2, 'b')")
    assert app.sql("UPDATE log SET what = 'z' WHERE at = 1").count == 2
    assert app.sql("DELETE FROM log WHERE at = 2").count == 1
    rows = app.sql("SELECT id, name, spent FROM users ORDER BY id").rows()
    assert [(r["id"], r["name"], str(r["spent"])) for r in rows] == [
        (1, "ANN", "11.50"),
        (3, "CID", "1.10"),
        (11, "Ann", "0.00"),
        (13, "Cid", "0.00"),
    ]
    assert app.sql("SELECT * FROM log").rows() == [{"at": 1, "what": "z"}] * 2
    joined = app.sql("SELECT u.id FROM users u JOIN plain p ON u.id = p.id WHERE u.tier = 'GOLD'").rows()
    assert sorted(r["id"] for r in joined) == [1, 3]
    assert app.sql("TRUNCATE TABLE log").count == 2
    with pytest.raises(Error):
        app.sql("UPDATE users SET spent = 1 / 0")
    assert len(app.table("users")) == 4


def test_a_transaction_of_one_database(app: App) -> None:
    app.sql("BEGIN; UPDATE users SET spent = 0 WHERE id = 1; INSERT INTO log VALUES (1, 'zero'); COMMIT;")
    assert len(app.table("log")) == 1
    app.sql("BEGIN; DELETE FROM users; ROLLBACK;")
    assert len(app.table("users")) == 3
    with app.begin_transaction() as tx:
        tx.sql("UPDATE users SET tier = 'X' WHERE id = 1")
        assert tx.table("users").get_record(1)["tier"] == "X"
        assert app.table("users").get_record(1)["tier"] == "GOLD"
        tx.table("log").insert({"at": 2, "what": "x"})
        assert tx.table("log").sql_scalar("COUNT(*)") == 2
    assert app.table("users").get_record(1)["tier"] == "X" and len(app.table("log")) == 2


def test_the_first_committer_wins(app: App) -> None:
    first, second, third = (app.begin_transaction() for _ in range(3))
    for each in (first, second):
        each.sql("UPDATE users SET spent = spent + 1 WHERE id = 1")
    third.sql("UPDATE users SET spent = spent + 1 WHERE id = 3")
    first.commit()
    with pytest.raises(Conflict):
        second.commit()
    third.commit()
    assert [str(r["spent"]) for r in app.sql("SELECT spent FROM users ORDER BY id").rows()] == [
        "11.50",
        "2.25",
        "1.10",
    ]


def test_a_transaction_reads_one_moment(app: App) -> None:
    with app.begin_transaction() as tx:
        assert tx.table("users").sql_scalar("COUNT(*)") == 3
        app.sql("DELETE FROM users WHERE id = 2")
        assert tx.sql("SELECT COUNT(*) AS n FROM users").rows() == [{"n": 3}]
    assert len(app.table("users")) == 2


def test_tables_of_two_places_do_not_change_together(app: App) -> None:
    with pytest.raises(NotSupported, match=r"plain.*journal.*users|users.*plain.*journal"):
        app.sql("BEGIN; UPDATE users SET tier = 'X'; UPDATE plain SET name = 'X'; COMMIT;")
    with pytest.raises(NotSupported, match="one commit cannot change"), app.begin_transaction() as tx:
        tx.sql("UPDATE users SET tier = 'X'")
        tx.sql("INSERT INTO plain VALUES (1, 'x')")
    assert app.table("users").find(tier="X") == [] and len(app.table("plain")) == 0


def test_what_a_running_statement_changes_is_in_one_place(app: App, options: str) -> None:
    app.sql("CREATE STREAM s (id BIGINT, name STRING); CREATE TABLE bad (reason STRING)")
    for statement in (
        "INSERT INTO users SELECT id, name, 'X', 0 FROM s ERROR INTO bad",
        "BEGIN; INSERT INTO users SELECT id, name, 'X', 0 FROM s; INSERT INTO plain SELECT id, name FROM s; COMMIT",
    ):
        with pytest.raises(NotSupported, match=r"one commit cannot|crash in between"):
            app.sql(statement)
    with pytest.raises(NotSupported, match="a stream"):
        app._runtime.store.commit(
            {"users": Changes(app.table("users").to_arrow())}, sent={"s": app.table("plain").to_arrow()}
        )


def test_on_conflict_is_kept(app: App, options: str) -> None:
    strict = options[:-1] + ", 'on.conflict' = 'error')"
    app.sql(f"CREATE TABLE once (id INT PRIMARY KEY, v STRING) {strict}; INSERT INTO once VALUES (1, 'a')")
    with pytest.raises(Error, match="there already"):
        app.sql("INSERT INTO once VALUES (2, 'b'), (1, 'c')")
    assert app.sql("SELECT * FROM once").rows() == [{"id": 1, "v": "a"}]


def test_rows_are_there_after_a_restart_and_statements_run_once(options: str, tmp_state: Path) -> None:
    text = f"""
        CREATE TABLE t (id INT PRIMARY KEY, v STRING) {options};
        CREATE TABLE log (v STRING) {options};
        INSERT INTO log VALUES ('once');
        INSERT INTO t VALUES (1, 'a');
    """
    with App(text, state=tmp_state) as app:
        app.sql("UPDATE t SET v = 'b'")
        app.table("log").insert({"v": "more"})
    with App(text, state=tmp_state) as app:
        assert app.sql("SELECT * FROM t").rows() == [{"id": 1, "v": "b"}]
        assert app.sql("SELECT * FROM log").rows() == [{"v": "once"}, {"v": "more"}]
        app.sql("DROP TABLE t")
        with pytest.raises(Error):
            app.table("t")
    with App(state=tmp_state) as app:
        app.sql(f"CREATE TABLE t (id INT PRIMARY KEY, v STRING) {options}")
        assert len(app.table("t")) == 0
        with pytest.raises(AlreadyExists):
            app.sql(f"CREATE TABLE t (id INT PRIMARY KEY) {options}")


def test_a_statement_is_not_repeated_if_the_journal_did_not_hear_of_it(options: str, tmp_state: Path) -> None:
    """The database has committed, and the process ends before the journal notes it."""
    text = f"CREATE TABLE log (v STRING) {options}; INSERT INTO log VALUES ('once');"
    app = App(f"CREATE TABLE log (v STRING) {options};", state=tmp_state)
    app._runtime.journal.commit, keep = (
        (lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt)),
        app._runtime.journal.commit,
    )
    app._runtime.text.in_file = True
    with pytest.raises(KeyboardInterrupt):
        app.sql("INSERT INTO log VALUES ('once')")
    app._runtime.journal.commit = keep
    crash(app)
    for _ in range(2):
        with App(text, state=tmp_state) as app:
            assert app.sql("SELECT * FROM log").rows() == [{"v": "once"}]


def test_a_load_goes_on_where_it_was_and_is_done_again_when_the_file_changes(
    options: str, tmp_state: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,v\n1,a\n2,b\n")
    text = f"CREATE TABLE t {options} AS SELECT * FROM 'file://{source}'".replace(
        options, options[:-1] + ", 'primary.key' = 'id')"
    )
    with App(text, state=tmp_state) as app:
        assert len(app.table("t")) == 2
        app.sql("DELETE FROM t WHERE id = 1")
    with App(text, state=tmp_state) as app:
        assert len(app.table("t")) == 1
    source.write_text("id,v\n7,x\n8,y\n9,z\n")
    with App(text, state=tmp_state) as app:
        app.drain()
        assert sorted(r["id"] for r in app.table("t").all_rows()) == [7, 8, 9]


def test_running_statements_write_rows_and_position_together(
    options: str, tmp_state: Path, spark: object
) -> None:
    text = f"""
        CREATE STREAM orders (id BIGINT, sku STRING, qty INT);
        CREATE TABLE items (sku STRING PRIMARY KEY, name STRING) {options};
        CREATE TABLE latest (sku STRING PRIMARY KEY, id BIGINT, name STRING) {options};
        CREATE TABLE log (id BIGINT) {options};
        CREATE TABLE sums {options} AS SELECT sku, COUNT(*) AS n, SUM(qty) AS qty FROM orders GROUP BY sku;
        INSERT INTO latest SELECT o.sku, o.id, i.name FROM orders o LEFT JOIN items i ON o.sku = i.sku;
        INSERT INTO log SELECT id FROM orders;
        INSERT INTO items VALUES ('a', 'Apple'), ('b', 'Bread');
    """

    def check(app: App, count: int) -> None:
        app.drain()
        rows = [(i, ["a", "b", None][i % 3], i) for i in range(count)]
        names = {"a": "Apple", "b": "Bread", None: None}
        latest = {sku: i for i, sku, _ in rows if sku}
        assert {(r["sku"], r["id"], r["name"]) for r in app.table("latest")} == {
            (sku, i, names[sku]) for sku, i in latest.items()
        }
        assert [r["id"] for r in app.table("log")] == list(range(count))
        assert {(r["sku"], r["n"], r["qty"]) for r in app.table("sums")} == {
            (s, len(of := [q for _, sku, q in rows if sku == s]), sum(of)) for s in ("a", "b", None)
        }

    def send(app: App, start: int, end: int) -> None:
        app.send("orders", [{"id": i, "sku": ["a", "b", None][i % 3], "qty": i} for i in range(start, end)])

    # A NULL is no key of a table that is declared, but one of a live aggregate's groups.
    text = text.replace(
        "FROM orders o LEFT JOIN items i ON o.sku = i.sku",
        "FROM orders o LEFT JOIN items i ON o.sku = i.sku WHERE o.sku IS NOT NULL",
    )
    app = App(text, state=tmp_state)
    send(app, 0, 30)
    check(app, 30)
    crash(app)
    app = App(text, state=tmp_state)
    check(app, 30)
    send(app, 30, 60)
    check(app, 60)
    app.close()
    with App(text, state=tmp_state) as app:
        check(app, 60)
        assert app._runtime.journal.position("table:sums") is None
        assert app._runtime.store.position("table:sums") is not None
        app.sql("DROP TABLE sums")
        app.sql("DROP TABLE log CASCADE")
