"""A newcomer's path: a small app is written, checked, tested, run, looked at in the browser's page, fed and asked with
curl."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time

import pytest

APP = """
CREATE STREAM visits (page STRING, visitor BIGINT);
CREATE TABLE people (PRIMARY KEY (id)) AS SELECT * FROM file://people.csv;
CREATE TABLE seen AS
  SELECT v.page, p.name, p.city FROM visits v JOIN people p ON p.id = v.visitor;
CREATE TABLE pages AS SELECT page, COUNT(*) AS visits FROM visits GROUP BY page;
"""
PEOPLE = "id,name,city\n1,Ada,Leeds\n2,Ben,York\n"
CASE = """
=== visits are counted, and people are found

--- app app.sql

--- send visits
page  | visitor
/     | 1
/pens | 2
/     | 9

--- query
SELECT * FROM pages
--- rows
page  | visits
/     | 2
/pens | 1

--- query
SELECT name, page FROM seen
--- rows
name | page
Ada  | /
Ben  | /pens
"""


def curl(*arguments: str) -> str:
    return subprocess.run(["curl", "-sS", *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_from_nothing_to_answers(cli):
    cli.file("app.sql", APP)
    cli.file("people.csv", PEOPLE)
    cli.file("app.test", CASE)
    assert cli("check", "app.sql").code == 0
    assert "1 passed" in cli("test", "app.test").err
    run = cli.start("run", "app.sql", "--state", "state", "--http", "0")
    run.wait_for("running app.sql")
    url = re.search(r"http://127\.0\.0\.1:\d+", run.err.read_text())[0]
    assert "<title>" in curl(f"{url}/")
    rows = json.dumps([{"page": "/", "visitor": 1}, {"page": "/", "visitor": 2}])
    curl("-X", "POST", f"{url}/streams/visits", "-H", "Content-Type: application/json", "-d", rows)
    with (cli.cwd / "people.csv").open("a") as people:
        people.write("3,Cleo,Hull\n")
    deadline = time.monotonic() + 120
    while '"visits":2' not in curl(f"{url}/tables/pages/rows") and time.monotonic() < deadline:
        time.sleep(0.2)
    while "Cleo" not in curl(f"{url}/tables/people/rows/3") and time.monotonic() < deadline:
        time.sleep(0.2)
    body = json.dumps({"sql": "SELECT name FROM seen WHERE city = ? ORDER BY name", "params": ["York"]})
    answer = json.loads(curl(f"{url}/sql", "-H", "Content-Type: application/json", "-d", body))
    assert answer["rows"] == [{"name": "Ben"}]
    assert json.loads(curl(f"{url}/ready"))["state"] == "ready"
    assert "(1 row)" in cli("query", "SELECT * FROM people WHERE name = 'Cleo'", "--state", "state").out
    assert run.stop(signal.SIGTERM) == 0
    done = cli("query", "SELECT visits FROM pages", "--state", "state", "--format", "csv")
    assert done.out == "visits\n2\n"
