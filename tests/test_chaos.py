"""Everything that a stream can do to tables, while the process is killed again and again.

A join, a join whose rows wait for a table that is filled later, three live aggregates, a running UPDATE that takes from
a stock, and a block over two tables, all on one stream; windows that close, and late rows, on another. The end is
compared row by row with what DuckDB makes of the same events in one go.

Which rows are late depends on how the stream is cut into batches: the rows of the windows are sent a batch at a time.

``work`` is the program that is killed: it sends events from where the stream ends, then waits and prints.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millpond import App
from millpond.engine_rule import Engine
from tests.test_kill import kill_after, run_to_the_end, running, say

SKUS, ACCOUNTS, CHUNK = 500, 2_000, 2_000
TICKS = 200
"""Rows for the windows in each chunk. They are two seconds apart; every tenth comes some minutes late."""

SQL = f"""
CREATE TABLE products (sku INT, title STRING, price DECIMAL(10,2), PRIMARY KEY (sku)) AS SELECT * FROM file://{{csv}};
CREATE TABLE stock (sku INT PRIMARY KEY, qty BIGINT);
INSERT INTO stock SELECT sku, CAST(1000000 AS BIGINT) FROM products;
CREATE TABLE balances (account INT PRIMARY KEY, spent DECIMAL(20,2), orders BIGINT);
INSERT INTO balances SELECT CAST(id AS INT), CAST(0 AS DECIMAL(20,2)), CAST(0 AS BIGINT) FROM
  (SELECT explode(sequence(0, {ACCOUNTS - 1})) AS id);
CREATE TABLE ledger (n BIGINT PRIMARY KEY, account INT, amount DECIMAL(12,2));
CREATE STREAM orders (n BIGINT, sku INT, account INT, qty INT, amount DECIMAL(12,2));

CREATE TABLE enriched (n BIGINT PRIMARY KEY, title STRING, total DECIMAL(20,2));
INSERT INTO enriched SELECT o.n, p.title, CAST(o.amount * p.price AS DECIMAL(20,2))
  FROM orders o LEFT JOIN products p ON p.sku = o.sku;

CREATE TABLE by_sku AS SELECT sku, COUNT(*) AS orders, SUM(amount) AS amount, MIN(n) AS first_n, MAX(amount) AS most
  FROM orders GROUP BY sku;
CREATE TABLE by_account AS SELECT account, SUM(qty) AS qty, COUNT(DISTINCT sku) AS skus FROM orders GROUP BY account;
CREATE TABLE overall AS SELECT COUNT(*) AS orders, SUM(amount) AS amount, MIN(amount) AS least FROM orders;

UPDATE stock SET qty = stock.qty - o.qty FROM orders o WHERE stock.sku = o.sku;

BEGIN;
UPDATE balances SET spent = balances.spent + o.amount, orders = balances.orders + 1
  FROM orders o WHERE balances.account = o.account;
INSERT INTO ledger SELECT n, account, amount FROM orders WHERE qty > 5;
COMMIT;

CREATE TABLE codes (sku INT PRIMARY KEY, code STRING);
CREATE TABLE coded (n BIGINT, code STRING);
INSERT INTO coded SELECT o.n, c.code FROM orders o JOIN codes c ON c.sku = o.sku
  WITH ('on.miss' = 'retry', 'on.miss.timeout' = '10h');

CREATE STREAM ticks (n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS);
CREATE TABLE minutes AS SELECT COUNT(*) AS ticks, SUM(n) AS total FROM ticks WINDOW TUMBLING(ts, 1m) EMIT FINAL;
CREATE TABLE hops AS SELECT n % 3 AS k, COUNT(*) AS ticks, COUNT(DISTINCT n % 7) AS sorts FROM ticks GROUP BY n % 3
  WINDOW HOPPING(ts, 2m, 1m);
