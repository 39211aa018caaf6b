"""Files as a sink: how rows are divided, named and encoded, and what is refused. Crashes: test_sink_faults.py."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from millpond import App, Error
from millpond.connectors.console.sink import ConsoleSink
from millpond.connectors.files.manifest import HIDDEN
from millpond.connectors.files.sink import FileSink
from millpond.connectors.sink import settled
from millpond.formats.file_writer import COMPRESSIONS, WRITTEN, encode_file, suffix_of
from millpond.testing.contracts.reads import TYPED
from millpond.testing.crash import crash
from millpond.types import Schema

STREAM = "CREATE STREAM s (id BIGINT, k STRING) WITH ('batch.max.rows' = '20');"


def files(folder: Path) -> list[str]:
    return sorted(
        str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and HIDDEN not in p.parts
    )


def explained(app: App, text: str) -> str:
    return "\n".join(row["plan"] for row in app.sql(f"EXPLAIN {text}").rows())


def refused(text: str, folder: Path) -> Error:
    with (
        pytest.raises(Error) as found,
        App(STREAM + "CREATE TABLE t (id BIGINT, k STRING);" + text, state=folder / "x"),
    ):
        pass
    return found.value


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_format_is_read_back(form: str, compression: str, tmp_path: Path) -> None:
    """By the sources of the app itself, and where it can by DuckDB."""
    if compression == "snappy" and form != "parquet":
        return
    rows = pa.table({f"c{i}": pa.array([*values, None], dtype) for i, (dtype, values) in enumerate(TYPED)})
    rows = pa.table({n: c for n, c in zip(rows.column_names, rows.columns, strict=True) if _fits(c.type)})
    path = tmp_path / f"x{suffix_of(form, compression)}"
    path.write_bytes(encode_file(rows, form, compression))
    declared = ", ".join(f"{c.name} {_named(c.type)}" for c in Schema.of(rows.schema))
    with App(f"CREATE TABLE t ({declared}) AS SELECT * FROM file://{path}") as app:
        found = app.sql("SELECT * FROM t").to_arrow()
    assert found.to_pylist() == rows.cast(found.schema).to_pylist()
    if form != "avro":
        assert duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall() == [(rows.num_rows,)]


def _fits(dtype: pa.DataType) -> bool:
    """What every format reads as it was written, without a declaration of its own."""
    t = pa.types
    plain = t.is_integer(dtype) or t.is_string(dtype) or t.is_boolean(dtype) or t.is_date(dtype)
    return plain or t.is_decimal(dtype) or dtype == pa.timestamp("us", "UTC")


def _named(dtype: pa.DataType) -> str:
    from millpond.types import type_name

    return type_name(dtype)


@settings(max_examples=40, deadline=None)
@given(
    some.lists(
        some.tuples(some.sampled_from(["a", "b/..", "", None, "ä=ö", ".", "%2F"]), some.integers(0, 2)),
        max_size=30,
    ),
    some.integers(1, 400),
)
def test_rows_are_divided_among_folders(rows: list[tuple[str | None, int]], size: int) -> None:
    """Each row is in one file, the rows of a folder in their order, and no folder leads out of the root."""
    table = pa.table(
        {
            "k": pa.array([k for k, _ in rows], pa.string()),
            "n": pa.array([n for _, n in rows], pa.int64()),
            "i": pa.array(range(len(rows)), pa.int64()),
        }
    )
    values = {"partition.by": "K, n", "file.size": size, "file.name": "f-{query}-{app}-{batch}-{part}"}
    layout = FileSink("file:///out", values, Schema.of(table.schema)).layout
    names = {"batch": "1", "query": "q", "app": "a"}
    found = [(f"/out/{layout.path(p, names)}", data) for p, data in layout.files(table)] if rows else []
    assert len({path for path, _ in found}) == len(found)
    seen: dict[tuple[Any, Any], list[int]] = {}
    for path, data in found:
        assert os.path.normpath(path) == path and path.startswith("/out/k=") and path.count("/") == 4
        for line in data.decode().splitlines():
            row = json.loads(line)
            seen.setdefault((row["k"], row["n"]), []).append(row["i"])
    wanted: dict[tuple[Any, Any], list[int]] = {}
    for number, key in enumerate(rows):
        wanted.setdefault(key, []).append(number)
    assert seen == wanted


def test_files_of_a_stream(tmp_path: Path) -> None:
    text = f"""{STREAM}
        INSERT INTO file://{tmp_path}/out SELECT * FROM s WITH (
          'format' = 'csv', 'partition.by' = 'k', 'compression' = 'gzip', 'query.name' = 'q',
          'file.name' = '{{query}}_{{app}}_{{batch}}_{{part}}');
        INSERT INTO file://{tmp_path}/counts SELECT k, COUNT(*) AS n FROM s GROUP BY k;
    """
    with App(text, state=tmp_path / "state") as app:
        app.send("s", [{"id": i, "k": "ab"[i % 2]} for i in range(10)])
        app.drain(60)
        assert [f.rpartition("_")[0][:4] for f in files(tmp_path / "out")] == ["k=a/", "k=b/"]
        assert explained(app, f"INSERT INTO file://{tmp_path}/out SELECT * FROM s").endswith(
            "exactly once: files appear whole, and a manifest names them together with the position"
        )
        assert "at least once" in explained(
            app, f"INSERT INTO file://{tmp_path}/out SELECT k, COUNT(*) AS n FROM s GROUP BY k"
        )
        found = app.sql(f"SELECT * FROM file://{tmp_path}/out/**/*.csv.gz ORDER BY id").rows()
        assert found == [{"id": i, "k": "ab"[i % 2]} for i in range(10)]
        groups = app.sql(f"SELECT * FROM file://{tmp_path}/counts/*.jsonl ORDER BY k").rows()
        assert groups == [{"k": k, "n": 5, "_deleted": False} for k in "ab"]


def test_rows_of_a_table_are_written_once(tmp_path: Path) -> None:
    text = f"""
        CREATE TABLE t (id BIGINT PRIMARY KEY, k STRING);
        INSERT INTO t VALUES (1, 'a'), (2, NULL);
        INSERT INTO file://{tmp_path}/t.csv SELECT * FROM t;
        INSERT INTO file://{tmp_path}/dir SELECT id FROM t WITH ('format' = 'parquet');
    """
    for _ in range(2):  # after a restart they are not written again
        with App(text, state=tmp_path / "state") as app:
            assert (tmp_path / "t.csv").read_text() == '"id","k"\n1,"a"\n2,\n'
            assert len(files(tmp_path / "dir")) == 1
            target = f"file://{tmp_path}/t.csv"
            with pytest.raises(Error, match="already exists"):
                app.sql(f"INSERT INTO {target} SELECT id FROM t")
    with App(text, state=tmp_path / "state") as app:
        app.sql(f"INSERT INTO {target} SELECT id FROM t WHERE id = 1 WITH ('overwrite' = 'true')")
        assert (tmp_path / "t.csv").read_text() == '"id"\n1\n'
        app.sql(f"INSERT INTO file://{tmp_path}/more SELECT id FROM t")
        app.sql(f"INSERT INTO file://{tmp_path}/more SELECT id FROM t")
        assert len(files(tmp_path / "more")) == 2


@pytest.mark.parametrize("point", ["sink opened once", "files: named", "sink written once"])
def test_a_kill_of_a_statement_that_runs_once(point: str, tmp_path: Path) -> None:
    """It is written once, also if the app was killed before it knew."""
    text = f"""
        CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1), (2);
        INSERT INTO file://{tmp_path}/t.csv SELECT * FROM t;
        INSERT INTO file://{tmp_path}/dir SELECT id FROM t;
    """
    code = (
        "import sys; from millpond import App; from millpond.testing.faults import killing\n"
        "with killing(sys.argv[1]): App(sys.argv[2], state=sys.argv[3])"
    )
    command = [sys.executable, "-c", code, point, text, str(tmp_path / "state")]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == -signal.SIGKILL
    for _ in range(2):
        with App(text, state=tmp_path / "state"):
            assert (tmp_path / "t.csv").read_text() == '"id"\n1\n2\n'
            assert len(files(tmp_path / "dir")) == 1


def test_a_dropped_query_leaves_no_position_to_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the directory could not be written when it was dropped: the new one begins at the beginning."""

    def unreachable(*_: object) -> None:
        raise OSError("gone")

    out = tmp_path / "out"
    insert = f"INSERT INTO file://{out} SELECT id FROM s WITH ('format' = 'csv', 'query.name' = 'q')"
    with App(STREAM, state=tmp_path / "state") as app:
        app.send("s", [{"id": 1, "k": "a"}])
        app.sql(insert)
        app.drain(60)
        with monkeypatch.context() as patched:
            patched.setattr(FileSink, "forget", unreachable)
            app.sql("DROP QUERY q")
        app.sql(insert)
        app.drain(60)
    assert [(out / name).read_text().split() for name in files(out)] == [['"id"', "1"]] * 2


