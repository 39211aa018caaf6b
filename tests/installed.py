"""Packages that are installed for a test, into a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millpond.extensions import offered
from millpond.sql.userfunctions import _offered_function


def install(project: Path, site: Path) -> None:
    """Builds a package and installs it into a folder, from what is on this machine."""
    options = ("--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--no-warn-script-location")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def offer(site: Path, package: str, group: str, **points: str) -> None:
    """Writes what a package says of itself when it is installed, without the package."""
    info = site / f"{package}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
    lines = [f"[millpond.{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def use(site: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Makes what is in a folder importable for a test."""
    monkeypatch.syspath_prepend(str(site))
    for found in (offered, _offered_function):
        found.cache_clear()
        request.addfinalizer(found.cache_clear)
