"""Random edits of an app that has rows: statements and columns are added, changed, renamed and dropped, options change,
kills come in between. After each edit every table is what a fresh run over the kept rows gives, or the edit was refused
and nothing has changed. With a topic of Kafka the app also writes numbers into it, which goes on through all of this:
each number is there once.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millpond import App
from millpond.errors import Error
from millpond.testing.faults import Injected, failing, killing
from tests.servers import Kafka, Servers
from tests.test_kafka import new_topic, uri
from tests.test_kill import running

POINTS = (
    "upgrade: planned",
    "upgrade: committed",
    "upgrade: finished",
    "relation opened",
    "statement declared",
)
SINK_POINTS = (
    "sink opened",
    "sink: begun",
    "sink: produced",
    "sink: positioned",
    "sink: written",
    "journal: committed",
)


@dataclass
class Column:
    name: str
    type: str
    default: int | None = None

    def text(self) -> str:
        return f"{self.name} {self.type}" + (f" DEFAULT {self.default}" if self.default is not None else "")


@dataclass
class Made:
    """A statement of the file: ``columns`` of numbers, that others may read."""

    kind: str
    name: str
    columns: list[Column]
    body: str = ""
    key: str | None = None
    options: str = ""
    style: int = 0

    def text(self) -> str:
        name, body = self.name, self.body
        if self.style % 2 and " FROM " in body and "GROUP BY" not in body:
            head, _, tail = body.partition(" FROM ")
            source, _, rest = tail.partition(" ")
            body = f"{head}\n  FROM {source} AS some_{self.style} {rest}"
        match self.kind:
            case "stream":
                return f"CREATE STREAM {name} ({', '.join(c.text() for c in self.columns)}){self.options};"
            case "table":
                columns = [c.text() for c in self.columns]
                if self.key is not None:
                    columns.append(f"PRIMARY KEY ({self.key})")
                return f"CREATE TABLE {name} ({', '.join(columns)}){self.options};"
            case "derived":
                return f"CREATE STREAM {name} AS {body};"
            case "view":
                return f"CREATE VIEW {name} AS {body};"
            case "insert":
                return f"INSERT INTO {name} {body};"
        key = f" (PRIMARY KEY ({self.key}))" if self.key is not None else ""
        return f"CREATE TABLE {name}{key} AS {body};"


@dataclass
class File:
    statements: list[Made] = field(default_factory=list)
    topic: str | None = None
    style: int = 0

    def text(self, *, queries: bool = True) -> str:
        text = "\n".join(s.text() for s in self.statements if queries or s.kind != "insert")
        if self.topic is None or not queries:
            return text
        options = ("", " WITH ('retention' = '9d')", " WITH ('batch.max.rows' = 2)")[self.style % 3]
        alias = ("", f" AS x{self.style}")[self.style % 2]
        return f"""CREATE STREAM numbers (n BIGINT){options};
{text}
INSERT INTO {self.topic} SELECT n FROM numbers{alias}
  WITH ('delivery' = 'exactly-once', 'query.name' = 'out');"""

    def named(self, *kinds: str) -> list[Made]:
        return [s for s in self.statements if s.kind in kinds]


class Editor:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.count = 0

    def name(self, start: str) -> str:
        self.count += 1
        return f"{start}{self.count}"

    def number(self) -> int:
        return self.random.randint(0, 4)

    def columns(self) -> list[Column]:
        names = self.random.sample("abcdef", self.random.randint(2, 4))
        return [Column(n, self.random.choice(["INT", "BIGINT"])) for n in names]

    def first(self) -> File:
        file = File([Made("stream", self.name("s"), self.columns()) for _ in range(2)])
        file.statements += [Made("table", self.name("t"), self.columns()) for _ in range(2)]
        file.statements[-1].key = file.statements[-1].columns[0].name
        for _ in range(6):
            self.add(file)
        return file

    # edits

    def add(self, file: File) -> None:
        kind = self.random.choice(
            ["derived", "of_stream", "of_stream", "view", "of_table", "of_table", "insert"]
        )
        made = self.query(file, kind, self.name(kind[:4]))
        if made is not None:
            file.statements.append(made)

    def query(self, file: File, kind: str, name: str, before: int | None = None) -> Made | None:
        there = File(file.statements[:before])
        streams, tables = (
            there.named("stream", "derived"),
            there.named("table", "of_stream", "of_table", "view"),
        )
        if kind == "insert":
            targets = [t for t in there.named("table") if t.key is None]
            if not streams or not targets:
                return None
            source, target = self.random.choice(streams), self.random.choice(targets)
            picked = [self.random.choice(source.columns).name for _ in target.columns[:1]]
            body = f"({target.columns[0].name}) SELECT CAST({picked[0]} AS INT) FROM {source.name}"
            return Made("insert", target.name, [], body)
        source = self.random.choice(streams if kind in ("derived", "of_stream") else tables)
        one, two = (self.random.choice(source.columns).name for _ in range(2))
        where = f" WHERE {one} > {self.number()}" if self.random.random() < 0.5 else ""
        if kind in ("of_stream", "of_table") and self.random.random() < 0.5:
            function = self.random.choice(["SUM", "MAX", "MIN", "COUNT"])
            having = f" HAVING COUNT(*) > {self.number() // 2}" if self.random.random() < 0.4 else ""
            extra = f", {function}({two}) + {self.number()} AS y" if self.random.random() < 0.7 else ""
            body = f"SELECT {one} AS g, COUNT(*) AS n{extra} FROM {source.name}{where} GROUP BY {one}{having}"
            return Made(
                kind, name, [Column(c, "BIGINT") for c in ("g", "n", *(("y",) if extra else ()))], body
            )
        if self.random.random() < 0.2 and kind != "derived":
            return Made(kind, name, list(source.columns), f"SELECT * FROM {source.name}{where}")
        shown = self.random.sample(["x", "y", "z"], 2)
        body = f"SELECT {one} AS {shown[0]}, {two} + {self.number()} AS {shown[1]} FROM {source.name}{where}"
        return Made(kind, name, [Column(c, "BIGINT") for c in shown], body)

    def edit(self, file: File) -> File:
        file = deepcopy(file)
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self.random.choice(
                [
                    self.add,
                    self.drop,
                    self.change,
                    self.change,
                    self.rename,
                    self.rewrite,
                    self.alter,
                    self.alter,
                ]
            )(file)
        return file

    def drop(self, file: File) -> None:
        if len(file.statements) > 4:
            file.statements.remove(self.random.choice(file.statements))

    def change(self, file: File) -> None:
        at = self.random.randrange(len(file.statements))
        known = file.statements[at]
        if known.kind in ("stream", "table"):
            return
        made = self.query(file, known.kind, known.name, at)
        if made is not None:
            file.statements[at] = made

    def rename(self, file: File) -> None:
        known = self.random.choice(file.statements)
        if known.kind not in ("stream", "insert") and self.random.random() < 0.5:
            known.name = self.name("r")
        elif known.kind == "table":
            self.random.choice(known.columns).name = self.random.choice("ghij")

    def rewrite(self, file: File) -> None:
        file.style += 1
        self.random.choice(file.statements).style += 1

    def alter(self, file: File) -> None:
        table = self.random.choice(file.named("table", "table", "stream") or [file.statements[0]])
        names = {c.name for c in table.columns}
        match self.random.randrange(8):
            case 0 | 1 | 2:
                free = sorted(set("abcdefgh") - names)
                default = self.number() if table.kind == "table" and self.random.random() < 0.5 else None
                table.columns.append(Column(self.random.choice(free), "INT", default))
            case 3:
                table.columns.insert(0, Column(self.random.choice(sorted(set("klm") - names)), "INT"))
            case 4:
                if len(table.columns) > 2:
                    table.columns.remove(self.random.choice(table.columns))
            case 5:
                self.random.choice(table.columns).type = self.random.choice(["INT", "BIGINT", "DATE"])
            case 6:
                if table.kind == "table":
                    self.random.choice(table.columns).default = self.number()
            case 7:
                if table.kind == "stream":
                    table.options = f" WITH ('batch.max.rows' = {1 + self.number()}, 'retention' = '9d')"
                else:
                    table.options = f" WITH ('hot.records' = {1 + self.number()})"


def opened(text: str, state: Path | None, **more: bool) -> App:
    return App(text, state=state, _direct=True, **more)


def content(app: App) -> dict[str, Counter[str]]:
    app.drain()
    return {n.lower(): rows_of(app, n) for n in app.tables()}


def rows_of(app: App, name: str) -> Counter[str]:
    return Counter(repr(sorted(r.items())) for r in app.sql(f"SELECT * FROM {name}").rows())


class World:
    """Runs the app, knows what was sent, and compares."""

    def __init__(self, folder: Path, seed: int, topic: tuple[Kafka, str] | None = None):
        self.editor = Editor(seed)
        self.topic, self.numbers = topic, 0
        self.state = folder / "state"
        self.folder = folder
        self.file = self.editor.first()
        self.file.topic = None if topic is None else uri(*topic)
        self.sent: dict[str, list[dict[str, int]]] = {}
        self.outcomes: Counter[str] = Counter()
        with opened(self.file.text(), self.state) as app:
            self.write(app)
            self.settle(app)

    def settle(self, app: App) -> None:
        """Notes the rows of the tables, and that each number is in the topic once; sends others, which wait there."""
        self.before = content(app)
        if self.topic is not None:
            kafka, name = self.topic
            found = sorted(json.loads(value or b"")["n"] for _, value in kafka.consume(name))
            assert found == list(range(self.numbers))
            app.send("numbers", [{"n": self.numbers + i} for i in range(5)])
            self.numbers += 5

    def write(self, app: App) -> None:
        chance = self.editor.random
        for s in self.file.named("stream"):
            types = [c for c in s.columns if c.type != "DATE"]
            rows = [{c.name: chance.randint(0, 5) for c in types} for _ in range(chance.randint(0, 3))]
            if rows:
                app.send(s.name, rows)
                self.sent.setdefault(s.name, []).extend(rows)
        for t in self.file.named("table"):
            known = {c.name: chance.randint(0, 5) for c in t.columns if c.type != "DATE"}
            if t.key is None or t.key in known:
                app.table(t.name).insert(known)
        app.drain()

    def step(self, kill: str | None, *, really: bool) -> None:
        new = self.editor.edit(self.file)
        if kill is not None:
            self.interrupt(new, kill, really=really)
        try:
            app = opened(new.text(), self.state, upgrade=True)
        except Error as error:
            with opened(self.file.text(), self.state) as app:
                assert content(app) == self.before, f"{error}\n{self.file.text()}\n--- became\n{new.text()}"
                self.write(app)
                self.settle(app)
            self.outcomes["refused"] += 1
            return
        with app:
            found = content(app)
            self.check(new, found, app)
            self.sent = {k: v for k, v in self.sent.items() if k in {s.name for s in new.named("stream")}}
            self.file = new
            self.write(app)
            self.settle(app)
            self.check(new, self.before, app, old=False)
        self.outcomes["done"] += 1

    def interrupt(self, new: File, point: str, *, really: bool) -> None:
        """Begins the upgrade, and ends it at some point; what is there then is the old state, or the new one."""
        if really:
            path = self.folder / "new.sql"
            path.write_text(new.text())
            with running(sys.executable, "-m", __name__, str(path), str(self.state), point) as process:
                process.communicate(timeout=200)
            self.outcomes["killed"] += process.returncode == -signal.SIGKILL
        else:
            try:
                with failing(point):
                    opened(new.text(), self.state, upgrade=True).close()
            except (Error, Injected):
                pass

    def check(self, new: File, found: dict[str, Counter[str]], app: App, *, old: bool = True) -> None:
        about = f"{self.file.text()}\n--- became\n{new.text()}"
        for t in new.named("table") if old else ():
            before = next((s for s in self.file.named("table") if s.name == t.name), None)
            if before is not None:
                rows = [dict(eval(r)) for r in self.before[t.name].elements()]
                expected = Counter(
                    repr(sorted((c.name, r.get(c.name, c.default)) for c in t.columns)) for r in rows
                )
                more = any(s.name == t.name for s in new.named("insert"))  # a new one inserts the kept rows
                same = expected <= found[t.name] if more else expected == found[t.name]
                assert same, f"{t.name}\n{about}"
        with opened(new.text(queries=False), None) as fresh:
            for t in new.named("table"):
                rows = [dict(eval(r)) for r in found[t.name].elements()]
                if rows:
                    fresh.table(t.name).bulk_insert(rows)
            for s in new.named("stream"):
                if self.sent.get(s.name) and any(x.name == s.name for x in new.statements):
                    fresh.send(s.name, self.sent[s.name])
            wanted = content(fresh)
        assert found.keys() == wanted.keys(), about
        for name in wanted:
            assert found[name] == wanted[name], f"{name}\n{about}"


def run(
    folder: Path,
    seed: int,
    edits: int,
    *,
    kills: float,
    really: float,
    topic: tuple[Kafka, str] | None = None,
) -> Counter[str]:
    world = World(folder, seed, topic)
    chance = random.Random(seed + 1)
    for number in range(edits):
        kill = chance.choice(POINTS) if chance.random() < kills else None
        killed = chance.random() < really
        if topic is not None and kill is not None and killed and chance.random() < 0.6:
            kill = chance.choice(SINK_POINTS)
        try:
            world.step(kill, really=killed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, edit {number}: {error}") from None
    return world.outcomes


def test_random_edits(tmp_path: Path) -> None:
    outcomes = run(tmp_path, 7, 12, kills=0.3, really=0)
    assert outcomes["done"] > 3


def test_edits_beside_a_sink(tmp_path: Path, servers: Servers) -> None:
    kafka = servers.kafka
    world = World(tmp_path, 20, (kafka, new_topic(kafka, 2)))
    world.step("sink: positioned", really=True)
    assert world.outcomes["killed"] == 1
    world.step("upgrade: committed", really=False)


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_200_random_edits_beside_a_sink(tmp_path: Path, servers: Servers) -> None:
    kafka = servers.kafka
    total = Counter[str]()
    for seed in range(10, 14):
        total += run(
            tmp_path / str(seed), seed, 50, kills=0.4, really=0.5, topic=(kafka, new_topic(kafka, 2))
        )
    print(f"200 edits: {dict(total)}")
    assert total["done"] > 60 and total["refused"] > 20 and total["killed"] > 10


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_200_random_edits(tmp_path: Path) -> None:
    total = sum((run(tmp_path / str(seed), seed, 50, kills=0.4, really=0.3) for seed in range(4)), Counter())
    print(f"200 edits: {dict(total)}")
    assert total["done"] > 60 and total["refused"] > 20


def work(path: str, state: str, point: str) -> None:
    with killing(point), opened(Path(path).read_text(), Path(state), upgrade=True) as app:
        app.drain()


if __name__ == "__main__":
    work(*sys.argv[1:])
