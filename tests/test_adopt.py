"""``millpond adopt``: an app goes on where a Structured Streaming job has ended, each row once.

The checkpoints here are written as Spark writes them; ``test_adopt_spark.py`` has those of Spark itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from typer.testing import CliRunner

from millpond import App
from millpond.app.adoption import find_adoption
from millpond.cli.main import app as command
from millpond.errors import AdoptionRefused
from millpond.testing.faults import failing

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])
QUERY = "5d1c2b1e-0000-4000-8000-0123456789ab"
PER_BATCH = 2


def adopt(*words: object) -> Result:
    return CliRunner().invoke(command, ["adopt", *map(str, words)])


def rows_at(place: Path) -> list[tuple[Any, ...]]:
    rows = DeltaTable(place).to_pyarrow_table().select(["id", "k"]).to_pylist()
    return sorted((r["id"], r["k"]) for r in rows)


def rows_of(number: int) -> list[dict[str, Any]]:
    """The rows of a file: those of one key, which the next file has too, and others."""
    return [{"id": 0, "k": f"of {number}"}, {"id": 10 + number, "k": "a"}]


@dataclass
class Job:
    """A job as it leaves its folders: a file for each of its batches, and the rows of each in its table."""

    folder: Path
    upserts: bool = False
    transactions: str | None = QUERY

    @property
    def checkpoint(self) -> Path:
        return self.folder / "job"

    @property
    def table(self) -> Path:
        return self.folder / "lake"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def write(self, name: str, *lines: object) -> Path:
        file = self.checkpoint / name
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("\n".join(["v1", *texts]))
        return file

    def add_file(self, number: int) -> Path:
        file = self.folder / "in" / f"part {number}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows_of(number)))
        return file

    def entry(self, number: int) -> dict[str, Any]:
        file = self.add_file(number)
        uri = "file://" + str(file).replace(" ", "%20")
        return {"path": uri, "timestamp": file.stat().st_mtime_ns // 10**6, "batchId": number}

    def run(self, batches: int, *, finished: int | None = None, written: int | None = None) -> Job:
        """Leaves so many batches, of which some are not ``finished``, or not ``written`` to the table."""
        self.checkpoint.mkdir(exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
        write_deltalake(self.table, pa.Table.from_pylist([], SCHEMA))
        for number in range(batches):
            self.write(f"sources/0/{number}", self.entry(number))
            self.write(f"offsets/{number}", {"batchWatermarkMs": 0, "conf": {}}, {"logOffset": number})
            if number < (batches if finished is None else finished):
                self.write(f"commits/{number}", {"nextBatchWatermarkMs": 0})
            if number < (batches if written is None else written):
                self.write_rows(number)
        return self

    def write_rows(self, number: int) -> None:
        marks = [] if self.transactions is None else [Transaction(self.transactions, number)]
        properties = CommitProperties(app_transactions=marks)
        rows = pa.Table.from_pylist(rows_of(number), SCHEMA)
        if not self.upserts:
            write_deltalake(self.table, rows, mode="append", commit_properties=properties)
            return
        merge = DeltaTable(self.table).merge(
            rows, "t.id = s.id", source_alias="s", target_alias="t", commit_properties=properties
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def app(self, *more: str) -> Path:
        """The file of the app that goes on."""
        source = f"CREATE STREAM s (id BIGINT, k STRING) WITH ('connector' = 'file://{self.folder}/in');"
        key = " WITH ('key' = 'id')" if self.upserts else ""
        text = f"{source}\nINSERT INTO delta://{self.table} SELECT id, k FROM s{key};\n"
        file = self.folder / "app.sql"
        file.write_text(text + "\n".join(more))
        return file

    def adopt(self, *words: object, app: Path | None = None) -> Result:
        named = ("--checkpoint", self.checkpoint, "--table", self.table, "--state", self.state)
        return adopt(*named, app or self.app(), *words)

    def go_on(self, number: int) -> None:
        """Runs the app over a new file, with a restart."""
        self.add_file(number)
        for _ in range(2):
            with App(self.folder / "app.sql", state=self.state, _direct=True) as app:
                app.drain(60)

    def expected(self, *numbers: int) -> list[tuple[Any, ...]]:
        found = [(r["id"], r["k"]) for n in numbers for r in rows_of(n)]
        return sorted(dict(found).items()) if self.upserts else sorted(found)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_appended_rows_come_once(job: Job) -> None:
    job.run(3)
    done = job.adopt()
    assert done.exit_code == 0, done.output
    assert "batch 2 is finished" in done.stdout and "3 files read" in done.stdout
    job.go_on(3)
    assert rows_at(job.table) == job.expected(*range(4))


def test_a_dry_run_changes_nothing(job: Job) -> None:
    job.run(2)
    app, before = job.app(), DeltaTable(job.table).version()
    told = job.adopt("--dry-run", app=app)
    assert told.exit_code == 0 and told.stdout.splitlines() == [
        f"job        query {QUERY}: batch 1 is finished",
        f'source     2 files read, the last one "{job.folder}/in/part 1.json"',
        f"table      {job.table}: batch 1 of the job is its last",
        f"statement  INSERT INTO delta://{job.table} SELECT id, k FROM s",
        "begins     after batch 1: every batch is finished",
    ]
    assert not job.state.exists() and DeltaTable(job.table).version() == before


@pytest.mark.parametrize(("written", "begins"), [(3, 2), (2, 1)])
def test_the_table_says_whether_it_has_an_unfinished_batch(job: Job, written: int, begins: int) -> None:
    job.run(3, finished=2, written=written)
    done = job.adopt()
    assert done.exit_code == 0 and f"begins     after batch {begins}: the table" in done.stdout
    job.go_on(3)
    assert rows_at(job.table) == job.expected(*range(4))


@pytest.mark.parametrize(("written", "word"), [(3, "--skip-last"), (2, "--repeat-last")])
def test_rows_without_transactions_must_be_looked_for(job: Job, written: int, word: str) -> None:
    job.transactions = None
    job.run(3, finished=2, written=written)
    refused = job.adopt()
    assert refused.exit_code == 1 and "batch 2 of the job is not finished" in refused.stderr
    assert "--skip-last begins after the batch" in refused.stderr and not job.state.exists()
    assert job.adopt(word).exit_code == 0
    job.go_on(3)
    assert rows_at(job.table) == job.expected(*range(4))


def test_transactions_that_the_job_names(job: Job) -> None:
    job.transactions = "nightly"
    job.run(3, finished=2)
    assert job.adopt().exit_code == 1
    done = job.adopt("--txn-app-id", "nightly")
    assert done.exit_code == 0 and "the table has the unfinished batch" in done.stdout
    job.go_on(3)
    assert rows_at(job.table) == job.expected(*range(4))


@pytest.mark.parametrize("written", [3, 2])
def test_an_upsert_is_repeated(job: Job, written: int) -> None:
    job.upserts, job.transactions = True, None
    job.run(3, finished=2, written=written)
    done = job.adopt()
    assert done.exit_code == 0 and "begins     after batch 1: batch 2 is repeated" in done.stdout
    job.go_on(3)
    assert rows_at(job.table) == job.expected(*range(4))


def test_an_upsert_into_a_table_of_the_app(job: Job) -> None:
    job.upserts, job.transactions = True, None
    job.run(3, finished=2)
    text = job.app().read_text().partition("INSERT")[0]
    job.folder.joinpath("app.sql").write_text(
        f"""{text}
        CREATE TABLE t (id BIGINT PRIMARY KEY, k STRING) WITH ('extension' = 'delta', 'path' = '{job.table}');
        INSERT INTO t SELECT id, k FROM s"""
    )
    done = job.adopt(app=job.folder / "app.sql")
    assert done.exit_code == 0, done.output
    job.go_on(3)
    assert rows_at(job.table) == job.expected(*range(4))


def test_nothing_is_finished_yet(job: Job) -> None:
    job.run(1, finished=0, written=0)
    done = job.adopt("--repeat-last")
    assert done.exit_code == 0 and "begins     after batch -1" in done.stdout
    job.go_on(1)
    assert rows_at(job.table) == job.expected(0, 1)


def test_files_that_are_listed_together(job: Job) -> None:
    """Every tenth file of a log contains all before it, and these are removed later."""
    job.run(12)
    whole = [line for n in range(10) for line in (job.checkpoint / f"sources/0/{n}").read_text().split("\n")]
    job.write("sources/0/9.compact", *(line for line in whole if line != "v1"))
    for n in range(10):
        (job.checkpoint / f"sources/0/{n}").unlink()
    done = job.adopt()
    assert done.exit_code == 0 and "12 files read" in done.stdout
    job.go_on(12)
    assert rows_at(job.table) == job.expected(*range(13))


def test_a_removed_file_stays_read(job: Job) -> None:
    job.run(3)
    (job.folder / "in" / "part 1.json").unlink()
    assert job.adopt().exit_code == 0
    job.go_on(3)
    assert rows_at(job.table) == job.expected(*range(4))


def test_it_is_taken_over_once(job: Job) -> None:
    job.run(2)
    assert job.adopt().exit_code == 0
    for words in ((), ("--dry-run",)):
        again = job.adopt(*words)
        assert again.exit_code == 1 and "has begun: it has a position of its own" in again.stderr
    job.go_on(2)
    assert rows_at(job.table) == job.expected(*range(3))


def test_an_app_that_runs_already(job: Job) -> None:
    """The statement is new in the file of an app with a state directory."""
    job.run(2)
    whole = job.app("CREATE TABLE other (x INT);", "INSERT INTO other VALUES (1);").read_text()
    source, _, rest = whole.partition("INSERT")
    statement, _, others = rest.partition(";\n")
    with App(source + others, state=job.state, _direct=True):
        pass
    (job.folder / "app.sql").write_text(source + others + "\nINSERT" + statement + ";\n")
    assert job.adopt(app=job.folder / "app.sql").exit_code == 0
    job.go_on(2)
    assert rows_at(job.table) == job.expected(*range(3))
    with App(job.folder / "app.sql", state=job.state, _direct=True) as app:
        assert app.sql("SELECT COUNT(*) AS n FROM other").rows() == [{"n": 1}]


def test_a_fault_leaves_no_statement_that_begins_elsewhere(job: Job) -> None:
    job.run(2)
    with failing("adopted position kept"):
        assert job.adopt().exit_code == 1
    with App(state=job.state, _direct=True) as app:
        assert app.sql("SHOW QUERIES").rows() == []
    assert job.adopt().exit_code == 0
    job.go_on(2)
    assert rows_at(job.table) == job.expected(*range(3))


def test_a_kill_leaves_no_statement_that_begins_elsewhere(job: Job) -> None:
    job.run(2)
    words = ["adopt", "--checkpoint", job.checkpoint, "--table", job.table, "--state", job.state, job.app()]
    text = f"""from millpond.cli.main import app
