"""Indexes that are declared: used, kept across a restart, gone with their table."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond import App, Error
from millpond.errors import AlreadyExists, NotSupported

SQL = """
CREATE TABLE u (id INT PRIMARY KEY, tier STRING, city STRING, n INT);
CREATE INDEX by_place ON u (city, tier);
"""


def plan_of(app: App, where: str) -> str:
    lines = app.sql(f"EXPLAIN SELECT id FROM u WHERE {where}").to_arrow()["plan"].to_pylist()
    return next(str(line) for line in lines if line.startswith("evaluated by"))


def test_the_declared_index_is_taken() -> None:
    with App(SQL) as app:
        users = app.table("u")
        users.bulk_insert(
            [{"id": i, "tier": "AB"[i % 2], "city": "XYZ"[i % 3], "n": i % 5} for i in range(300)]
        )
        where = "n = 3 AND tier = 'A' AND city = 'Z'"
        assert plan_of(app, where) == "evaluated by: lookup (table u by city, tier)"
        assert plan_of(app, f"{where} AND id = 8") == "evaluated by: lookup (table u by id)"
        assert plan_of(app, "tier = 'A'") == "evaluated by: lookup (table u by tier)"
        assert app.sql(f"SELECT id FROM u WHERE {where}").rows() == [{"id": i} for i in range(8, 300, 30)]
        assert users.get_stats()["indexes"] == [["city", "tier"]]
        about = {r["property"]: r["value"] for r in app.sql("DESCRIBE EXTENDED u").rows()}
        assert about["index by_place"] == "city, tier"
        app.sql("DROP INDEX by_place")
        assert plan_of(app, where) == "evaluated by: lookup (table u by city, n, tier)"


def test_a_restart_and_a_dropped_table(tmp_path: Path) -> None:
    with App(SQL, state=tmp_path / "state") as app:
        app.sql("INSERT INTO u VALUES (1, 'A', 'X', 1)")
        app.sql("CREATE INDEX by_n ON u (n)")
        with pytest.raises(AlreadyExists):
            app.sql("CREATE INDEX by_n ON u (tier)")
    with App(SQL, state=tmp_path / "state") as app:
        assert app.table("u").get_stats()["indexes"] == [["city", "tier"], ["n"]]
        with pytest.raises(Error, match="declared differently"):
            app.sql("CREATE INDEX by_n ON u (tier)")
        app.sql("DROP INDEX by_n")
    with App(SQL.replace("city, tier)", "city)"), state=tmp_path / "state") as app:
        assert app.table("u").get_stats()["indexes"] == [["city"]]
    with App(SQL, state=tmp_path / "state") as app:
        assert app.table("u").get_stats()["indexes"] == [["city", "tier"]]
        app.sql("DROP TABLE u")
        app.sql("CREATE TABLE u (id INT, city STRING)")
        app.sql("CREATE INDEX by_place ON u (city)")
    with App(state=tmp_path / "state") as app:
        assert app.sql("SHOW CREATE TABLE u").to_arrow()["statement"].to_pylist() == [
            "CREATE TABLE u (id INT, city STRING)",
            "CREATE INDEX by_place ON u (city)",
        ]


def test_an_index_is_no_part_of_a_transaction() -> None:
    with App(SQL) as app, pytest.raises(NotSupported, match="a transaction holds"):
        app.sql("BEGIN; CREATE INDEX i ON u (n); COMMIT")
