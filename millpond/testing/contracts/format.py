"""Tests what every format of files promises; the tests run over any format.

A package that has a format of its own runs them with pytest; it says how a file of the format is written:

    class PipesPlace(FormatPlace):
        name, suffix = "pipes", ".pipes"

        def write(self, path: Path, table: pa.Table) -> None: ...

    class TestPipes(FormatContract):
        @pytest.fixture
        def place(self) -> PipesPlace:
            return PipesPlace()
"""

from __future__ import annotations

import gzip
import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from millpond.errors import BadData
from millpond.formats.base import Format, Piece, find_format, has_known_suffix
from millpond.testing.contracts.source import SCHEMA, rows
from millpond.types import Column, Schema


class FormatPlace(ABC):
    """Says how files of a format are written."""

    name: str
    suffix: str
    """One of its suffixes, with the dot."""
    values: Mapping[str, Any] = {}
    """The options that the format knows."""
    packs = True
    """Whether a file may be compressed as a whole: ``.gz``."""

    @abstractmethod
    def write(self, path: Path, table: pa.Table) -> None:
        """Writes a file with these rows; columns are integers or texts."""

    def append(self, path: Path, table: pa.Table) -> None:
        """Adds rows to a file of a format that grows."""
        raise NotImplementedError


def make_format(place: FormatPlace, files: Any = None) -> Format:
    """Returns the format, as it travels to another process."""
    made = find_format("", place.name)(place.values, files)
    again: Format = pickle.loads(pickle.dumps(made))
    return again


def read(form: Format, path: str, schema: Schema = SCHEMA, pieces: Sequence[Piece] | None = None) -> Any:
    """Returns the rows of some pieces; each is of exactly the types that were asked for."""
    batches: list[pa.RecordBatch] = []
    for piece in form.pieces(path) if pieces is None else pieces:
        found = list(form.read(path, schema, pickle.loads(pickle.dumps(piece))))
        assert all(b.schema == schema.arrow() for b in found)
        batches += found
    table = pa.Table.from_batches(batches, schema.arrow())
    table.validate(full=True)
    return table.to_pylist()


