"""Random edits of an app that has rows: statements and columns are added, changed, renamed and dropped, options change,
kills come in between. The file is edited, and the app restarted with it; or ALTER TABLE and CREATE OR REPLACE change it
while it runs. After each edit every table is what a fresh run over the kept rows gives, or the edit was refused
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
from pathlib import Path

import pytest

from millpond import App
from millpond.errors import Error
from millpond.testing.faults import Injected, failing, killing
from tests.random_files import Editor, File, LiveEdit, live_edit
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
LIVE_POINTS = (
    "alter: checked",
    "alter: journalled",
    "alter: shown",
    "replace: begun",
    "replace: caught up",
    "replace: stopped",
    "replace: journalled",
    "replace: shown",
    "journal: written",
    "journal: committed",
)
SINK_POINTS = (
    "sink opened",
    "sink: begun",
    "sink: produced",
    "sink: positioned",
    "sink: written",
    "journal: committed",
)


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

    def live(self, kill: str | None, *, really: bool) -> None:
        """Changes the app while it runs, by a statement."""
        edit, old = live_edit(self.editor, self.file), self.file
        if kill is not None:
            self.interrupt_live(edit, kill, really=really)
        with opened(old.text(), self.state) as app:
            try:
                app.sql(edit.statement)
            except Error as error:
                if kill is None or edit.kind != "table" or not self.is_done(edit, app):
                    assert content(app) == self.before, f"{error}\n{old.text()}\n--- {edit.statement}"
                    self.write(app)
                    self.settle(app)
                    self.outcomes["refused live"] += 1
                    return
            self.follow(edit)
            self.check(edit.file, content(app), app)
            self.file = edit.file
            self.write(app)
            self.settle(app)
            self.check(edit.file, self.before, app, old=False)
        text = self.editor.random.choice([old, edit.file]).text()
        with opened(text, self.state) as app:  # also with the file that does not know of the statement
            assert content(app) == self.before, f"{text}\n--- after {edit.statement}"
        self.outcomes["live"] += 1

    def is_done(self, edit: LiveEdit, app: App) -> bool:
        """Returns whether a killed process has made an edit, which therefore is refused now."""
        before = [c.name for s in self.file.statements for c in s.columns if s.name == edit.name]
        return before != edit.columns == list(app.table(edit.name).schema.names)

    def follow(self, edit: LiveEdit) -> None:
        """Notes what an edit does to the rows that were there."""
        name, columns = (
            edit.name,
            {s.name: [(c.name, c.type) for c in s.columns] for s in self.file.statements},
        )
        if edit.renamed is not None:
            names = dict([edit.renamed])
            rows = [dict(eval(r)) for r in self.before[name].elements()]
            self.before[name] = Counter(
                repr(sorted((names.get(k, k), v) for k, v in row.items())) for row in rows
            )
        for stream in edit.file.named("stream"):
            if columns[stream.name] != [(c.name, c.type) for c in stream.columns]:
                self.sent.pop(stream.name, None)  # one that nothing reads begins again

    def interrupt_live(self, edit: LiveEdit, point: str, *, really: bool) -> None:
        """Begins an edit of the running app, and ends it at some point."""
        if really:
            path = self.folder / "old.sql"
            path.write_text(self.file.text())
            arguments = (str(path), str(self.state), point, edit.statement)
            with running(sys.executable, "-m", __name__, *arguments) as process:
                process.communicate(timeout=200)
            self.outcomes["killed"] += process.returncode == -signal.SIGKILL
        else:
            try:
                with opened(self.file.text(), self.state) as app, failing(point):
                    app.sql(edit.statement)
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
        live = chance.random() < 0.4
        kill = chance.choice(LIVE_POINTS if live else POINTS) if chance.random() < kills else None
        killed = chance.random() < really
        if topic is not None and not live and kill is not None and killed and chance.random() < 0.6:
            kill = chance.choice(SINK_POINTS)
        try:
            (world.live if live else world.step)(kill, really=killed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, edit {number}: {error}") from None
    return world.outcomes


def test_random_edits(tmp_path: Path) -> None:
    outcomes = run(tmp_path, 7, 16, kills=0.3, really=0)
    assert outcomes["done"] > 3 and outcomes["live"] > 2


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
    assert total["done"] > 30 and total["live"] > 20 and total["refused"] > 10 and total["killed"] > 10


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_200_random_edits(tmp_path: Path) -> None:
    total = sum((run(tmp_path / str(seed), seed, 50, kills=0.4, really=0.3) for seed in range(4)), Counter())
    print(f"200 edits: {dict(total)}")
    assert total["done"] > 30 and total["live"] > 20 and total["refused"] > 10


def work(path: str, state: str, point: str, statement: str = "") -> None:
    if statement:
        with opened(Path(path).read_text(), Path(state)) as app:
            app.drain()
            with killing(point):
                app.sql(statement)
        return
    with killing(point), opened(Path(path).read_text(), Path(state), upgrade=True) as app:
        app.drain()


if __name__ == "__main__":
    work(*sys.argv[1:])
