"""A year of retention by a clock that is moved by hand: sizes stay bounded, and no reader is misled.

Streams keep 30 and 10 days of their rows, tables 14 days by the time of the commit and by a column. One reader is
paused for weeks at a time, and the app is closed or killed in between. Everything is compared with a list of what was
sent when.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from millpond import App
from millpond.clock import ManualClock
from millpond.testing.crash import crash
from tests.test_retention import ids, kept, query, size_of

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
SQL = """
CREATE STREAM s (id INT, at TIMESTAMP, v STRING) WITH ('retention' = '30d');
CREATE STREAM d WITH ('retention' = '10d') AS SELECT id, v FROM s WHERE id % 2 = 0;
CREATE TABLE counted AS SELECT COUNT(*) AS n, SUM(id) AS total FROM s;
CREATE TABLE slow WITH ('ttl' = '14d') AS SELECT id FROM s;
CREATE TABLE recent (id INT PRIMARY KEY, at TIMESTAMP)
  WITH ('extension' = 'sqlite', 'ttl' = '14d', 'ttl.column' = 'at');
INSERT INTO recent SELECT id, at FROM s;
CREATE MATERIALIZED VIEW seen AS SELECT COUNT(*) AS n, MIN(id) AS first FROM recent;
CREATE TABLE evens AS SELECT COUNT(*) AS n FROM d;
"""


@dataclass
class Year:
    """An app, and what it must have."""

    state: Path
    rows: int
    step: timedelta
    chosen: random.Random
    clock: ManualClock = field(default_factory=lambda: ManualClock(BEGIN))
    sent: int = 0
    times: list[datetime] = field(default_factory=list)
    paused: bool = False
    sizes: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    def open(self) -> App:
        return App(
            SQL, state=self.state, engine="process", compact_after="1MB", _clock=self.clock, _direct=True
        )

    def live(self, app: App) -> None:
        """Sends rows, and lets time pass."""
        now, first = self.clock.now(), self.sent
        self.sent += self.rows
        self.times += [now] * self.rows
        columns = {
            "id": pa.array(range(first, self.sent), pa.int32()),
            "at": pa.array([now] * self.rows, pa.timestamp("us", "UTC")),
            "v": ["x" * 50] * self.rows,
        }
        app.send("s", pa.table(columns))
        app.drain()
        self.clock.advance(self.step.total_seconds())
        app.drain()

    def young(self, days: int) -> list[int]:
        """Returns the numbers of the rows that are not older."""
        limit = self.clock.now() - timedelta(days=days)
        return [i for i, at in enumerate(self.times) if at >= limit]

    def check(self, app: App) -> None:
        app.drain()
        total, left = kept(app)
        assert total == self.sent and self._few(left, self.young(30))
        assert self._few(kept(app, "d")[1], [i for i in self.young(10) if i % 2 == 0])
        (counted,) = app.sql("SELECT n, total FROM counted").rows()
        assert counted == {"n": self.sent, "total": sum(range(self.sent))}, "what was counted stays"
        assert app.sql("SELECT n FROM evens").rows() == [{"n": (self.sent + 1) // 2}]
        found = self.young(14)
        assert ids(app, "recent") == found
        assert app.sql("SELECT n, first FROM seen").rows() == [
            {"n": len(found), "first": min(found, default=None)}
        ]

    def _few(self, left: int, young: list[int]) -> bool:
        """Returns whether a stream has the young rows, and few others: a file goes when all of it is old."""
        return len(young) <= left <= 2 * len(young) + self.rows

    def measure(self, app: App) -> None:
        log = self.state / "journal.db-wal"
        self.sizes.append(size_of(self.state) - (log.stat().st_size if log.exists() else 0))
        self.memory.append(len(app.table("recent")) + len(app.table("slow")))


def told_of(app: App) -> set[int]:
    """Returns the rows of which the slow reader was told that they were gone."""
    found = set[int]()
    for row in app.table("slow$errors").all_rows():
        numbers = [int(w.strip(",")) for w in row["reason"].split() if w.strip(",").isdigit()]
        found |= set(range(numbers[-2], numbers[-1] + 1)) if len(numbers) > 1 else {numbers[0]}
    return found


def run(state: Path, rows: int, step: timedelta, seed: int, restarts: int) -> Year:
    """Lets a year pass; what ``slow`` has missed it was told of."""
    chosen = random.Random(seed)
    year = Year(state, rows, step, chosen)
    steps = int(timedelta(days=365) / step)
    ends = set(chosen.sample(range(1, steps), restarts))
    month = max(1, int(timedelta(days=30) / step))
    app = year.open()
    read = set[int]()
    try:
        for number in range(steps):
            if chosen.random() < 0.15:
                app.sql(f"{'RESUME' if year.paused else 'PAUSE'} QUERY `table:slow`")
                year.paused = not year.paused
            year.live(app)
            read |= set(ids(app, "slow"))
            if number in ends:
                crash(app) if chosen.random() < 0.5 else app.close()
                app = year.open()
            if number % month == month - 1:
                year.check(app)
                year.measure(app)
        if year.paused:
            app.sql("RESUME QUERY `table:slow`")
            year.paused = False
            app.drain()
            read |= set(ids(app, "slow"))
        year.check(app)
        missed = set(range(year.sent)) - read
        assert missed == told_of(app)
        assert query(app, "table:slow")["lost"] <= len(missed) and not missed & set(year.young(30))
    finally:
        app.close()
    return year


def test_a_year_by_weeks(tmp_path: Path) -> None:
    year = run(tmp_path, rows=20, step=timedelta(days=7), seed=1, restarts=2)
    assert max(year.memory) <= 10 * year.rows


@pytest.mark.chaos
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(3))
def test_a_year_by_half_days(tmp_path: Path, seed: int) -> None:
    year = run(tmp_path, rows=500, step=timedelta(hours=12), seed=seed, restarts=20)
    assert max(year.sizes[2:]) < 1.5 * max(year.sizes[:2]) + 4_000_000, year.sizes
    print(f"{year.sent:,} rows, megabytes by month: {[round(s / 1e6, 1) for s in year.sizes]}")
