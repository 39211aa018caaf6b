"""State directories that earlier versions left behind open, and what ran in them goes on."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from millpond import App
from tests.states.make import HERE, SQL, contents, go_on

pytestmark = pytest.mark.slow


VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))
"""Those of one version, with several formats of the directory, end with the same rows."""


@pytest.mark.parametrize("version", VERSIONS)
def test_an_app_of_an_earlier_version_goes_on(version: str, tmp_path: Path) -> None:
    with tarfile.open(HERE / f"{version}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    with App(SQL, state=tmp_path, _direct=True) as app:
        go_on(app)
        found = contents(app)
    expected = json.loads((HERE / f"{version.partition('-')[0]}.json").read_text())
    assert found == expected
    with App(SQL, state=tmp_path, _direct=True) as app:
        assert contents(app) == expected