def test_several_batches_share_a_file(tmp_path: Path) -> None:
    """Rows that wait survive a crash; they are in a file when their time is over, or the app ends."""
    text = f"""{STREAM}
        INSERT INTO file://{tmp_path}/out SELECT * FROM s WITH ('file.interval' = '1h', 'query.name' = 'q');"""
    app = App(text, state=tmp_path / "state")
    app.send("s", [{"id": i, "k": "a"} for i in range(50)])
    app.drain(60)
    assert files(tmp_path / "out") == []
    assert app.sql("SHOW QUERIES").rows()[0]["waiting"] == 3
    os.rename(tmp_path / "out", tmp_path / "away")  # a crash writes nothing more
    crash(app)
    os.rename(tmp_path / "away", tmp_path / "out")
    with App(text, state=tmp_path / "state") as app:
        app.send("s", [{"id": 50, "k": "a"}])
        app.drain(60)
        assert files(tmp_path / "out") == []
    lines = [(tmp_path / "out" / name).read_text().splitlines() for name in files(tmp_path / "out")]
    assert [[json.loads(line)["id"] for line in one] for one in lines] == [list(range(51))]
    with App(text.replace("1h", "50ms"), state=tmp_path / "other") as app:
        app.send("s", [{"id": 51, "k": "a"}])
        app.drain(60)
        deadline = time.monotonic() + 30
        while len(files(tmp_path / "out")) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(files(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    ("query", "message", "column"),
    [
        ("INTO file:///tmp/x.csv SELECT * FROM s", "names one file, and a running statement writes many", 1),
        ("INTO file:///tmp/x.json SELECT * FROM t", "files of json are only read", 1),
        ("INTO file:///tmp/x SELECT * FROM s WITH ('partition.by' = 'kk')", 'has no column "kk"', 49),
        ("INTO file:///tmp/x SELECT * FROM s WITH ('file.name' = '{batch}')", "lacks {part}", 49),
        ("INTO file:///tmp/x SELECT * FROM s WITH ('file.name' = '../{batch}{part}')", "cannot be", 49),
        ("INTO file:///tmp/x SELECT * FROM s WITH ('file.name' = '{day}')", "which is not known", 49),
        (
            "INTO file:///tmp/x SELECT * FROM s WITH ('compression' = 'snappy')",
            'cannot be "snappy" for jsonl',
            49,
        ),
        ("INTO file:///tmp/x SELECT * FROM s WITH ('format' = 'xml')", "cannot be", 49),
        ("INTO file:///tmp/x.csv SELECT * FROM t WITH ('partition.by' = 'k')", "needs a directory", 53),
        (
            "INTO file:///tmp/x SELECT k, COUNT(*) AS n FROM s GROUP BY k WITH ('delivery' = 'exactly-once')",
            "'delivery' = 'exactly-once' of an aggregate",
            1,
        ),
        ("INTO file:///tmp/x SELECT * FROM s WITH ('delimiter' = '\"')", 'option "delimiter" cannot be', 49),
        ("INTO file:///tmp/x SELECT * FROM s WITH ('delimiter' = ';;')", 'option "delimiter" cannot be', 49),
        (
            "INTO file:///tmp/x SELECT MAP(id, k) AS m FROM s WITH ('format' = 'avro')",
            'column "m" of type MAP<BIGINT, STRING> cannot be written as Avro',
            48,
        ),
        ("INTO file:///tmp/x SELECT * FROM s WITH ('file.name' = '{batch}{part}')", "lacks {query}", 49),
        ("INTO file:///tmp/*.csv SELECT * FROM t", "is a pattern, and cannot be written", 1),
        ("INTO file:///tmp/x.csv SELECT * FROM t WITH ('format' = 'parquet')", "ends otherwise", 53),
        ("INTO file:///tmp/x.csv.gz SELECT * FROM t WITH ('compression' = 'none')", "ends otherwise", 56),
        ("INTO console://nowhere SELECT * FROM s", "is no output", 1),
        ("INTO s3:// SELECT * FROM s", "names no bucket", 1),
    ],
)
def test_what_cannot_be_written_is_refused(query: str, message: str, column: int, tmp_path: Path) -> None:
    error = refused(f"\nINSERT {query}", tmp_path)
    assert message in error.message
    assert error.column == column


def test_without_a_state_directory(tmp_path: Path) -> None:
    """Nothing is known after a restart: EXPLAIN says so."""
    with App(STREAM + f"INSERT INTO file://{tmp_path}/out SELECT * FROM s") as app:
        app.send("s", [{"id": 1, "k": "a"}])
        app.drain(60)
        assert len(files(tmp_path / "out")) == 1
        assert "at least once" in explained(app, f"INSERT INTO file://{tmp_path}/out SELECT * FROM s")
    assert settled({"delivery": "exactly-once"}, durable=False) == {"delivery": "exactly-once"}


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Error, match="cannot be written"):
        App(STREAM + f"INSERT INTO file://{tmp_path}/file SELECT * FROM s", state=tmp_path / "state")


