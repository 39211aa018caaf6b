"""``millpond tables`` and ``millpond top``."""

from __future__ import annotations

import json
import signal
import time

APP = """
CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE TABLE n AS SELECT COUNT(*) AS n FROM t;
CREATE TABLE f AS SELECT * FROM file://{0}/x.csv;
"""


def test_tables_and_top_of_a_running_app(cli):
    cli.file("x.csv", "id,name\n1,a\n2,b\n3,c\n")
    cli.file("app.sql", APP.format(cli.cwd))
    run = cli.start("run", "app.sql", "--state", "st")
    run.wait_for("running app.sql")
    done = cli("tables", "--format", "json")
    found = {row["name"]: row for row in map(json.loads, done.out.splitlines())}
    assert {name: row["rows"] for name, row in found.items()} == {"t": 2, "n": 1, "f": 3}
    assert found["f"]["source"] == "file" and found["f"]["health"].startswith("healthy: it follows file:///")
    assert found["t"]["primary_key"] == "id"
    done = cli("top", "--once", "--state", "st")
    assert done.code == 0 and "queries" in done.out and "table:n" in done.out and "running" in done.out
    live = cli.start("top", "--interval", "0.2", background=True)
    deadline = time.monotonic() + 60
    while live.out.read_text().count("tables") < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert live.stop(signal.SIGINT) == 0 and live.out.read_text().count("table:n") >= 2
    assert run.stop(signal.SIGTERM) == 0
    done = cli("tables", "--state", "st")
    assert done.code == 0 and "healthy" in done.out


def test_without_an_app(cli):
    done = cli("top", "--once")
    assert done.code == 0 and "tables" in done.out
    assert cli("top", "--interval", "0").code == 2
