"""An app on executors that are processes of their own: the same answers, and the driver's own Millpond there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.engine.cluster import is_cluster, is_here

ROWS = 12_000
"""More than are answered in the driver."""
PROGRAM = """
import json, os, sys
from millpond import App

SQL = '''
CREATE STREAM picks (id BIGINT, sym STRING, qty INT);
CREATE TABLE syms (PRIMARY KEY (sym)) AS SELECT * FROM file://{folder}/syms.csv;
CREATE TABLE joined (PRIMARY KEY (id)) AS
  SELECT p.id, s.name, p.qty * s.price AS value, place(p.id) AS place FROM picks p JOIN syms s ON s.sym = p.sym;
CREATE STREAM pages (id INT, url STRING) WITH ('batch.max.time' = '1ms');
CREATE TABLE ids AS SELECT id, regexp_extract(url, '(&|^)id=([^&]*)', 2) AS found FROM pages;
CREATE TABLE totals AS SELECT s.name, SUM(p.qty) AS qty FROM picks p JOIN syms s ON s.sym = p.sym GROUP BY s.name;
'''

def place(number: int) -> str:
    import millpond

    return f"{{os.getpid()}} {{millpond.__file__}}"

with App(SQL, state=r"{folder}/state", master="local-cluster[1,2,1024]", functions=[place]) as app:
    app.send("picks", [{{"id": i, "sym": f"s{{i % 50}}", "qty": i % 7}} for i in range({rows})])
    app.drain(120)
    for rows in (2_000, 6_000):
        app.send("pages", [{{"id": i, "url": f"a=1&id={{i}}"}} for i in range(rows)])
        app.drain(120)
    found = {{
        "driver": os.getpid(),
        "joined": app.sql("SELECT COUNT(*) AS n, CAST(SUM(value) AS STRING) AS value FROM joined").rows(),
        "totals": app.sql("SELECT COUNT(*) AS n, SUM(qty) AS qty FROM totals").rows(),
        "ids": app.sql("SELECT COUNT(*) AS n, COUNT(DISTINCT found) AS d FROM ids").rows(),
        "places": app.sql("SELECT DISTINCT place FROM joined").rows(),
    }}
    print(json.dumps(found))
"""


def test_masters() -> None:
    assert [
        is_cluster(m) for m in ("local", "local[4]", "local-cluster[1,1,1024]", "spark://h:7077", "yarn")
    ] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert [is_here(m) for m in ("local[2]", "spark://localhost:7077", "spark://far:7077", "yarn")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_an_app_on_executors(tmp_path: Path) -> None:
    (tmp_path / "syms.csv").write_text(
        "sym,name,price\n" + "".join(f"s{i},Name {i},{i}.5\n" for i in range(50))
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(folder=tmp_path, rows=ROWS)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    value = sum((i % 7) * (i % 50 + 0.5) for i in range(ROWS))
    assert found["joined"][0]["n"] == ROWS and float(found["joined"][0]["value"]) == value
    assert found["totals"] == [{"n": 50, "qty": sum(i % 7 for i in range(ROWS))}]
    assert found["ids"] == [{"n": 8_000, "d": 6_000}]
    for place in found["places"]:
        process, _, package = place["place"].partition(" ")
        assert int(process) != found["driver"] and "millpond.zip" in package
