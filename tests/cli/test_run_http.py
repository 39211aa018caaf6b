"""``millpond run --http``: the app answers over HTTP while it runs."""

from __future__ import annotations

import re
import signal

import httpx
import pytest

APP = "CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING);\nINSERT INTO t VALUES (1, 'one'), (2, 'two');\n"


def test_it_answers_until_it_is_stopped(cli):
    cli.file("x.csv", "a\n1\n")
    cli.file("app.sql", APP)
    run = cli.start(
        "run", "app.sql", "--http", "0", "--http-allow", f"file://{cli.cwd}/", MILLPOND_TOKEN_READ="r" * 16
    )
    run.wait_for("running app.sql")
    url = re.search(r"answering at (http://127\.0\.0\.1:\d+)", run.err.read_text())[1]
    headers = {"Authorization": f"Bearer {'r' * 16}"}
    assert httpx.get(f"{url}/tables/t/rows/2").status_code == 401
    assert httpx.get(f"{url}/tables/t/rows/2", headers=headers).json() == {"id": 2, "name": "two"}
    body = {"sql": f"SELECT * FROM file://{cli.cwd}/x.csv"}
    assert httpx.post(f"{url}/sql", json=body, headers=headers).json()["rows"] == [{"a": 1}]
    assert run.stop(signal.SIGTERM) == 0
    assert "Traceback" not in run.err.read_text() and "r" * 16 not in run.err.read_text()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--http", "0.0.0.0:8080"], 1, "MILLPOND_TOKEN_READ"),
        (["--http", "eighty"], 1, "8080, or 127.0.0.1:8080"),
        (["--http-allow", "file:///data/"], 2, "needs --http"),
        (["--http", "0", "--http-allow", "/data/"], 1, "no beginning of a URI"),
    ],
)
def test_what_is_refused_before_it_starts(cli, args, code, says):
    cli.file("app.sql", APP)
    done = cli("run", "app.sql", *args)
    assert done.code == code and says in done.err and done.out == ""


def test_what_was_acknowledged_survives_a_kill(cli):
    """Each request has its key and is sent again after the kill: no row is lost, none is there twice."""
    cli.file("app.sql", "CREATE STREAM s (id INT); CREATE TABLE t (id INT);")

    def start():
        run = cli.start("run", "app.sql", "--state", "st", "--http", "0")
        run.wait_for("answering at")
        return run, re.search(r"answering at (\S+)", run.err.read_text())[1]

    run, url = start()
    bodies = [[{"id": n}, {"id": -n}] for n in range(1, 41)]
    acknowledged = 0
    for number, body in enumerate(bodies):
        if number == 25:
            run.process.kill()
            run.process.wait()
        try:
            answer = httpx.post(f"{url}/streams/s", json=body, headers={"Idempotency-Key": f"k{number}"})
            acknowledged += answer.json() == {"rows": 2}
        except httpx.TransportError:
            break
    assert acknowledged == 25
    run, url = start()
    assert httpx.get(f"{url}/streams").json()["streams"][0]["rows"] == 50
    for number, body in enumerate(bodies):
        again = httpx.post(f"{url}/streams/s", json=body, headers={"Idempotency-Key": f"k{number}"})
        assert again.json() == {"rows": 2}
        assert ("idempotency-replayed" in again.headers) == (number < acknowledged)
    assert httpx.get(f"{url}/streams").json()["streams"][0]["rows"] == 80
    assert run.stop(signal.SIGTERM) == 0
