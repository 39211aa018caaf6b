"""A changed file with statements that run once: what is lost if one fails, and when one runs again."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond import App
from millpond.errors import Error, QueryFailed, StateForeign, UpgradeNeeded
from tests.test_upgrade_edges import S, explained, opened, rows, send

K = "CREATE TABLE k (id INT);\n"
OLD = (
    S
    + K
    + """
CREATE TABLE t (id INT);
INSERT INTO t VALUES (1);
CREATE TABLE m (id INT, x INT);
INSERT INTO m SELECT id, x FROM s;
CREATE TABLE groups AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;
CREATE TABLE live AS SELECT COUNT(*) AS n FROM k;
CREATE INDEX by_id ON k (id);
"""
)
WRONG = "INSERT INTO k VALUES (1); INSERT INTO k VALUES (CAST('x' AS INT));"


def content(app: App) -> dict[str, list[tuple[object, ...]]]:
    return {name: rows(app, name) for name in app.tables()}


def shown(app: App) -> str:
    return str(app.sql("SHOW CREATE TABLE k").rows())


def test_a_failing_statement_leaves_what_is_dropped(tmp_path: Path) -> None:
    with opened(OLD, tmp_path / "state") as app:
        send(app)
        before = content(app)
    with pytest.raises(QueryFailed, match="cannot cast") as caught:
        opened(S + K + WRONG, tmp_path / "state", upgrade=True)
    assert "other changes of the file are made" in str(caught.value)
    assert 'What it drops is still stored, for a start with the old file: table "t"' in str(caught.value)
    assert caught.value.place is not None
    with pytest.raises(Error, match="cannot cast"):  # nobody is asked again
        opened(S + K + WRONG, tmp_path / "state")
    with pytest.raises(Error, match='"t"'):  # what is hidden is not to be read
        opened(S + K + "INSERT INTO k SELECT id FROM t;", tmp_path / "state")
    with opened(OLD, tmp_path / "state") as app:
        assert content(app) == {**before, "k": [(1,)], "live": [(1,)]}
        app.send("s", {"id": 9, "x": 9})
        assert rows(app, "groups") == [(1, 2), (2, 1), (9, 1)]
        assert len(rows(app, "m")) == 4
        assert "by_id" in shown(app)
    with pytest.raises(Error, match="cannot cast"):
        opened(S + K + WRONG, tmp_path / "state", upgrade=True)
    with opened(S + K + WRONG.replace("'x'", "'2'"), tmp_path / "state") as app:
        assert content(app) == {"k": [(1,), (2,)]}
        assert not app.sql("SHOW QUERIES").rows() and "by_id" not in shown(app)
    with opened(OLD, tmp_path / "state") as app:  # all of it begins again
        assert content(app)["t"] == [(1,)] and len(rows(app, "m")) == 4


def test_what_is_dropped_hinders_no_statement(tmp_path: Path) -> None:
    old = "CREATE TABLE k (id INT, x INT); CREATE TABLE v AS SELECT x FROM k; CREATE INDEX i ON k (x);"
    with opened(old, tmp_path) as app:
        app.sql("INSERT INTO k VALUES (1, 2)")
    new = "CREATE TABLE k (id INT, x INT); ALTER TABLE k DROP COLUMN x;"
    with opened(new, tmp_path, upgrade=True) as app:
        assert content(app) == {"k": [(1,)]}
    with opened(new, tmp_path) as app:
        assert content(app) == {"k": [(1,)]}


def test_names_that_are_still_taken(tmp_path: Path) -> None:
    named = "INSERT INTO {} SELECT id FROM s WITH ('query.name' = 'q');"
    old = S + K + "CREATE TABLE t (id INT); CREATE TABLE u (id INT);" + named.format("t")
    with opened(old, tmp_path) as app:
        send(app)
    with pytest.raises(StateForeign, match="it has its name until then"):
        opened(S + K + "CREATE TABLE u (id INT); ALTER TABLE u RENAME TO t;", tmp_path, upgrade=True)
    with pytest.raises(StateForeign, match="another query of the old file has its name"):
        opened(old.replace(named.format("t"), named.format("u")), tmp_path, upgrade=True)
    with opened(old, tmp_path) as app:
        assert len(rows(app, "t")) == 3


@pytest.mark.parametrize(
    "create", ["CREATE TABLE t (id INT);", "CREATE TABLE t (id INT) WITH ('extension' = 'sqlite');"]
)
def test_statements_run_again_when_their_table_comes_back(create: str, tmp_path: Path) -> None:
    old = (
        S + K + create + "INSERT INTO t VALUES (1); UPDATE t SET id = id + 1; INSERT INTO k SELECT id FROM t;"
    )
    for text in (old, old, S + K, old, old):
        with opened(text, tmp_path, upgrade=True) as app:
            expected = {"k": [(2,)]} | ({"t": [(2,)]} if text == old else {})
            assert content(app) == expected
    with opened(old, tmp_path) as app:
        app.sql("DROP TABLE t")
    with opened(old, tmp_path) as app:
        assert content(app) == {"k": [(2,)], "t": [(2,)]}


def test_statements_follow_a_renamed_table(tmp_path: Path) -> None:
    first = "CREATE TABLE t (id INT); INSERT INTO t VALUES (1); ALTER TABLE t RENAME TO u;"
    then = "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (2);"
    with opened(S + first + then, tmp_path) as app:
        app.sql("DROP TABLE u")
        app.sql("INSERT INTO t VALUES (3)")
    with opened(S + then, tmp_path) as app:
        assert rows(app, "t") == [(2,), (3,)]  # what has filled it did not run again


def test_an_insert_that_is_written_differently(tmp_path: Path) -> None:
    old = S + "CREATE TABLE t (id INT); INSERT INTO t VALUES (1);"
    new = S + "CREATE TABLE t (id INT, b INT DEFAULT 5); INSERT INTO t (id) VALUES (1);"
    asked = '"t" has rows of a statement that the file has no longer'
    with opened(old, tmp_path) as app:
        found = explained(app, old.replace("(1)", "( 1 )") + "INSERT INTO t VALUES (2);", tmp_path)
        assert not any(d["asks"] for d in found.values())  # one more is no question
        assert asked in explained(app, new, tmp_path)["INSERT"]["reason"]
    for text in (new, old.replace("VALUES (1)", "SELECT 1")):
        with pytest.raises(UpgradeNeeded, match=asked):
            opened(text, tmp_path)
    with opened(new, tmp_path, upgrade=True) as app:
        assert rows(app, "t") == [(1, 5), (1, 5)]
    with opened(new + "INSERT INTO t (id) VALUES (2);", tmp_path) as app:  # it was answered
        assert rows(app, "t") == [(1, 5), (1, 5), (2, 5)]
        app.sql("DELETE FROM t")
    with opened(new.replace("VALUES (1)", "SELECT 1"), tmp_path) as app:  # there are no rows
        assert rows(app, "t") == [(1, 5)]


def test_groups_for_which_the_new_query_fails(tmp_path: Path) -> None:
    text = S + "CREATE TABLE g AS SELECT id, SUM(x) AS z FROM s GROUP BY id;"
    new = text.replace("SUM(x)", "CAST(IF(SUM(x) < 0, 'x', '1') AS INT)")
    with opened(text, tmp_path / "state") as app:
        send(app)
        found = explained(app, new, tmp_path)["g"]
        assert found["action"] == "rebuilt" and "fails for one of its groups: cannot cast" in found["reason"]
    with opened(new, tmp_path / "state", upgrade=True) as app:
        assert rows(app, "g") == [(1, 1)] and len(rows(app, "g$errors")) == 1


def test_a_table_with_errors_into_is_rebuilt_in_its_place(tmp_path: Path) -> None:
    text = S + (
        "CREATE TABLE bad (query STRING, reason STRING);"
        "CREATE TABLE g AS SELECT id, 10 / (x - 1) AS y FROM s ERROR INTO bad;"
    )
    new = text.replace("10 /", "20 /")
    with opened(text, tmp_path / "state") as app:
        send(app)
        found = explained(app, new, tmp_path)["g"]
        assert found["action"] == "rebuilt" and found["reason"].endswith("its errors are written again")
    with opened(new, tmp_path / "state", upgrade=True) as app:
        assert rows(app, "g") == [(1, 20.0), (2, 20 / -6)] and len(rows(app, "bad")) == 2
    with opened(new.replace("ERROR INTO bad", ""), tmp_path / "state", upgrade=True) as app:
        assert rows(app, "g") == [(1, 20.0), (2, 20 / -6)]
