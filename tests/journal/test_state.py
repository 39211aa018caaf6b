"""Whose a state directory is, and who may use it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.changes import Changes
from millpond.errors import StateForeign, StateLocked, StateUnwritable
from millpond.journal import Journal, StateDirectory

HOLDER = """
import sys, time
from millpond.journal import StateDirectory
held = StateDirectory(sys.argv[1], read_only=sys.argv[2] == "read")
print("held", flush=True)
time.sleep(60)
"""


def hold(path: Path, how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), how], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_it_is_made_private_and_opened_again(tmp_path: Path) -> None:
    with StateDirectory(tmp_path / "a" / "b") as state:
        assert stat.S_IMODE(state.path.stat().st_mode) == 0o700
        assert state.durable
    with StateDirectory(tmp_path / "a" / "b"):
        pass


def test_without_a_path_it_is_removed_at_the_end() -> None:
    with StateDirectory() as state:
        assert state.path.is_dir() and not state.durable
        (state.path / "checkpoints").mkdir()
    assert not state.path.exists()


def test_a_second_app_is_told_the_process_of_the_first(tmp_path: Path) -> None:
    with hold(tmp_path / "s", "run") as other:
        for read_only in (False, True):
            with pytest.raises(StateLocked, match=f"process {other.pid}"):
                StateDirectory(tmp_path / "s", read_only=read_only)
        os.kill(other.pid, signal.SIGKILL)
    StateDirectory(tmp_path / "s").close()


def test_a_second_app_in_this_process_is_refused(tmp_path: Path) -> None:
    with StateDirectory(tmp_path), pytest.raises(StateLocked, match=str(os.getpid())):
        StateDirectory(tmp_path)


def test_readers_share_it_and_keep_a_writer_out(tmp_path: Path) -> None:
    StateDirectory(tmp_path / "s").close()
    with hold(tmp_path / "s", "read") as other:
        StateDirectory(tmp_path / "s", read_only=True).close()
        with pytest.raises(StateLocked, match="reads it"):
            StateDirectory(tmp_path / "s")
        other.kill()


def test_a_directory_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not touch")
    with pytest.raises(StateForeign):
        StateDirectory(tmp_path)
    with pytest.raises(StateForeign):
        StateDirectory(tmp_path, read_only=True)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    StateDirectory(tmp_path / "s").close()
    (tmp_path / "s" / "format").write_text("millpond 99\n")
    with pytest.raises(StateForeign, match="millpond 99"):
        StateDirectory(tmp_path / "s")


def test_a_path_that_cannot_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnwritable):
        StateDirectory(tmp_path / "file")
    with pytest.raises(StateUnwritable):
        StateDirectory(tmp_path / "file" / "below")


def test_a_kill_before_the_format_was_named_leaves_a_directory_that_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "format.new").write_text("mill")
    with StateDirectory(tmp_path) as state:
        assert (state.path / "format").exists() and not (state.path / "format.new").exists()


def test_names_of_what_is_made_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a folder or file is made, the folder that has its name is synced; files of SQLite are SQLite's matter."""
    synced: dict[str, set[str]] = {}
    plain = os.fsync

    def noted(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        synced[path] = set(os.listdir(path)) if os.path.isdir(path) else set()
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    path = tmp_path / "a" / "b" / "state"
    with StateDirectory(path):
        journal = Journal(path, durable=True)
        journal.commit({"t": Changes(pa.table({"id": pa.array(range(300_000), pa.int64())}))})
        journal.close()
    assert "a" in synced[str(tmp_path)] and "b" in synced[str(tmp_path / "a")]
    assert "state" in synced[str(tmp_path / "a" / "b")]
    assert {"format", "identity", "data"} <= synced[str(path)]
    (file,) = (path / "data").iterdir()
    assert file.name in synced[str(path / "data")] and str(file) in synced
