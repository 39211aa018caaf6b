"""A changed file where something would go wrong silently: it is refused, asked for, or done right."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from millpond import App
from millpond.errors import Error, StateForeign, UpgradeNeeded

S = "CREATE STREAM s (id INT, x INT);\n"


def opened(text: str, state: Path, **more: Any) -> App:
    return App(text, state=state, _direct=True, engine="process", **more)


def send(app: App) -> None:
    app.send("s", [{"id": 1, "x": 1}, {"id": 1, "x": 2}, {"id": 2, "x": -5}])
    app.drain()


def rows(app: App, name: str) -> list[tuple[Any, ...]]:
    app.drain()
    return sorted((tuple(r.values()) for r in app.sql(f"SELECT * FROM {name}").rows()), key=repr)


def explained(app: App, text: str, folder: Path) -> dict[str, dict[str, Any]]:
    (folder / "new.sql").write_text(text)
    return {r["name"]: r for r in app.sql(f"EXPLAIN UPGRADE '{folder / 'new.sql'}'").rows()}


D = "CREATE STREAM d AS SELECT id, x FROM s WHERE x > 0; CREATE VIEW vd AS SELECT id, x FROM d;"
INTO = "CREATE TABLE m (id INT, x INT); INSERT INTO m SELECT id, x FROM"
GROUPS = "CREATE TABLE g AS SELECT id, COUNT(*) AS n, SUM(x) AS z FROM s GROUP BY id;"
C = S + GROUPS + "CREATE STREAM c AS SELECT id, n FROM g EMIT CHANGES;"
W = "CREATE STREAM s (id INT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND);"
PER_MINUTE = "SELECT window_start, id, COUNT(*) AS n FROM s GROUP BY id WINDOW TUMBLING(1m) EMIT FINAL"
INTO_W = (
    "CREATE TABLE m (window_start TIMESTAMP, id INT, n BIGINT, PRIMARY KEY (window_start, id)); INSERT INTO m"
)
REFUSED = [
    # a stream that is rebuilt is read through a view
    (S + D + f"{INTO} vd;", "x > 0", "x > 1", '"d", which is rebuilt'),
    # what a running statement reads means something else
    (
        S + f"CREATE VIEW v AS SELECT id, x FROM s; {INTO} v;",
        "id, x FROM s",
        "id, x*10 AS x FROM s",
        "meaning",
    ),
    (f"{W} {INTO_W} {PER_MINUTE};", "'1' SECOND", "'5' MINUTE", "meaning"),
    (
        S + "CREATE VIEW v AS SELECT id, x FROM s; CREATE TABLE k (id INT PRIMARY KEY, x INT);"
        "MERGE INTO k USING v ON k.id = v.id WHEN MATCHED THEN UPDATE SET x = v.x"
        " WHEN NOT MATCHED THEN INSERT (id, x) VALUES (v.id, v.x);",
        "id, x FROM s",
        "id, x*10 AS x FROM s",
        "meaning",
    ),
    # the changes of a table whose rows become others
    (C, "FROM s GROUP", "FROM s WHERE x > 1 GROUP", "changes"),
    (C, "COUNT(*) AS n", "COUNT(*) * 10 AS n", "changes"),
    (C, "id, n FROM g", "id, n+1 AS n FROM g", "changes"),
    # a table that the file renames
    (
        S + "CREATE TABLE a (id INT, x INT); ALTER TABLE a RENAME TO b;",
        "x INT);",
        "x BIGINT);",
        "CREATE TABLE|ALTER",
    ),
]


@pytest.mark.parametrize(("text", "old", "new", "why"), REFUSED)
def test_what_is_refused(text: str, old: str, new: str, why: str, tmp_path: Path) -> None:
    start, _, rest = text.rpartition(old)
    with opened(text, tmp_path / "state") as app:
        if "WATERMARK" not in text:
            send(app)
        names = app.tables()
        before = {n: rows(app, n) for n in names}
    with pytest.raises(StateForeign, match=why):
        opened(start + new + rest, tmp_path / "state", upgrade=True)
    with opened(text, tmp_path / "state") as app:
        assert {n: rows(app, n) for n in names} == before


def test_what_a_view_over_a_rebuilt_stream_fills(tmp_path: Path) -> None:
    text = S + D + "CREATE TABLE k AS SELECT id, x FROM vd;"
    with opened(text, tmp_path) as app:
        send(app)
        assert rows(app, "k") == [(1, 1), (1, 2)]
    with opened(text.replace("x > 0", "x > 1"), tmp_path, upgrade=True) as app:
        assert rows(app, "k") == [(1, 2)]


def test_rows_of_a_stream_that_are_gone(tmp_path: Path) -> None:
    text = S + GROUPS
    with opened(text, tmp_path / "state") as app:
        send(app)
        app._runtime.journal.trim_stream("s", before_seq=3)
        new = text.replace("COUNT(*) AS n", "MAX(x) AS n")
        found = explained(app, new, tmp_path)["g"]
        assert found["asks"] and "only from position 3" in found["reason"], found
    with pytest.raises(UpgradeNeeded):
        opened(new, tmp_path / "state")


def test_a_statement_that_starts_late(tmp_path: Path) -> None:
    text = S + "CREATE TABLE k AS SELECT id, x FROM s WITH ('start' = 'latest');"
    with opened(text, tmp_path / "state") as app:
        send(app)
        found = explained(app, text.replace("id, x", "id, x + 1 AS x"), tmp_path)["k"]
    assert found["asks"] and found["rows"] == 0 and "from now on" in found["reason"]


def test_emit_final_and_emit_changes_differ(tmp_path: Path) -> None:
    text = f"{W} CREATE TABLE w AS {PER_MINUTE};"
    with opened(text, tmp_path / "state") as app:
        assert explained(app, text.replace("FINAL", "CHANGES"), tmp_path)["w"]["action"] == "rebuilt"


def test_rows_that_failed_are_read_again(tmp_path: Path) -> None:
    text = S + "CREATE TABLE g AS SELECT id, COUNT(*) AS n, SUM(10 / (x - 1)) AS z FROM s GROUP BY id;"
    with opened(text, tmp_path) as app:
        send(app)
        assert rows(app, "g") == [(1, 1, 10.0), (2, 1, 10 / -6)]
    with opened(text.replace(", SUM(10 / (x - 1)) AS z", ""), tmp_path, upgrade=True) as app:
        assert rows(app, "g") == [(1, 2), (2, 1)]


def test_a_running_insert_that_the_file_has_no_longer(tmp_path: Path) -> None:
    text = S + f"{INTO} s;"
    with opened(text, tmp_path) as app:
        send(app)
        app.sql("CREATE TABLE mine (id INT); INSERT INTO mine SELECT id FROM s WITH ('query.name' = 'own')")
        app.drain()
    with pytest.raises(UpgradeNeeded, match="query"):
        opened(text.replace("INSERT INTO m SELECT id, x FROM s;", ""), tmp_path)
    with opened(text, tmp_path) as app:  # what a program has started goes on
        app.send("s", {"id": 7, "x": 7})
        assert rows(app, "mine") == [(1,), (1,), (2,), (7,)]


RESTARTED = [
    "CREATE TABLE t (id INT, a INT); DROP TABLE t; CREATE TABLE t (id INT);",
    "DROP TABLE IF EXISTS t; CREATE TABLE t (id INT);",
    "CREATE TABLE t (id INT, a INT); INSERT INTO t VALUES (1, 2); DROP TABLE t; CREATE TABLE t (id INT);",
    "CREATE TABLE t (id INT); CREATE VIEW w AS SELECT id FROM t; DROP TABLE t CASCADE; CREATE TABLE t (id INT);",
    "CREATE TABLE a (id INT); ALTER TABLE a RENAME TO t; CREATE TABLE a (id INT);",
    "CREATE TABLE t (id INT); CREATE OR REPLACE TABLE t (id INT, b INT);",
    "CREATE TABLE IF NOT EXISTS t (id INT);",
    "CREATE TABLE t (id INT); CREATE INDEX i ON t (id); DROP INDEX i; CREATE INDEX i ON t (id);",
]


@pytest.mark.parametrize("text", RESTARTED)
def test_an_unchanged_file_changes_nothing(text: str, tmp_path: Path) -> None:
    with opened(S + text, tmp_path / "state") as app:
        app.sql("INSERT INTO t (id) VALUES (1)")
        before, tables = rows(app, "t"), app.tables()
    for _ in range(2):
        with opened(S + text, tmp_path / "state") as app:
            assert (rows(app, "t"), app.tables()) == (before, tables)
            if "REPLACE" not in text:
                assert {d["action"] for d in explained(app, S + text, tmp_path).values()} == {"kept"}


PARTS = (
    "CREATE TABLE {t} (id INT, x INT);",
    "CREATE TABLE {t} (id INT, x INT, y INT);",
    "CREATE TABLE {t} AS SELECT id, x FROM s;",
    "CREATE TABLE {t} AS SELECT id, COUNT(*) AS x FROM s GROUP BY id;",
    "CREATE VIEW {t} AS SELECT id, x FROM s;",
    "INSERT INTO {t} (id, x) VALUES (1, 2);",
    "INSERT INTO {t} (id, x) SELECT id, x FROM s;",
    "CREATE TABLE {u} AS SELECT id FROM {t};",
    "DROP TABLE {t};",
    "DROP TABLE IF EXISTS {t} CASCADE;",
    "ALTER TABLE {t} ADD COLUMN z INT;",
    "ALTER TABLE {t} RENAME TO {u};",
)
PART = some.tuples(some.sampled_from(PARTS), some.permutations(["a", "b", "c"])).map(
    lambda drawn: drawn[0].format(t=drawn[1][0], u=drawn[1][1])
)


@settings(max_examples=12, deadline=None)
@given(some.lists(PART, min_size=2, max_size=8))
def test_any_unchanged_file_changes_nothing(parts: list[str]) -> None:
    with TemporaryDirectory() as folder:
        text = S
        for part in parts:  # those that fit what comes before
            with App(_direct=True, engine="process") as app:
                try:
                    app.sql(text + part)
                    text += part + "\n"
                except Error:
                    pass
        with opened(text, Path(folder) / "state") as app:
            send(app)
            before = {n: rows(app, n) for n in app.tables()}
        with opened(text, Path(folder) / "state") as app:
            found = explained(app, text, Path(folder))
            assert {n: rows(app, n) for n in app.tables()} == before, text
            lasting = {n.lower() for n in app.tables()}
            assert {d["action"] for n, d in found.items() if n in lasting} <= {"kept"}, (text, found)
