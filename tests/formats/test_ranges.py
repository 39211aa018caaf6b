"""Files in pieces: however a file is cut where records end, its pieces together are the whole; and bad records are put
aside, each alone, wherever they stand."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv

from millpond.formats import blocks, csvrecords, textfile
from millpond.formats.base import Format, Piece, find_format
from millpond.formats.csv import Csv
from millpond.formats.csvrecords import CsvRecords
from millpond.formats.jsonl import JsonLines
from millpond.types import Column, Schema

pytestmark = pytest.mark.slow

ROW = Schema((Column("id", pa.int64()), Column("s", pa.string())))
Found = tuple[list[Any], list[Any]]


@contextmanager
def written(content: bytes, name: str, block: int) -> Iterator[str]:
    """A file, read in small blocks."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as place:
        patch.setattr(blocks, "BLOCK", block)
        patch.setattr(csvrecords, "_TAIL", 3)
        path = Path(place) / name
        path.write_bytes(content)
        yield str(path)


def received(form: Format, path: str, pieces: list[Piece], schema: Schema = ROW) -> Found:
    """Rows and rejected values of pieces; places are those of all records."""
    rows: list[Any] = []
    bad: list[Any] = []
    for piece in pieces:
        places: list[int] = []
        for part in form.receive(path, schema, piece):
            rows += [tuple(r.values()) for r in part.rows.to_pylist()]
            bad += part.rejected["value"].to_pylist()
            places += part.places.to_pylist() + part.rejected["place"].to_pylist()
            assert part.rows.num_rows == len(part.places)
        assert sorted(places) == list(range(len(places)))
    return rows, bad


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet='",\n\r\\ab', max_size=60).map(str.encode),
    st.sampled_from([None, "\\"]),
    st.sampled_from([None, '"']),
    st.integers(0, 60),
)
def test_records_end_where_arrow_says(data: bytes, escape: str | None, quote: str | None, at: int) -> None:
    records = CsvRecords(",", quote, escape)
    ends = records.ends(data)
    stops = ends if len(ends) and ends[-1] == len(data) else np.append(ends, len(data))
    begins = np.append(0, stops[:-1])
    count = sum(data[a:b].strip(b"\r\n") != b"" for a, b in zip(begins, stops, strict=True))
    wrong: list[Any] = []

    def skip(row: Any) -> str:
        wrong.append(row)
        return "skip"

    if data:
        rows = arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(use_threads=False, column_names=["a", "b"], block_size=len(data) + 16),
            arrow_csv.ParseOptions(
                quote_char=quote or False,
                escape_char=escape or False,
                newlines_in_values=True,
                invalid_row_handler=skip,
            ),
        )
        assert rows.num_rows + len(wrong) == count
    prefix = data[:at]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csvrecords, "_TAIL", 3)
        found = records.ends(prefix)
        assert records.last_end(prefix) == (found[-1] if len(found) else 0)
        assert set(found) <= set(ends)


@settings(max_examples=150, deadline=None)
@given(
    st.text(alphabet='",\n\rab1é', max_size=120),
    st.booleans(),
    st.lists(st.integers(0, 130), max_size=4),
    st.integers(1, 40),
    st.sampled_from([0, 20]),
)
def test_csv_in_pieces_is_the_whole(
    text: str, header: bool, sizes: list[int], block: int, limit: int
) -> None:
    content = ("id,s\n" + text).encode()
    form = Csv({"header": header, "max.record": limit})
    with written(content, "t.csv", block) as path:
        cuts = [0]
        for size in sorted(min(s, len(content)) for s in sizes):
            cuts.append(form.complete(path, cuts[-1], size, final=False) if size > cuts[-1] else cuts[-1])
        ends = [*cuts[1:], None]
        pieces = [Piece(begin=a, end=b) for a, b in zip(cuts, ends, strict=True)]
        whole = received(form, path, [Piece()])
        assert received(form, path, pieces) == whole
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(textfile, "BYTES_PER_PIECE", 10)
            assert received(form, path, form.pieces(path)) == whole
            rest = form.pieces(path, cuts[-1])
            assert received(form, path, [*pieces[:-1], *rest]) == whole