from millpond.testing.faults import killing
with killing("adopted position kept"):
    app({[str(word) for word in words]})"""
    killed = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert job.adopt().exit_code == 0
    job.go_on(2)
    assert rows_at(job.table) == job.expected(*range(3))


def test_a_statement_that_is_declared_and_has_not_begun(job: Job) -> None:
    job.run(2)
    with App(job.app(), state=job.state, _direct=True):
        pass
    assert job.adopt().exit_code == 0
    job.go_on(2)
    assert rows_at(job.table) == job.expected(*range(3))


# what is refused


def refused(job: Job, text: str, *words: object, app: Path | None = None) -> None:
    """Checks that a job is refused, and that nothing is left of the attempt."""
    version = DeltaTable(job.table).version()
    done = job.adopt(*words, app=app)
    assert done.exit_code == 1 and text in done.stderr.replace("\n", " "), done.output
    assert not job.state.exists() and DeltaTable(job.table).version() == version


def _touch(job: Job) -> None:
    os.utime(job.folder / "in" / "part 0.json", (1, 1))


def _lose(job: Job) -> None:
    (job.checkpoint / "sources/0/1").unlink()


def _write(name: str, *lines: str) -> Callable[[Job], object]:
    return lambda job: (job.checkpoint / name).write_text("\n".join(lines))


def _grow(job: Job) -> None:
    job.write_rows(5)


def _shrink(job: Job) -> None:
    (job.checkpoint / "commits" / "0").unlink()
    (job.checkpoint / "commits" / "1").unlink()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda job: (job.checkpoint / "state").mkdir(), "has state, for an aggregate"),
        (lambda job: (job.checkpoint / "metadata").unlink(), "is no checkpoint of Structured Streaming"),
        (_write("offsets/1", "v1", "{}", '{"logOffset":1}', '{"logOffset":0}'), "reads 2 sources"),
        (_write("offsets/1", "v2", "{}", "{}"), 'has version "v2", and only "v1" is known'),
        (_write("commits/1", "v9", "{}"), 'has version "v9"'),
        (_write("sources/0/1", "v7", "{}"), 'has version "v7"'),
        (_write("offsets/1", "v1", "{}", "17"), "has an offset of neither topics nor files: 17"),
        (_write("offsets/1", "v1", "{}", '{"reservoirId":"x"}'), "neither topics nor files"),
        (_write("offsets/1", "v1", "{}", '{"orders":{"0":7}}'), 'has read topic "orders", next offsets 0: 7'),
        (_shrink, 'batch 1 in "offsets" and batch -1 in "commits"'),
        (_lose, 'sources/0/1" of the checkpoint is missing'),
        (_touch, "has changed since the job has read it"),
        (_grow, "the Delta table has batch 5 of the job"),
    ],
)
def test_checkpoints_that_are_refused(job: Job, change: Callable[[Job], object], text: str) -> None:
    job.run(2)
    change(job)
    refused(job, text)


def test_an_empty_checkpoint(job: Job) -> None:
    job.run(1)
    (job.checkpoint / "offsets/0").unlink()
    (job.checkpoint / "commits/0").unlink()
    refused(job, "has read nothing")


def test_an_older_table(job: Job) -> None:
    job.run(3, written=2)
    refused(job, "batch 2 of the job is finished, and the last one that the Delta table has is 1")


INSERT = "INSERT INTO delta://{table} SELECT {columns} FROM s"


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELECT id FROM s;", "no running statement of the app writes to the Delta table"),
        (f"{INSERT.replace('{table}', '{table}2')}", "those that do write to: "),
        (
            "INSERT INTO delta://{table} SELECT k, COUNT(*) AS id FROM s GROUP BY k WITH ('key' = 'k')",
            "aggregate",
        ),
        (
            "CREATE TABLE t (id BIGINT, k STRING) WITH ('extension' = 'delta', 'path' = '{table}');"
            "INSERT INTO t SELECT id, k FROM s",
            "append to the Delta table itself",
        ),
        (f"{INSERT}; {INSERT} WHERE id > 5", "2 statements read what the job has read"),
        ("INSERT INTO delta://{table} SELECT nothing FROM s", '"nothing"'),
        (
            "CREATE STREAM sent (id BIGINT, k STRING); INSERT INTO delta://{table} SELECT id, k FROM sent",
            "a job can be taken over that reads a topic or files",
        ),
        (
            "CREATE STREAM n (id BIGINT, k STRING) WITH ('connector' = 'file://{folder}/in/*1.json');"
            "INSERT INTO delta://{table} SELECT id, k FROM n",
            "does not select it",
        ),
    ],
)
def test_apps_that_are_refused(job: Job, statement: str, text: str) -> None:
    job.run(2)
    source = job.app().read_text().partition("INSERT")[0]
    file = job.folder / "app.sql"
    file.write_text(source + statement.format(table=job.table, columns="id, k", folder=job.folder))
    refused(job, text, app=file)


def test_another_place(job: Job) -> None:
    job.run(2)
    named = ("--checkpoint", job.checkpoint, "--state", job.state, job.app())
    assert "no running statement" in adopt("--table", job.folder / "elsewhere", *named).stderr
    (job.folder / "app.sql").write_text(job.app().read_text().replace("/lake", "/elsewhere"))
    found = adopt("--table", job.folder / "elsewhere", *named[:4], job.folder / "app.sql")
    assert found.exit_code == 1 and "there is no Delta table at" in found.stderr


def test_none_of_the_files_is_there(job: Job) -> None:
    job.run(2)
    for file in (job.folder / "in").iterdir():
        file.unlink()
    refused(job, "none of the 2 files that the job has read is among those of")


def test_of_two_statements_the_one_with_the_source_goes_on(job: Job) -> None:
    job.run(2)
    more = (
        "CREATE STREAM sent (id BIGINT, k STRING);",
        f"INSERT INTO delta://{job.table} SELECT id, k FROM sent;",
    )
    found = find_adoption(job.app(*more).read_text(), job.checkpoint, f"delta://{job.table}")
    assert found.stream == "s" and found.after == 1


def test_usage(job: Job) -> None:
    job.run(1)
    assert job.adopt("--skip-last", "--repeat-last").exit_code == 2
    assert adopt("--checkpoint", job.checkpoint).exit_code == 2
    with pytest.raises(AdoptionRefused):
        find_adoption(job.app().read_text(), job.folder, str(job.table))
