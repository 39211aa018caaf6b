"""Messages that end rows: whatever a keyed table over a topic declares, renames or computes, it is what a recomputed
model says."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.connectors.kafka.stand_in import GivenKafkaTopic
from millpond.connectors.source import Source
from millpond.connectors.stand_in import Message as Sent
from millpond.connectors.stand_in import stream_of
from millpond.testing import Case, read_cases, run_case
from millpond.testing.crash import crash
from millpond.testing.topics import Topics
from millpond.types import Schema
from tests.servers import Kafka, Servers
from tests.test_kafka import new_topic, uri

pytestmark = pytest.mark.slow

Row = dict[str, Any]
Message = tuple[str, str | None]
"""Key and value."""


@dataclass
class Users:
    """A table of users elsewhere, and the messages that tell of its changes.

    ``before`` says how much an envelope of Debezium tells of what a row was: all of it, its key, or, of an update,
    nothing; without it values are the rows themselves, and deletes are messages without one.
    """

    chance: random.Random
    before: str | None = None
    wrapped: bool = False
    key_form: str = "text"
    only: tuple[str, ...] = ()
    """The tables over it that are looked at; all if none is named."""
    rows: dict[int, Row] = field(default_factory=dict)
    passed: dict[int, Row] = field(default_factory=dict)
    """As ``WHERE name <> 'c'`` sees them: in a topic of rows, one that does not pass says nothing."""

    def key(self, row: Row) -> str:
        inner = {"id": row["id"]}
        return {
            "text": str(row["id"]),
            "object": json.dumps(inner),
            "payload": json.dumps({"schema": {}, "payload": inner}),
            "pair": json.dumps({"code": row["code"], "id": row["id"]}),
        }[self.key_form]

    def changes(self, count: int) -> Iterator[Message]:
        for _ in range(count):
            number = self.chance.randrange(12)
            old = self.rows.get(number)
            if old is not None and self.chance.random() < 0.4:
                yield from self._delete(old)
            else:
                new = {"id": number, "code": f"x{number % 3}", "name": self.chance.choice("abcd")}
                yield self.key(new), self._value(old, new)
                self._note(number, new)

    def _delete(self, old: Row) -> Iterator[Message]:
        if self.before is not None:
            yield self.key(old), self._value(old, None)
        if self.before is None or self.chance.random() < 0.5:
            yield self.key(old), None
        self._note(old["id"], None)

    def _note(self, number: int, new: Row | None) -> None:
        if new is None:
            self.rows.pop(number, None)
            self.passed.pop(number, None)
            return
        self.rows[number] = new
        if new["name"] != "c":
            self.passed[number] = new
        elif self.before is not None:
            self.passed.pop(number, None)

    def _value(self, old: Row | None, new: Row | None) -> str:
        if self.before is None:
            return json.dumps(new)
        op = "c" if old is None else "d" if new is None else "u"
        shown = old
        if old is not None and self.before != "all":
            shown = None if op == "u" else {k: old[k] if k != "name" else None for k in old}
        envelope = {"op": op, "before": shown, "after": new}
        return json.dumps({"schema": {}, "payload": envelope} if self.wrapped else envelope)


@dataclass(frozen=True)
class Variant:
    """A table over the users, and what it should hold of them."""

    sql: str
    query: str
    expected: Callable[[Users], list[tuple[Any, ...]]]


def _rows(*columns: Callable[[Row], Any]) -> Callable[[Users], list[tuple[Any, ...]]]:
    return lambda users: [tuple(c(row) for c in columns) for row in users.rows.values()]


def _id(row: Row) -> int:
    return int(row["id"])


def _name(row: Row) -> str:
    return str(row["name"])


VARIANTS = {
    "columns_of_the_query": Variant(
        "CREATE TABLE {t} (PRIMARY KEY (id)) AS SELECT id, name FROM {source}", "id, name", _rows(_id, _name)
    ),
    "declared_columns": Variant(
        "CREATE TABLE {t} (id BIGINT, name STRING, PRIMARY KEY (id)) AS SELECT id, name FROM {source}",
        "id, name",
        _rows(_id, _name),
    ),
    "declared_as_another_type": Variant(
        "CREATE TABLE {t} (k STRING PRIMARY KEY, n STRING) AS SELECT id, upper(name) FROM {source} WHERE name <> 'c'",
        "k, n",
        lambda users: [(str(r["id"]), r["name"].upper()) for r in users.passed.values()],
    ),
    "inserted": Variant(
        "CREATE TABLE {t} (k INT PRIMARY KEY, n STRING); INSERT INTO {t} SELECT id, name FROM {source}",
        "k, n",
        _rows(_id, _name),
    ),
    "inserted_by_name": Variant(
        "CREATE TABLE {t} (k DECIMAL(5,1) PRIMARY KEY, a INT, n STRING);"
        " INSERT INTO {t} (n, k) SELECT name, id FROM {source}",
        "CAST(k AS INT), a, n",
        _rows(_id, lambda _: None, _name),
    ),
    "renamed": Variant(
        "CREATE TABLE {t} (PRIMARY KEY (who)) AS SELECT id AS who, name FROM {source}",
        "who, name",
        _rows(_id, _name),
    ),
    "computed_in_a_subquery": Variant(
        "CREATE TABLE {t} (PRIMARY KEY (k)) AS SELECT k, name FROM (SELECT id + 100 AS k, name FROM {source}) AS x",
        "k, name",
        _rows(lambda r: _id(r) + 100, _name),
    ),
    "through_a_cte": Variant(
        "CREATE TABLE {t} (k BIGINT PRIMARY KEY, n STRING) AS"
        " WITH c (i, n) AS (SELECT id, name FROM {source}) SELECT i, n FROM c",
        "k, n",
        _rows(_id, _name),
    ),
    "through_a_view": Variant(
        "CREATE VIEW {t}_v AS SELECT id AS vid, name FROM {source};"
        " CREATE MATERIALIZED VIEW {t} (a, b) AS SELECT vid, name FROM {t}_v WITH ('primary.key' = 'a')",
        "a, b",
        _rows(_id, _name),
    ),
    "two_columns": Variant(
        "CREATE TABLE {t} (a STRING, b BIGINT, n STRING, PRIMARY KEY (a, b)) AS SELECT code, id, name FROM {source}",
        "a, b, n",
        _rows(lambda r: r["code"], _id, _name),
    ),
    "the_key_of_the_message": Variant(
        "CREATE TABLE {t} (who STRING PRIMARY KEY, name STRING) AS SELECT _key, name FROM {source}",
        "who, name",
        lambda users: [(users.key(r), r["name"]) for r in users.rows.values()],
    ),
    "keyed_by_itself": Variant(
        "CREATE TABLE {t} AS SELECT name FROM {source}",
        "_key, name",
        lambda users: [(users.key(r), r["name"]) for r in users.rows.values()],
    ),
    "keyed_by_itself_with_declared_columns": Variant(
        "CREATE TABLE {t} (n STRING, k STRING) AS SELECT name, _key FROM {source}",
        "_key, k, n",
        lambda users: [(users.key(r), users.key(r), r["name"]) for r in users.rows.values()],
    ),
    "beside_a_table": Variant(
        "CREATE TABLE {t}_codes (code STRING PRIMARY KEY, title STRING); INSERT INTO {t}_codes VALUES ('x1', 'one');"
        " CREATE TABLE {t} (PRIMARY KEY (id)) AS"
        " SELECT s.id, s.name, c.title FROM {source} AS s LEFT JOIN {t}_codes c ON c.code = s.code",
        "id, name, title",
        _rows(_id, _name, lambda r: "one" if r["code"] == "x1" else None),
    ),
    "misses_are_dropped": Variant(
        "CREATE TABLE {t}_codes (code STRING PRIMARY KEY, title STRING); INSERT INTO {t}_codes VALUES ('x1', 'one');"
        " CREATE TABLE {t} (id BIGINT PRIMARY KEY, title STRING) AS"
        " SELECT s.id, c.title FROM {source} AS s JOIN {t}_codes c ON c.code = s.code WITH ('on.miss' = 'drop')",
        "id, title",
        lambda users: [(_id(r), "one") for r in users.rows.values() if r["code"] == "x1"],
    ),
    "grouped": Variant(
        "CREATE TABLE {t}_base (id BIGINT PRIMARY KEY, name STRING) AS SELECT id, name FROM {source};"
        " CREATE TABLE {t} AS SELECT name, COUNT(*) AS n FROM {t}_base GROUP BY name",
        "name, n",
        lambda users: list(Counter(r["name"] for r in users.rows.values()).items()),
    ),
    "in_a_block": Variant(
        "CREATE STREAM {t}_s {stream}; CREATE TABLE {t} (id BIGINT PRIMARY KEY, name STRING);"
        " CREATE TABLE {t}_2 (id BIGINT PRIMARY KEY, name STRING);"
        " BEGIN; INSERT INTO {t} SELECT id, name FROM {t}_s;"
        " INSERT INTO {t}_2 SELECT id, upper(name) FROM {t}_s; COMMIT",
        "id, name",
        _rows(_id, _name),
    ),
    "through_a_derived_stream": Variant(
        "CREATE STREAM {t}_s AS SELECT id, name, _deleted, _key FROM {source};"
        " CREATE TABLE {t} (k BIGINT PRIMARY KEY, n STRING) AS SELECT id, name FROM {t}_s",
        "k, n",
        _rows(_id, _name),
    ),
}
"""``{source}`` is a stream or the topic, ``{stream}`` how a stream over the topic is declared."""


def _variants(users: Users) -> dict[str, Variant]:
    """Those that keys of this form can tell: of a pair, and of nothing else, both columns."""
    pair = users.key_form == "pair"
    fitting = {n: v for n, v in VARIANTS.items() if pair == (n == "two_columns") or (pair and "key" in n)}
    return {n: v for n, v in fitting.items() if n in users.only} if users.only else fitting


COLUMNS = "(id BIGINT, code STRING, name STRING)"


def _sql(users: Users, source: str, topic: str) -> str:
    """The statements of all variants; ``source`` is how the topic is read."""
    uri = f"{topic}?format=debezium" if users.before else topic
    stream = f"{COLUMNS if source == 'declared' else ''} WITH ('connector' = '{uri}')"
    texts = [f"CREATE STREAM s {stream}"]
    for name, variant in _variants(users).items():
        sql = variant.sql.replace("{source} AS s", "{source}")
        texts.append(sql.format(t=name, source=f"{uri} AS s" if source == "inline" else "s", stream=stream))
    return ";\n".join(texts) + ";\n"


def _check(app: App, users: Users) -> None:
    for name, variant in _variants(users).items():
        found = app.sql(f"SELECT {variant.query} FROM {name}").to_arrow()
        rows = list(zip(*(c.to_pylist() for c in found.columns), strict=True))
        assert sorted(rows, key=repr) == sorted(variant.expected(users), key=repr), name
    assert not any(q["errors"] for q in app.sql("SHOW QUERIES").rows())


FORMS: list[tuple[str | None, bool, str]] = [
    (None, False, "text"),
    (None, False, "object"),
    (None, False, "payload"),
    (None, False, "pair"),
    ("all", False, "text"),
    ("key", False, "object"),
    ("key", True, "text"),
    ("all", True, "pair"),
]
Form = tuple[str | None, bool, str]


def _run(
    seed: int,
    form: Form,
    source: str,
    state: Path,
    *,
    rounds: int,
    on_spark: bool = False,
    only: tuple[str, ...] = (),
) -> None:
    """Sends changes and compares, round by round; in the middle the app is cut off."""
    users = Users(random.Random(seed), *form, only)
    # The columns of a topic that does not declare them are those of all that will be sent.
    later = Users(random.Random(seed), *form)
    everything = tuple(map(_sent, later.changes(60 * rounds)))
    topics = Topics(Case("", Path(), 0), state)

    def stand_in(address: str, values: Mapping[str, Any], declared: Schema | None) -> Source | None:
        is_topic = address.startswith("kafka:")
        return GivenKafkaTopic(address, values, declared, state, everything) if is_topic else None

    def begin() -> App:
        return App(
            _sql(users, source, "kafka://users"),
            state=state,
            _path="spark" if on_spark else "auto",
            _direct=not on_spark,
            _stand_in=stand_in,
        )

    app = begin()
    for number in range(rounds):
        sent = [_sent(m) for m in users.changes(40)]
        app._runtime.store.commit(sent={stream_of("users"): topics.rows("users", sent, datetime.now(UTC))})
        app.drain(120)
        _check(app, users)
        if number == rounds // 2:
            crash(app)
            app = begin()
    app.close()


def _sent(message: Message) -> Sent:
    key, value = message
    return Sent(key.encode(), None if value is None else value.encode(), None)


SOURCES = ("declared", "discovered", "inline")


@pytest.mark.parametrize(
    ("form", "source"), [(form, SOURCES[i % 3]) for i, form in enumerate(FORMS)], ids=str
)
def test_every_way_to_fill_a_keyed_table(form: Form, source: str, tmp_path: Path) -> None:
    _run(3, form, source, tmp_path / "state", rounds=2)


@pytest.mark.chaos
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("on_spark", [False, True])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_way_for_long(form: Form, source: str, on_spark: bool, tmp_path: Path) -> None:
    for seed in range(5):
        _run(seed, form, source, tmp_path / f"{seed}", on_spark=on_spark, rounds=6)


@pytest.mark.usefixtures("spark")
def test_every_way_on_spark(tmp_path: Path) -> None:
    only = ("declared_as_another_type", "computed_in_a_subquery", "misses_are_dropped", "in_a_block")
    _run(4, ("key", True, "object"), "declared", tmp_path / "state", rounds=1, on_spark=True, only=only)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("form", [FORMS[0], FORMS[5]], ids=str)
def test_every_way_from_a_broker(form: Form, servers: Servers) -> None:
    kafka: Kafka = servers.kafka
    topic = new_topic(kafka)
    users = Users(random.Random(5), *form)
    kafka.produce(topic, list(users.changes(40)))
    with App(_sql(users, "discovered", uri(kafka, topic))) as app:
        app.drain(120)
        _check(app, users)
        kafka.produce(topic, list(users.changes(40)))
        app.drain(120)
        _check(app, users)


def test_keys_that_do_not_tell_which_row_is_ended(tmp_path: Path) -> None:
    """They are error records, also in a query that looks for misses, and what is good counts."""
    path = tmp_path / "keys.test"
    path.write_text(
        """=== wrong keys
