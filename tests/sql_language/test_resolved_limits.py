"""Names that stand for others make a statement larger than its text: it is refused before that takes long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millpond import App
from millpond.errors import NotSupported


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'a')") as app:
        yield app


def listed(call: str, count: int) -> str:
    """Columns of a SELECT list, each of which names the one before it."""
    made = [call.format("id") + " AS a0", *(call.format(f"a{i}") + f" AS a{i + 1}" for i in range(count))]
    return f"SELECT {', '.join(made)} FROM t"


def nested(call: str, count: int) -> str:
    query = "SELECT id AS a FROM t"
    for _ in range(count):
        query = f"SELECT {call.format('a')} AS a FROM ({query})"
    return query


@pytest.mark.parametrize("call", ["{0} + {0}", "struct({0}, {0})", "concat({0}, {0})", "{0} + 1"])
def test_columns_that_name_one_another(app: App, call: str) -> None:
    with pytest.raises(NotSupported, match="name one another") as e:
        app.sql(listed(call, 400))
    assert e.value.line == 1 and e.value.hint


def test_fields_inside_of_fields(app: App) -> None:
    with pytest.raises(NotSupported, match='column "a" has more than 10,000 fields'):
        app.sql(nested("struct({0}, {0})", 25))


def test_columns_that_double(app: App) -> None:
    wide = f"SELECT {', '.join(f'{i} AS c{i}' for i in range(3_000))} FROM t"
    with pytest.raises(NotSupported, match="12,000 columns"):
        app.sql(f"SELECT *, * FROM (SELECT *, * FROM ({wide}))")


def test_what_people_write(app: App) -> None:
    row = app.sql(listed("{0} + 1", 20)).rows()[0]
    assert row["a20"] == 22
    assert app.sql(listed("{0} + {0}", 4)).rows()[0]["a4"] == 32
    assert list(app.sql("SELECT *, * FROM (SELECT *, * FROM t)").rows()[0].values()) == [1, "a"] * 4
