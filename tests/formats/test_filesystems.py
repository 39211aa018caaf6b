"""Every format reads the files of any file system of Arrow, packed ones too."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from millpond.formats.base import find_format


def _write(path: Path) -> None:
    contents = {".csv": b"a,b\n1,x\n2,y\n", ".jsonl": b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n'}
    contents[".json"] = b'[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]'
    kind = "".join(s for s in path.suffixes if s not in (".gz", ".zst"))
    if kind == ".parquet":
        parquet.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(contents[kind]))
    elif path.suffix == ".zst":
        path.write_bytes(pa.compress(contents[kind], "zstd", asbytes=True))
    else:
        path.write_bytes(contents[kind])


@pytest.mark.parametrize(
    "name", ["t.csv", "t.csv.gz", "t.csv.zst", "t.jsonl", "t.jsonl.gz", "t.json", "t.json.zst", "t.parquet"]
)
def test_a_file_system(tmp_path: Path, name: str) -> None:
    _write(tmp_path / name)
    files = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    form = pickle.loads(pickle.dumps(find_format(name)({}, files)))
    columns = form.discover(name)
    rows = [r for piece in form.pieces(name) for b in form.read(name, columns, piece) for r in b.to_pylist()]
    assert rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    with pytest.raises(FileNotFoundError):
        form.discover("gone-" + name)