"""

EXPECTED = {
    "enriched": (
        "SELECT o.n, p.title, CAST(o.amount * p.price AS DECIMAL(20,2)) "
        "FROM orders o LEFT JOIN products p ON o.sku = p.sku"
    ),
    "by_sku": "SELECT sku, COUNT(*), SUM(amount), MIN(n), MAX(amount) FROM orders GROUP BY sku",
    "by_account": "SELECT account, SUM(qty), COUNT(DISTINCT sku) FROM orders GROUP BY account",
    "overall": "SELECT COUNT(*), SUM(amount), MIN(amount) FROM orders",
    "stock": (
        "SELECT p.sku, 1000000 - coalesce(SUM(o.qty), 0) "
        "FROM products p LEFT JOIN orders o ON p.sku = o.sku GROUP BY p.sku"
    ),
    "balances": (
        f"SELECT a.i, coalesce(SUM(o.amount), 0), COUNT(o.n) FROM range({ACCOUNTS}) a(i) "
        "LEFT JOIN orders o ON o.account = a.i GROUP BY a.i"
    ),
    "ledger": "SELECT n, account, amount FROM orders WHERE qty > 5",
    "coded": "SELECT n, 'code-' || sku FROM orders",
    "minutes": (
        "SELECT COUNT(*), SUM(n), make_timestamp(start), make_timestamp(start + 60000000) "
        "FROM (SELECT *, epoch_us(time_bucket(INTERVAL 1 MINUTE, ts)) AS start FROM ticks) "
        "WHERE mark IS NULL OR start + 60000000 > mark GROUP BY start "
        "HAVING start + 60000000 <= (SELECT MAX(epoch_us(ts)) - 10000000 FROM ticks)"
    ),
    "hops": (
        "SELECT n % 3, COUNT(*), COUNT(DISTINCT n % 7), make_timestamp(start), make_timestamp(start + 120000000) "
        "FROM (SELECT *, epoch_us(time_bucket(INTERVAL 1 MINUTE, ts)) - back AS start "
        "      FROM ticks, (VALUES (0), (60000000)) h(back)) "
        "WHERE mark IS NULL OR start + 120000000 > mark GROUP BY n % 3, start"
    ),
}


def orders(start: int, end: int) -> pa.Table:
    """Events start … end-1; the same each time."""
    return duckdb.sql(
        f"""
        SELECT n::BIGINT AS n, (hash(n) % {SKUS + 20})::INT AS sku, (hash(n + 1000000007) % {ACCOUNTS})::INT AS account,
               (hash(n * 31) % 10)::INT AS qty, ((hash(n * 17) % 100000) / 100.0)::DECIMAL(12,2) AS amount
        FROM range({start}, {end}) t(n)
        """
    ).to_arrow_table()


def ticks(start: int, end: int) -> pa.Table:
    rows = duckdb.sql(
        f"""
        SELECT n::BIGINT AS n, 1704067200000000 + (n * 2 - CASE WHEN n % 10 = 3 THEN 300 ELSE 0 END) * 1000000 AS ts
        FROM range({start}, {end}) t(n)
        """
    ).to_arrow_table()
    return rows.set_column(1, "ts", rows["ts"].cast(pa.timestamp("us", "UTC")))


def write_products(path: Path) -> None:
    rows = (f"{i},title-{i},{i % 97 + 1}.{i % 90 + 10}" for i in range(SKUS))
    path.write_text("sku,title,price\n" + "\n".join(rows) + "\n")


# the program that is killed


def work(sql: str, state: str, events: str, engine: Engine) -> None:
    total = int(events)
    say("start")
    with App(sql, state=state, engine=engine) as app:
        say("ready")
        for start in range(app._runtime.journal.stream_end("orders"), total, CHUNK):
            app.send("orders", orders(start, min(start + CHUNK, total)))
            say("sent")
            send_ticks(app, start // CHUNK + 1)
            if start >= total // 2:
                give_codes(app, "id % 3 = 1")
        send_ticks(app, total // CHUNK)
        give_codes(app, "id % 3 <> 0")
        app.drain(timeout=1_200)
        assert sum(r["waiting"] or 0 for r in app.sql("SHOW QUERIES").rows()) > 0
        give_codes(app, "true")
        app.drain(timeout=1_200)
        print(
            json.dumps({name: digest(app.sql(f"SELECT * FROM {name}").to_arrow()) for name in EXPECTED}),
            flush=True,
        )


def send_ticks(app: App, chunks: int) -> None:
    """Chunk by chunk, each when the windows have taken the one before."""
    for start in range(app._runtime.journal.stream_end("ticks"), chunks * TICKS, TICKS):
        while any(q["lag"] != 0 for q in app.sql("SHOW QUERIES").rows() if "FROM ticks" in q["statement"]):
            time.sleep(0.02)
        app.send("ticks", ticks(start, start + TICKS))


def give_codes(app: App, which: str) -> None:
    """Rows that wait for these codes go on."""
    rows = f"(SELECT explode(sequence(0, {SKUS + 19})) AS id)"
    app.sql(f"INSERT INTO codes SELECT CAST(id AS INT), 'code-' || id FROM {rows} WHERE {which}")


def digest(table: pa.Table) -> list[Any]:
    """The number of rows, and a checksum of all of them in any order."""
    arrays = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    table = pa.table(arrays, table.column_names)
    named = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
    texts = " || '|' || ".join(f"coalesce(c{i}::VARCHAR, 'NULL')" for i in range(table.num_columns))
    connection = duckdb.connect()
    connection.register("named", named)
    (found,) = connection.sql(f"SELECT COUNT(*), SUM(hash({texts})::HUGEINT)::VARCHAR FROM named").fetchall()
    return list(found)


def expected(csv: Path, total: int) -> dict[str, list[Any]]:
    connection = duckdb.connect()
    connection.register("orders", orders(0, total))
    connection.register("sent", ticks(0, total // CHUNK * TICKS))
    connection.execute(f"""
        CREATE TABLE ticks AS SELECT n, make_timestamp(epoch_us(ts)) AS ts, MAX(epoch_us(ts)) OVER (
          ORDER BY n // {TICKS} RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - 10000000 AS mark FROM sent
    """)
    connection.execute("CREATE TABLE products (sku INT, title VARCHAR, price DECIMAL(10,2))")
    connection.execute(f"COPY products FROM '{csv}' (HEADER)")
    return {name: digest(connection.sql(query).to_arrow_table()) for name, query in EXPECTED.items()}


def moments(kills: int, seed: int, sends: int) -> Iterator[tuple[str, int, float]]:
    """Word, times and delay of each kill: mostly while events come, now and then while it starts or catches up."""
    choice = random.Random(seed)
    for number in range(kills):
        if number % 5 == 4:
            yield "start", 1, choice.uniform(0.5, 4)
        elif number % 5 == 3:
            yield "ready", 1, choice.uniform(0, 1.5)
        else:
            yield "sent", choice.randint(1, max(1, sends // kills)), choice.uniform(0, 1.5)


def check(tmp_path: Path, *, events: int, kills: int, seed: int) -> None:
    csv = tmp_path / "products.csv"
    write_products(csv)
    root = str(Path(__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {root!r}); from tests.test_chaos import work; work(*sys.argv[1:])"
    command = (sys.executable, "-c", code, SQL.format(csv=csv), str(tmp_path / "state"), str(events))
    for number, moment in enumerate(moments(kills, seed, events // CHUNK)):
        # Whoever evaluated a batch before, the other engine may go on.
        with running(*command, ("spark", "auto")[number % 2]) as process:
            kill_after(process, *moment)
    result = json.loads(run_to_the_end(*command, "auto", timeout=1_800).splitlines()[-1])
    assert result == expected(csv, events)


@pytest.mark.slow
@pytest.mark.spark
def test_three_kills(tmp_path: Path) -> None:
    check(tmp_path, events=20_000, kills=3, seed=1)


@pytest.mark.chaos
def test_fifty_kills(tmp_path: Path) -> None:
    check(tmp_path, events=1_000_000, kills=50, seed=0)
