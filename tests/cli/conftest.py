"""The command as its users start it: a process of its own, with a temporary directory of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

START = "from millpond.cli.main import main; main()"
PATIENCE = 180


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "cli" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@dataclass
class Done:
    code: int
    out: str
    err: str


@dataclass
class Running:
    process: subprocess.Popen[str]
    out: Path
    err: Path

    def wait_for(self, text: str, where: str = "err", timeout: float = PATIENCE) -> None:
        file = self.err if where == "err" else self.out
        deadline = time.monotonic() + timeout
        while text not in file.read_text():
            assert self.process.poll() is None, f"it ended: {self.err.read_text()}"
            assert time.monotonic() < deadline, f"no {text!r} in {file.read_text()!r}; {self.err.read_text()}"
            time.sleep(0.05)

    def stop(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@dataclass
class Cli:
    """Runs ``millpond …`` in a directory; ``env`` goes on top of the environment."""

    cwd: Path
    env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *args: str | Path, stdin: str = "", **env: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-c", START, *map(str, args)],
            cwd=self.cwd,
            env=self._env(env),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert "Traceback" not in done.stderr or "--verbose" in args, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str | Path, background: bool = False, **env: str) -> Running:
        """Starts it and goes on; as a shell does with ``&``, it ignores Ctrl-C at first if it is in the background."""
        number = len(self.started)
        out, err = self.cwd / f"out{number}", self.cwd / f"err{number}"
        with out.open("w") as o, err.open("w") as e:
            process = subprocess.Popen(
                [sys.executable, "-c", START, *map(str, args)],
                cwd=self.cwd,
                env=self._env(env),
                stdin=subprocess.DEVNULL,
                stdout=o,
                stderr=e,
                text=True,
                preexec_fn=_ignore_interrupts if background else None,
            )
        self.started.append(process)
        return Running(process, out, err)

    def file(self, name: str, text: str) -> Path:
        path = self.cwd / name
        path.write_text(text)
        return path

    def _env(self, env: dict[str, str]) -> dict[str, str]:
        return os.environ | {"TMPDIR": str(self.cwd / "tmp"), "COLUMNS": "80"} | self.env | env


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    (tmp_path / "tmp").mkdir()
    made = Cli(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.wait()