def test_a_table_on_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    with App("CREATE TABLE t (id BIGINT, k STRING); INSERT INTO t VALUES (1, NULL), (20, 'b');") as app:
        app.sql("INSERT INTO console:// SELECT * FROM t ORDER BY id WITH ('format' = 'table')")
        app.sql("INSERT INTO console://stderr SELECT id FROM t WHERE id = 1")
    out, err = capsys.readouterr()
    assert out.splitlines() == ["id │ k", "───┼─────", "1  │ NULL", "20 │ b"]
    assert '{"id":1}' in err


def test_the_console_gets_utf8_and_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of a service may be of ASCII; and rows do not clear the screen."""
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, "ascii"))
    table = pa.table({"a\x1b[2J": ["ü", "\x1b]0;own\x07", "\x9b2J\u202e", "a\tb"]})
    for form in ("jsonl", "table"):
        ConsoleSink("console://", {"format": form}, Schema.of(table.schema)).write(table, None)
    lines = raw.getvalue().decode().splitlines()
    assert json.loads(lines[0]) == {"a\x1b[2J": "ü"}
    shown = [line.strip() for line in lines[4:]]
    assert shown == [
        "a\ufffd[2J",
        "─" * 8,
        "ü",
        "\ufffd]0;own\ufffd",
        "\ufffd2J\ufffd",
        "a b",
    ]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_text_is_encoded_in_slices(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow holds 2 GB of text at the most."""
    table = pa.table({"id": pa.array(range(1000)), "k": ["x" * (i % 7) for i in range(1000)]})
    expected = {n: encode_file(table.slice(0, n), form, "none") for n in (0, 1, 1000)}
    monkeypatch.setattr("millpond.formats.file_writer._SLICE", 100)
    for count, data in expected.items():
        assert encode_file(table.slice(0, count), form, "none") == data


def test_durations_have_all_digits() -> None:
    values = [timedelta(days=20, seconds=1, microseconds=500), timedelta(seconds=-1), timedelta(0)]
    table = pa.table({"d": pa.array(values, pa.duration("us"))})
    assert [json.loads(line)["d"] for line in encode_file(table, "jsonl", "none").splitlines()] == [
        "PT1728001.0005S",
        "PT-1S",
        "PT0S",
    ]


def test_values_of_tsv_are_separated_by_tabs(tmp_path: Path) -> None:
    with App("CREATE TABLE t (id BIGINT, k STRING); INSERT INTO t VALUES (1, 'a');", _direct=True) as app:
        app.sql(f"INSERT INTO file://{tmp_path}/t.tsv SELECT * FROM t")
        assert app.sql(f"SELECT * FROM file://{tmp_path}/t.tsv").rows() == [{"id": 1, "k": "a"}]
    assert (tmp_path / "t.tsv").read_text() == '"id"\t"k"\n1\t"a"\n'
