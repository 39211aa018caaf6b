"""Runs whose queries need Spark: rows as they come, once each through a restart."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest

pytestmark = pytest.mark.spark

APP = """\
CREATE STREAM s (id BIGINT, name STRING);
CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING);
INSERT INTO t SELECT id, name FROM s WHERE id > 0;
SELECT id, upper(name) AS name FROM s;
INSERT INTO s VALUES (1, 'one'), (2, 'two');
SELECT COUNT(*) AS n FROM t;
"""


def test_once_prints_running_queries_and_then_answers(cli):
    cli.file("app.sql", APP)
    done = cli("run", "app.sql", "--once", "--format", "json", "--master", "local[1]", "--state", "st")
    assert done.code == 0, done.err
    assert done.out.splitlines() == ['{"id":1,"name":"ONE"}', '{"id":2,"name":"TWO"}', '{"n":2}']
    assert "starting Spark" in done.err and "WARN" not in done.err
    again = cli("run", "app.sql", "--once", "--format", "json", "--master", "local[1]", "--state", "st")
    assert again.out.splitlines() == ['{"n":2}'], again.err


def test_rows_come_as_they_are_sent_and_clients_may_follow(cli):
    cli.file("app.sql", APP)
    run = cli.start(
        "run", "app.sql", "--state", "st", "--format", "json", "--master", "local[2]", background=True
    )
    run.wait_for('"n":2', "out")
    follower = cli.start(
        "query", "SELECT id + 10 AS more FROM s WHERE id > 1", "--format", "json", background=True
    )
    follower.wait_for('{"more":12}', "out")
    assert cli("query", "INSERT INTO s VALUES (3, 'three')", "--state", "st").code == 0
    run.wait_for('{"id":3,"name":"THREE"}', "out")
    follower.wait_for('{"more":13}', "out")
    queries = cli("query", "SHOW QUERIES", "--format", "json").out.splitlines()
    assert len(queries) == 3 and {json.loads(q)["state"] for q in queries} == {"running"}
    assert follower.stop(signal.SIGINT) == 130
    deadline = time.monotonic() + 60
    while len(cli("query", "SHOW QUERIES", "--format", "json").out.splitlines()) > 2:
        assert time.monotonic() < deadline, "the query of a client that left is still running"
    assert run.stop(signal.SIGINT) == 0
    assert run.err.read_text().endswith("stopped\n") and "Traceback" not in run.err.read_text()
    lines = run.out.read_text().splitlines()
    assert sorted(lines) == sorted(set(lines))


def test_a_query_that_fails_ends_the_run_with_its_error(cli):
    cli.file(
        "app.sql",
        "CREATE STREAM s (id BIGINT);\nSELECT 10 / id AS x FROM s WITH ('on.error' = 'fail');\n"
        "INSERT INTO s VALUES (0);",
    )
    done = cli("run", "app.sql", "--master", "local[1]")
    assert done.code == 1 and "zero" in done.err.lower(), done.err
    assert len(done.err.splitlines()) < 15


def test_the_demo(cli):
    run = cli.start("demo", "--trades", "2000", "--http", "0")
    run.wait_for("trades continue")
    said, shown = run.err.read_text(), run.out.read_text()
    assert "profit by trader" in shown and "trades/s" in said and "Hana" in shown
    url = re.search(r"http://127\.0\.0\.1:\d+", said)[0]
    ask = {"sql": "SELECT COUNT(*) AS n FROM pnl"}
    before = httpx.post(f"{url}/sql", json=ask).json()["rows"][0]["n"]
    while httpx.post(f"{url}/sql", json=ask).json()["rows"][0]["n"] == before:
        time.sleep(0.1)
    assert "<title>" in httpx.get(url).text
    assert run.stop(signal.SIGTERM) == 0 and "millpond run" in run.err.read_text()


def test_the_demo_over_topics(cli, servers):
    done = cli("demo", "--trades", "2000", "--kafka", servers.kafka.brokers)
    assert done.code == 0, done.err
    assert "profit by trader" in done.out and "trades/s" in done.err and '"trade_id":' in done.out
    assert "make kafka" in done.err and "kafka.sql" in done.err and "Hana" in done.out
    topics = {t: servers.kafka.consume(t) for t in ("pnl-trades", "pnl-enriched")}
    assert len(topics["pnl-trades"]) == 2000 and 0 < len(topics["pnl-enriched"]) < 2000
    assert all(key is not None for key, _ in topics["pnl-enriched"])


def test_a_reader_that_leaves_early(cli):
    cli.file("app.sql", "CREATE STREAM s (id BIGINT);\nSELECT id FROM s;\nINSERT INTO s VALUES (1), (2);")
    code = "from millpond.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "run", "app.sql", "--master", "local[1]"],
        cwd=cli.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(180) == 1
    assert "Traceback" not in errors and "internal" not in errors
