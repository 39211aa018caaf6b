"""The file source: which files are read, and what happens when they are not there or change."""

from __future__ import annotations

import gzip
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.connectors.files.listed_source import ROW_BITS
from millpond.connectors.files.paths import expand_braces
from millpond.connectors.files.source import FileSource
from millpond.errors import BadData, FileMissing, InvalidOption, NotSupported, SourceError, UnknownName
from millpond.options import read_options, settings_of
from millpond.types import Column, Schema

IDS = Schema((Column("id", pa.int64()),))


def source(path: object, declared: Schema | None = None, **options: str) -> FileSource:
    settings = settings_of({k.replace("_", "."): v for k, v in options.items()})
    return FileSource(f"file://{path}", read_options("file", FileSource.options, settings), declared)


def ids(found: FileSource) -> list[Any]:
    splits = found.splits(None, found.latest(None))
    return [v for s in splits for b in found.read(s) for v in b.column("id").to_pylist()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, value in [("a.csv", 1), ("b.csv", 2), ("sub/c.csv", 3), ("sub/deep/d.csv", 4)]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"id\n{value}\n")
    (tmp_path / "e.jsonl").write_text('{"id": 5}\n')
    (tmp_path / "notes.md").write_text("id\n")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden.csv").write_text("id\n9\n")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.csv", [1]),
        ("*.csv", [1, 2]),
        ("?.csv", [1, 2]),
        ("[b-z].csv", [2]),
        ("**/*.csv", [1, 2, 3, 4]),
        ("sub/*.csv", [3]),
        ("{b,a}.csv", [1, 2]),
        ("{a.csv,*.jsonl}", [1, 5]),
        ("{a,sub/{c,deep/d}}.csv", [1, 3, 4]),
        ("", [1, 2, 5]),
        ("sub", [3]),
        ("*[!d]", [1, 2, 5]),
    ],
)
def test_files_of_a_path(data: Path, pattern: str, expected: list[int]) -> None:
    assert ids(source(data / pattern)) == expected


def test_braces_are_expanded() -> None:
    assert set(expand_braces("a{b,c{d,e}}f")) == {"abf", "acdf", "acef"}


def test_relative_paths_and_names_that_look_like_patterns(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    (data / "x[1]%20{y}.csv").write_text("id\n7\n")
    found = source("x[1]%20{y}.csv")
    monkeypatch.chdir("/")
    assert ids(found) == [7]


def test_the_format_option_goes_before_the_suffix(data: Path) -> None:
    (data / "rows.txt").write_text('{"id": 8}\n')
    assert ids(source(data / "rows.txt", format="ndjson")) == [8]
    with pytest.raises(NotSupported, match="does not tell its format") as e:
        source(data / "rows.txt").schema()
    assert "WITH ('format' = 'csv')" in (e.value.hint or "")
    with pytest.raises(UnknownName, match='format "parket"') as u:
        source(data / "rows.txt", format="parket")
    assert u.value.hint == 'did you mean "parquet"?'


def test_a_uri_without_a_path() -> None:
    for uri in ("file://", "file:x.csv"):
        with pytest.raises(InvalidOption, match="names no file"):
            FileSource(uri, {}, None)


def test_wrong_options_are_told_when_the_source_is_made(data: Path) -> None:
    with pytest.raises(InvalidOption, match="delimiter"):
        source(data / "a.csv", delimiter="||")
    assert ids(source(data / "a.csv", watch="false")) == [1]


@pytest.mark.parametrize("name", ["gone.csv", "gone-*.csv", "empty"])
def test_a_missing_file_tells_three_ways_out(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    found = source(tmp_path / name)
    for ask in (found.schema, lambda: found.latest(None)):
        with pytest.raises(FileMissing) as e:
            ask()
        assert name in e.value.message
        hint = e.value.hint or ""
        assert "check the path" in hint
        assert 'WITH ("file.wait.timeout" = "30s")' in hint
        assert "make sure that matching files will arrive" in hint


@pytest.mark.parametrize("pattern", ["new.csv", "n*.csv"])
def test_a_file_is_waited_for(tmp_path: Path, pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    def arrive() -> None:
        (tmp_path / "part").write_text("id\n1\n")
        os.rename(tmp_path / "part", tmp_path / "new.csv")

    timer = threading.Timer(0.25, arrive)
    timer.start()
    found = source(tmp_path / pattern, file_wait_timeout="20s", file_retry_interval="100ms")
    with caplog.at_level(logging.INFO):
        assert ids(found) == [1]
    timer.join()
    lines = [r.message for r in caplog.records if "trying again" in r.message]
    assert 1 <= len(lines) <= 4 and "attempt 1" in lines[0]


def test_the_wait_ends(tmp_path: Path) -> None:
    """Before the next look would be due."""
    began = time.monotonic()
    with pytest.raises(FileMissing, match=r"after 0\.2 s"):
        source(tmp_path / "x.csv", file_wait_timeout="200ms", file_retry_interval="600s").latest(None)
    assert time.monotonic() - began < 600


def test_a_file_that_changed_is_an_error(data: Path) -> None:
    found = source(data / "a.csv")
    end = found.latest(None)
    splits = found.splits(None, end)
    (data / "a.csv").write_text("id\n3\n2\n")
    with pytest.raises(SourceError, match="changed while it was being read"):
        found.splits(None, end)
    with pytest.raises(SourceError, match="changed"):
        list(found.read(splits[0]))
    (data / "a.csv").unlink()
    with pytest.raises(SourceError, match="removed"):
        list(found.read(splits[0]))


def test_a_file_that_changes_during_reading_is_an_error(data: Path) -> None:
    found = source(data / "a.csv")
    reading = found.read(found.splits(None, found.latest(None))[0])
    next(reading)
    (data / "a.csv").write_text("id\n3\n2\n")
    with pytest.raises(SourceError, match="changed"):
        list(reading)


def test_files_that_come_later_are_after_the_others_whatever_their_name(data: Path) -> None:
    found = source(data / "*.csv")
    first = found.latest(None)
    (data / "0.csv").write_text("id\n6\n")
    second = found.latest(first)
    [split] = found.splits(first, second)
    [batch] = list(found.read(split))
    assert batch.to_pylist() == [{"id": 6, "_seq": 2 << ROW_BITS}]


def test_the_columns_of_several_files_are_put_together(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,x,none\n")
    (tmp_path / "2.csv").write_text("id,x\n1,1\n")
    (tmp_path / "3.csv").write_text("x,ID,y\n1.5,2,2024-01-01\n")
    (tmp_path / "4.jsonl").write_text('{"id": 3, "z": {"a": null}}\n')
    found = source(tmp_path)
    assert (
        found.schema().ddl()
        == "`id` BIGINT, `x` DECIMAL(38,19), `none` STRING, `y` DATE, `z` STRUCT<`a`: STRING>"
    )
    assert ids(found) == [1, 2, 3]


def test_empty_files_need_declared_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(SourceError, match="is empty") as e:
        source(tmp_path / "a.csv").schema()
    assert e.value.hint == "declare the columns"
    assert ids(source(tmp_path / "a.csv", IDS)) == []


def test_damaged_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"id\n" + b"1234567\n" * 100_000)[:-100])
    with pytest.raises((SourceError, BadData), match=r"a\.csv\.gz"):
        ids(source(path, IDS))
    path.write_bytes(b"this is no gzip")
    with pytest.raises((SourceError, BadData), match=r"a\.csv\.gz"):
        source(path).schema()