def row_of(number: int, text: str) -> dict[str, Any]:
    return {"id": number, "s": text}


ROWS = st.builds(row_of, st.integers(-9, 9), st.text(alphabet='ab"{[,\\é', max_size=5))
BAD_LINES = st.sampled_from(
    [
        b'{"id": 1',
        b"[1]",
        b'{"id": "x"}',
        b'{"id": 1}{"id": 2}',
        b'{"id": 1.5}',
        b'{"s": "\xff"}',
        b"}",
        b'"a"',
        b'{"x": ' + b"[" * 6 + b"]" * 6 + b"}",
        b'{"id": 1, "s": "' + b"x" * 100 + b'"}',
    ]
)
LINES = st.lists(st.one_of(ROWS, BAD_LINES, st.sampled_from([b"", b"  "])), max_size=30)


@settings(max_examples=100, deadline=None)
@given(
    LINES, st.sampled_from([b"\n", b"\r\n", b" \n"]), st.integers(1, 200), st.integers(5, 80), st.booleans()
)
def test_bad_lines_of_json_are_put_aside(
    lines: list[Any], ending: bytes, block: int, about: int, ended: bool
) -> None:
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    content = b"".join(t + ending for t in texts)
    content = content if ended else content[: -len(ending)]
    rows = [(r["id"], r["s"]) for r in lines if isinstance(r, dict)]
    form = JsonLines({"max.depth": 5, "max.record": 90})
    with written(content, "t.jsonl", block) as path:
        found, bad = received(form, path, [Piece()])
        assert found == rows
        expected = [t for t in texts if t in BAD_LINES.elements]  # type: ignore[attr-defined]
        assert [b.rstrip(b"\r ") for b in bad] == expected
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(textfile, "BYTES_PER_PIECE", about)
            assert received(form, path, form.pieces(path)) == (found, bad)
        for size in range(0, len(content), 7):
            cut = form.complete(path, 0, size, final=False)
            assert cut == content[:size].rfind(b"\n") + 1
            assert received(form, path, [Piece(end=cut), Piece(begin=cut)]) == (found, bad)


BAD_ROWS = st.sampled_from(
    [b"1", b"1,2,3", b"x,1", b"1.5,a", b'"y\nz",2', b"1,\xff", b"99999999999999999999,a"]
)
GOOD_ROWS = st.sampled_from([b"1,a", b"2,", b'3,"x\ny"', b'"4","q""q"', b" 5 ,z", b""])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(GOOD_ROWS, BAD_ROWS), max_size=30),
    st.integers(1, 60),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_bad_rows_of_csv_are_put_aside(lines: list[bytes], block: int, ending: bytes) -> None:
    good = {
        b"1,a": (1, "a"),
        b"2,": (2, None),
        b'3,"x\ny"': (3, "x\ny"),
        b'"4","q""q"': (4, 'q"q'),
        b" 5 ,z": (5, "z"),
    }
    content = b"".join(line + ending for line in [b"id,s", *lines])
    with written(content, "t.csv", block) as path:
        rows, bad = received(Csv(), path, [Piece()])
        assert rows == [good[line] for line in lines if line in good]
        expected = [line for line in lines if line and line not in good]
        assert bad == expected


@pytest.mark.parametrize("name", ["t.csv.gz", "t.parquet", "t.json"])
def test_files_that_do_not_grow(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"{}")
    form = find_format(str(path))()
    assert not form.grows(str(path)) and form.complete(str(path), 0, 2, final=False) == 2


def test_a_half_written_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for content, whole in [
        (b"", 0),
        (b"id,s", 0),
        (b"id,s\n", 5),
        (b"id,s\n1,a", 5),
        (b'id,s\n1,"a\nb', 5),
        (b'id,s\n1,"a\nb"\n', 13),
        (b"id,s\r\n1,a\r", 6),
    ]:
        path.write_bytes(content)
        assert Csv().complete(str(path), 0, len(content), final=False) == whole
        assert Csv().complete(str(path), 0, len(content), final=True) == len(content)
