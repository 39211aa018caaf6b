"""The Java process that Spark runs in goes away: the app says so, tables answer, and what ran goes on in a new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.engine.failures import explain
from millpond.errors import EngineLost
from millpond.http.failures import status_of

PROGRAM = """
import json, os, signal
from pyspark import SparkContext
from millpond import App, Error

SQL = '''
CREATE STREAM pages (id INT, url STRING);
CREATE TABLE ids AS SELECT id, regexp_extract(url, '(&|^)id=([^&]*)', 2) AS found FROM pages;
CREATE TABLE counted AS SELECT COUNT(*) AS n FROM pages;
'''
ON_SPARK = "SELECT regexp_extract('b&id=7', '(&|^)id=([^&]*)', 2) AS x"

def killed():
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

def exhausted():
    gateway = SparkContext._gateway
    try:
        for _ in range(100):
            held.append(gateway.new_array(gateway.jvm.byte, 2**30))
    except Exception:
        pass

held, told = [], []
with App(SQL, state=r"{folder}/state") as app:
    for end in (None, killed, exhausted):
        if end is not None:
            end()
            SparkContext._gateway.proc.wait(30)
        answered = app.sql("SELECT n FROM counted").rows()
        app.send("pages", [{{"id": i, "url": f"a=1&id={{i}}"}} for i in range(10)])
        app.drain(120)
        told.append(
            {{
                "answered": answered,
                "retries": [q["retries"] for q in app.sql("SHOW QUERIES").rows()],
                "ready": app.ready().state,
                "ids": app.sql("SELECT COUNT(*) AS n, MAX(found) AS found FROM ids").rows(),
                "spark": app.sql(ON_SPARK).rows(),
            }}
        )
print(json.dumps(told))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_the_java_process_is_killed_and_runs_out_of_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(folder=tmp_path)],
        env={**os.environ, "MILLPOND_DRIVER_MEMORY": "512m"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
    first, killed, exhausted = json.loads(done.stdout)
    assert first["retries"] == [0, 0]
    for rows, told, why in ((10, killed, "was ended by SIGKILL"), (20, exhausted, "ran out of memory")):
        assert told["answered"] == [{"n": rows}]
        # It is started again by the batch that needs it.
        assert f"Spark's Java process is gone: it {why}; it is started again" in done.stderr
        assert told["ready"] == "ready"
        assert told["ids"] == [{"n": rows + 10, "found": "9"}]
        assert told["spark"] == [{"x": "7"}]


def test_a_broken_connection_to_it_is_told_as_what_it_is() -> None:
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    error = explain(Py4JNetworkError("Answer from Java side is empty"))
    assert isinstance(error, EngineLost) and error.retryable
    assert error.message.startswith("Spark's Java process is gone") and error.hint is not None
    assert status_of(error) == 503


def test_a_cause_below_the_call() -> None:
    """What Python saw of a failed job is a call; what it failed with stands at the end."""
    text = (
        "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
        "awaitResult: \n\tat org.apache.spark.X\nCaused by: java.util.NoSuchElementException: {}\n\tat scala.Y"
    )
    assert str(explain(RuntimeError(text.format("the map is empty"))).message) == "the map is empty"
    lost = explain(RuntimeError(text.format("key not found: a#66L")))
    assert lost.message.startswith("Spark has no plan for this query")
