"""kill -9 while a table loads: the next run has what an undisturbed one has."""

from __future__ import annotations

import signal
import time

import pytest

SUMS = "SELECT COUNT(*) AS n, SUM(id) AS ids, SUM(price) AS total, COUNT(DISTINCT id) AS different FROM big"


@pytest.mark.timeout(300)
def test_a_load_that_was_killed_goes_on(cli):
    rows = 200_000
    lines = (f"{i},{i % 977}.{i % 100:02d}" for i in range(rows))
    cli.file("big.csv", "id,price\n" + "\n".join(lines) + "\n")
    cli.file(
        "app.sql",
        "CREATE TABLE big AS SELECT id, CAST(price AS DECIMAL(12,2)) AS price"
        f" FROM file://{cli.cwd}/big.csv;\n{SUMS};",
    )
    undisturbed = cli("run", "app.sql", "--once", "--state", "calm", "--format", "csv")
    assert undisturbed.code == 0 and undisturbed.out.splitlines()[1].startswith(f"{rows},")
    for delay in (0.0, 0.05, 0.1, 0.2):
        run = cli.start("run", "app.sql", "--state", "st")
        deadline = time.monotonic() + 60
        while not (cli.cwd / "st" / "lock").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(delay)
        run.stop(signal.SIGKILL)
    again = cli("run", "app.sql", "--once", "--state", "st", "--format", "csv")
    assert (again.code, again.out) == (0, undisturbed.out), again.err
    assert cli("query", SUMS, "--state", "st", "--format", "csv").out == undisturbed.out
