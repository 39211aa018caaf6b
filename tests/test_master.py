"""A Spark master that cannot be reached is told when an app opens, before Spark tries for a minute."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from millpond.engine.cluster import check_master
from millpond.errors import EngineError

PROGRAM = """
from millpond import App, Error
try:
    App("CREATE STREAM s (id INT); CREATE TABLE t AS SELECT id FROM s;", master="spark://127.0.0.1:1")
except Error as error:
    print(error.code, error)
"""


def test_a_master_that_cannot_be_reached_is_named() -> None:
    began = time.monotonic()
    with pytest.raises(EngineError, match=r'no Spark master can be reached at "spark://127\.0\.0\.1:1"'):
        check_master("spark://127.0.0.1:1")
    with pytest.raises(EngineError, match="no Spark master"):
        check_master("spark://127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(EngineError, match="no Spark master"):
        check_master("spark://127.0.0.1:port")
    assert time.monotonic() - began < 60


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local-cluster[1,1,1024]", "yarn", "k8s://https://far:6443"]
)
def test_others_are_left_to_spark(master: str) -> None:
    check_master(master)


def test_an_app_on_it_does_not_open() -> None:
    env = {k: v for k, v in os.environ.items() if k != "MILLPOND_MASTER"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, timeout=50
    )
    assert done.stderr == ""
    assert done.stdout.startswith("engine ")
    assert 'query "table:t": no Spark master can be reached at "spark://127.0.0.1:1": ' in done.stdout
    assert "hint: check the address, and that the master runs there" in done.stdout