class FormatContract:
    """Contains the tests. A subclass has a fixture ``place``."""

    @pytest.fixture
    def path(self, place: FormatPlace, tmp_path: Path) -> Path:
        return tmp_path / f"t{place.suffix}"

    def test_it_is_found_by_name_and_by_suffix(self, place: FormatPlace) -> None:
        found = find_format("", place.name.upper())
        assert found.name == place.name and place.suffix in found.suffixes
        assert find_format(f"/data/T{place.suffix.upper()}") is found
        assert has_known_suffix(f"t{place.suffix}.gz")

    def test_a_file_is_read(self, place: FormatPlace, path: Path) -> None:
        place.write(path, rows(0, 20))
        assert read(make_format(place), str(path)) == rows(0, 20).to_pylist()

    def test_columns_are_discovered(self, place: FormatPlace, path: Path) -> None:
        place.write(path, rows(1, 20))
        form = make_format(place)
        found = form.discover(str(path))
        assert found.names == SCHEMA.names
        assert read(form, str(path), found) == rows(1, 20).to_pylist()

    def test_a_file_without_rows(self, place: FormatPlace, path: Path) -> None:
        place.write(path, rows(0, 0))
        form = make_format(place)
        assert set(form.discover(str(path)).names) <= set(SCHEMA.names)
        assert read(form, str(path)) == []

    def test_columns_are_matched_by_name(self, place: FormatPlace, path: Path) -> None:
        place.write(path, rows(0, 5))
        wanted = Schema((Column("NAME", pa.string()), Column("more", pa.float64())))
        found = read(make_format(place), str(path), wanted)
        assert found == [{"NAME": r["name"], "more": None} for r in rows(0, 5).to_pylist()]

    def test_pieces_are_the_whole_in_order(self, place: FormatPlace, path: Path) -> None:
        place.write(path, rows(0, 5_000))
        form = make_format(place)
        assert form.pieces(str(path))
        assert read(form, str(path)) == rows(0, 5_000).to_pylist()
        assert read(form, str(path), pieces=[Piece()]) == rows(0, 5_000).to_pylist()

    def test_what_is_received_is_what_is_read(self, place: FormatPlace, path: Path) -> None:
        place.write(path, rows(0, 50))
        form = make_format(place)
        for piece in form.pieces(str(path)):
            parts = list(form.receive(str(path), SCHEMA, piece))
            assert not any(p.rejected.num_rows for p in parts)
            together = pa.Table.from_batches([p.rows for p in parts], SCHEMA.arrow())
            assert together.to_pylist() == read(form, str(path), pieces=[piece])
            places = [at for p in parts for at in p.places.to_pylist()]
            assert places == list(range(len(places)))

    def test_a_value_that_does_not_fit_is_put_aside(self, place: FormatPlace, path: Path) -> None:
        ids = pa.array(["1", "two", "3"])
        place.write(path, pa.table({"id": ids, "name": pa.array(["a", "b", "c"])}))
        form = make_format(place)
        with pytest.raises(BadData):
            read(form, str(path))
        parts = [p for piece in form.pieces(str(path)) for p in form.receive(str(path), SCHEMA, piece)]
        reasons = [r for p in parts for r in p.rejected["reason"].to_pylist()]
        assert reasons and all(reasons)
        good = {row["id"]: row["name"] for p in parts for row in p.rows.to_pylist()}
        assert good.items() <= {1: "a", 3: "c"}.items()
        places = [at for p in parts for at in (*p.places.to_pylist(), *p.rejected["place"].to_pylist())]
        assert len(set(places)) == len(places)

    def test_a_new_column_is_found(self, place: FormatPlace, path: Path) -> None:
        place.write(path, rows(0, 5).append_column("more", pa.array(range(5))))
        form = make_format(place)
        (piece, *_) = form.pieces(str(path))
        assert form.fresh(str(path), SCHEMA, piece).names == ("more",)
        assert read(form, str(path)) == rows(0, 5).to_pylist()

    def test_a_file_that_grows_is_read_from_where_it_ended(self, place: FormatPlace, path: Path) -> None:
        place.write(path, rows(0, 8))
        form, size = make_format(place), path.stat().st_size
        if not form.grows(str(path)):
            assert form.complete(str(path), 0, size, final=True) == size
            return
        end = form.complete(str(path), 0, size, final=False)
        place.append(path, rows(8, 8))
        size = path.stat().st_size
        now = form.complete(str(path), end, size, final=False)
        assert 0 < end < now <= size
        first = read(form, str(path), pieces=form.pieces(str(path), 0, end))
        assert first == rows(0, len(first)).to_pylist()
        more = read(form, str(path), pieces=form.pieces(str(path), end, now))
        assert [*first, *more] == rows(0, 16).to_pylist()

    def test_half_a_record_waits(self, place: FormatPlace, path: Path) -> None:
        """Checks that wherever a writer has come to, what is whole and what comes after it are the file."""
        place.write(path, rows(0, 8))
        form, size = make_format(place), path.stat().st_size
        if not form.grows(str(path)):
            return
        for cut in range(0, size + 1, 7):
            end = form.complete(str(path), 0, cut, final=False)
            assert 0 <= end <= cut
            parts = [(0, end)] if end else []
            ranges = [*parts, (end, form.complete(str(path), end, size, final=True))]
            pieces = [p for begin, until in ranges for p in form.pieces(str(path), begin, until)]
            assert read(form, str(path), pieces=pieces) == rows(0, 8).to_pylist()

    def test_a_packed_file_is_read(self, place: FormatPlace, path: Path) -> None:
        if not place.packs:
            return
        place.write(path, rows(1, 20))
        packed = path.with_name(f"{path.name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        form = make_format(place)
        assert not form.grows(str(packed))
        assert form.discover(str(packed)).names == SCHEMA.names
        assert read(form, str(packed)) == rows(1, 20).to_pylist()

    def test_files_of_a_file_system(self, place: FormatPlace, path: Path) -> None:
        place.write(path, rows(0, 20))
        form = make_format(place, SubTreeFileSystem(str(path.parent), LocalFileSystem()))
        assert form.discover(path.name).names == SCHEMA.names
        assert read(form, path.name) == rows(0, 20).to_pylist()
        with pytest.raises(FileNotFoundError):
            form.discover(f"gone{place.suffix}")
