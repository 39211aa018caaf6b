"""Running UPDATE, DELETE, MERGE and UPSERT on tables that are not in memory, cut off and started again in the middle:
the rows are those of the same statements on a table in memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.testing.crash import crash
from tests.servers import Servers

SQL = """
CREATE STREAM orders (sku INT, qty INT);
CREATE STREAM counts (sku INT, qty INT);
CREATE STREAM gone (sku INT);
CREATE STREAM news (sku INT, qty INT, name STRING);
CREATE TABLE stock (sku INT PRIMARY KEY, qty INT, name STRING) {options};
INSERT INTO stock VALUES (0, 50, 'zero'), (1, 60, 'one'), (2, NULL, NULL);
UPDATE stock SET qty = stock.qty - o.qty FROM orders o WHERE stock.sku = o.sku AND stock.qty >= o.qty;
UPSERT INTO stock SELECT sku, qty, 'counted' AS name FROM counts ON stock.sku = counts.sku;
DELETE FROM stock USING gone WHERE stock.sku = gone.sku AND stock.qty < 40;
MERGE INTO stock USING news n ON stock.sku = n.sku
WHEN MATCHED AND n.qty = 0 THEN DELETE
WHEN MATCHED THEN UPDATE SET qty = stock.qty + n.qty, name = n.name
WHEN NOT MATCHED THEN INSERT VALUES (n.sku, n.qty, n.name);
"""
STREAMS = ("orders", "counts", "gone", "news")


def events(seed: int) -> list[tuple[str, list[dict[str, Any]]]]:
    choice = random.Random(seed)
    made = []
    for stream in choice.sample(STREAMS * 3, 12):
        rows = [
            {"sku": choice.randrange(6), "qty": choice.randrange(30), "name": choice.choice("abc")}
            for _ in range(5)
        ]
        fields = {"gone": ("sku",), "news": ("sku", "qty", "name")}.get(stream, ("sku", "qty"))
        made.append((stream, [{f: r[f] for f in fields} for r in rows]))
    return made


def rows_after(options: str, state: Path, seed: int, *, cut: bool = True) -> list[dict[str, Any]]:
    sql, sent = SQL.format(options=options), events(seed)
    app = App(sql, state=state, _direct=True)
    for number, (stream, rows) in enumerate(sent):
        app.send(stream, rows)
        if cut and number == len(sent) // 2:
            crash(app)
            app = App(sql, state=state, _direct=True)
        app.drain()
    with app:
        assert not [q for q in app.sql("SHOW QUERIES").rows() if q["errors"] or q["state"] != "running"]
        return sorted(app.table("stock").all_rows(), key=lambda r: r["sku"])


@pytest.mark.parametrize("extension", ["sqlite", "cache", "cache over sqlite", "postgresql", "mysql"])
def test_the_same_rows_as_in_memory(tmp_path: Path, servers: Servers, extension: str) -> None:
    file = f"sqlite:///{tmp_path}/behind.db"
    options = {
        "sqlite": f"WITH ('extension' = 'sqlite', 'path' = '{tmp_path}/stock.db')",
        "cache": "WITH ('extension' = 'cache', 'max_size' = '1000')",
        "cache over sqlite": f"WITH ('extension' = 'cache', 'cache.over' = '{file}')",
    }.get(extension, "")
    if extension == "postgresql":
        url = servers.postgresql.url()
        servers.postgresql.execute("DROP TABLE IF EXISTS stock")
        options = f"WITH ('extension' = 'postgresql', 'url' = '{url}')"
    if extension == "mysql":
        servers.mariadb.execute("CREATE DATABASE IF NOT EXISTS elsewhere")
        options = f"WITH ('extension' = 'mysql', 'url' = '{servers.mariadb.url('elsewhere')}')"
    seed = 3
    expected = rows_after("", tmp_path / "memory", seed)
    # A cache with nothing behind it is empty after a restart.
    assert rows_after(options, tmp_path / "state", seed, cut=extension != "cache") == expected
    assert len(expected) > 2
