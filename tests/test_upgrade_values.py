"""A variable ``${…}`` with another value: what its query has made is made again, and the value is not stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond import App
from millpond.app.app import runtime_of
from millpond.errors import UpgradeNeeded
from millpond.sql import variable_values
from tests.test_upgrade import opened, rows_of

FILE = """
CREATE STREAM s (id INT, town STRING);
CREATE TABLE counted AS SELECT town, COUNT(*) AS n FROM s WHERE town = '${TOWN}' GROUP BY town;
CREATE VIEW those AS SELECT id FROM s WHERE town = '${TOWN}';
CREATE VIEW over AS SELECT * FROM those;
CREATE TABLE ids AS SELECT id FROM over;
CREATE STREAM d AS SELECT id, '${TOWN}' AS town FROM s;
CREATE TABLE of_d AS SELECT id, town FROM d;
CREATE TABLE every AS SELECT id FROM s;
CREATE TABLE k (id INT PRIMARY KEY) WITH ('extension' = 'sqlite', 'path' = '${FOLDER}/k.db');
CREATE MATERIALIZED VIEW live AS SELECT id, '${TOWN}' AS town FROM k;
"""
NAMES = ("counted", "ids", "of_d", "every", "live")


def content(app: App) -> dict[str, list[str]]:
    app.drain()
    return {name: rows_of(app, name) for name in NAMES}


def test_what_has_another_value_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.setenv("TOWN", "Kiel-secret")
    state = tmp_path / "state"
    with opened(FILE, state) as app:
        app.send("s", [{"id": i, "town": ("Kiel-secret", "Bonn-secret")[i % 2]} for i in range(5)])
        app.sql("INSERT INTO k VALUES (1)")
        before = content(app)
    with opened(FILE, state) as app:  # the same values: nothing changes
        assert content(app) == before
    monkeypatch.setenv("TOWN", "Bonn-secret")
    with pytest.raises(UpgradeNeeded, match="a variable in its query") as told:
        opened(FILE, state)
    assert "every" not in told.value.message and "secret" not in str(told.value)
    with opened(FILE, state, upgrade=True) as app:
        found = content(app)
    with opened(FILE, state) as app:
        assert content(app) == found
        texts = [str((e.text, e.data)) for e in runtime_of(app).journal.entries()]
    assert any("seal" in text for text in texts)
    assert not [text for text in texts if "secret" in text]
    (tmp_path / "2").mkdir()
    monkeypatch.setenv("FOLDER", str(tmp_path / "2"))
    with opened(FILE, tmp_path / "2" / "state") as app:
        app.send("s", [{"id": i, "town": ("Kiel-secret", "Bonn-secret")[i % 2]} for i in range(5)])
        app.sql("INSERT INTO k VALUES (1)")
        assert content(app) == found != before


def test_a_start_hashes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def hashed(values: str, salt: str) -> str:
        made.append(values)
        return slow(values, salt)

    slow = variable_values._hashed
    monkeypatch.setattr(variable_values, "_hashed", hashed)
    monkeypatch.setenv("TOWN", "Kiel")
    text = "CREATE TABLE k (id INT, town STRING);" + "".join(
        f"CREATE VIEW v{i} AS SELECT id + {i} AS id FROM k WHERE town = '${{TOWN}}';" for i in range(5)
    )
    counts = []
    for town in ("Kiel", "Kiel", "Kiel", "Bonn", "Bonn", "Bonn"):
        monkeypatch.setenv("TOWN", town)
        monkeypatch.setattr(variable_values, "_hashes", {})  # as in a new process
        made.clear()
        opened(text, tmp_path).close()
        counts.append(len(made))
    assert counts[2] == counts[5] == 1 and counts[1] == counts[4] == 6
    with opened(text, tmp_path) as app:
        assert not [e for e in runtime_of(app).journal.entries() if "Bonn" in str(e.data)]


def test_another_address_or_password_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.csv").write_text("id\n1\n")
    (tmp_path / "a").rename(tmp_path / "b")
    file = "CREATE TABLE t AS SELECT id FROM file://${WHERE}/x.csv WHERE id > 0;"
    monkeypatch.setenv("WHERE", str(tmp_path / "b"))
    with opened(file, tmp_path / "state") as app:
        assert rows_of(app, "t") == ["{'id': 1}"]
    (tmp_path / "b").rename(tmp_path / "c")
    monkeypatch.setenv("WHERE", str(tmp_path / "c"))
    with opened(file, tmp_path / "state") as app:
        assert rows_of(app, "t") == ["{'id': 1}"]
