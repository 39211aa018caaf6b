"""One meaning: rows of a database are the same here, and a condition finds the same of them whether the database looks
for them or not."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from tests.conditions import COLUMNS, condition, narrowed, rows
from tests.contract.databases import DATABASES, Base
from tests.servers import Servers

ROWS = 200
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=DATABASES)
def base(request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Base:
    made = DATABASES[request.param](servers, Path(tmp_path_factory.mktemp(request.param)))
    made.create("made", COLUMNS)
    made.fill("made", [tuple(row.values()) for row in rows(ROWS)])
    return made


@pytest.fixture(scope="module")
def app(base: Base) -> Iterator[App]:
    with App(f"CREATE TABLE t AS SELECT * FROM '{base.uri('made')}'") as app:
        yield app


def plain(value: Any) -> Any:
    """Times as of UTC; NaN as something that equals itself."""
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def test_rows(app: App, base: Base) -> None:
    found = app.sql("SELECT * FROM t ORDER BY id").rows()
    expected = [{name: base.held(value) for name, value in row.items()} for row in rows(ROWS)]
    assert [{k: plain(v) for k, v in row.items()} for row in found] == [
        {k: plain(v) for k, v in row.items()} for row in expected
    ]


def check(app: App, base: Base, seed: int, count: int) -> None:
    chance = random.Random(seed)
    different: list[str] = []
    for number in range(count):
        where = condition(chance) if number % 2 else narrowed(chance)
        found, expected = (
            sorted(row["id"] for row in app.sql(f"SELECT id FROM {table} WHERE {where}").rows())
            for table in (f"'{base.uri('made')}'", "t")
        )
        if found != expected:
            different.append(f"{where}: {found}, not {expected}")
        if number % 4 == 0:  # any of the rows, so many
            most = chance.randint(1, 5)
            some = app.sql(f"SELECT id FROM '{base.uri('made')}' WHERE {where} LIMIT {most}").rows()
            if len(some) != min(most, len(expected)) or not {r["id"] for r in some} <= set(expected):
                different.append(f"{where} LIMIT {most}: {some}, of {expected}")
    assert not different, f"{len(different)} with seed {seed}:\n" + "\n".join(different[:10])


def test_conditions(app: App, base: Base) -> None:
    check(app, base, seed=1, count=20)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(2, 5))
def test_many_conditions(app: App, base: Base, seed: int) -> None:
    check(app, base, seed, 300)