--- app
CREATE STREAM s (id BIGINT, code STRING) WITH ('connector' = 'kafka://s');
CREATE TABLE codes (code STRING PRIMARY KEY, title STRING);
INSERT INTO codes VALUES ('a', 'one');
CREATE TABLE t (k BIGINT PRIMARY KEY, title STRING) AS
  SELECT s.id, c.title FROM s JOIN codes c ON c.code = s.code WITH ('on.miss' = 'error');
CREATE TABLE pairs (a BIGINT, b STRING, PRIMARY KEY (a, b)) AS SELECT id, code FROM s;
--- send s
{"_key": "1", "id": 1, "code": "a"}
{"_key": "x", "_deleted": true}
{"_key": "{\\"no\\": 1}", "_deleted": true}
{"_deleted": true}
{"_key": "2", "id": 2, "code": "a"}
{"_key": "{\\"id\\": 1, \\"code\\": \\"a\\"}", "_deleted": true}
{"_key": "3", "id": 3, "code": "z"}
--- query
SELECT * FROM t
--- rows
k | title
2 | one
--- query
SELECT reason FROM `t$errors`
--- rows
reason
the key "x" of a message without a value is not a BIGINT "id"
the key {"no": 1} of a message without a value has no "id"
a message without a value has no key: which row it ends is not known
there is no match in table "codes"
--- query
SELECT * FROM pairs
--- rows
a | b
2 | a
3 | z
--- query
SELECT reason FROM `pairs$errors` WHERE reason LIKE '%"x"%'
--- rows
reason
the key "x" of a message without a value is not an object {"id": …, "code": …}
""",
        encoding="utf-8",
    )
    run_case(read_cases(path)[0], "plain", tmp_path)
