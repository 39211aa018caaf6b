"""Servers that the tests start: PostgreSQL and Redis. Run by ``make setup``; does nothing when they are there.

As root on a system with apt they are installed. Anybody else is told what to install: the tests that need a server
fail without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = {"postgresql": "initdb", "redis-server": "redis-server"}


def is_there(program: str) -> bool:
    return shutil.which(program) is not None or any(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))


def main() -> int:
    missing = [package for package, program in PROGRAMS.items() if not is_there(program)]
    if not missing:
        return 0
    names = " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"Not installed, and needed by some of the tests: {names}", file=sys.stderr)
        print(f"  Debian, Ubuntu: sudo apt-get install {names}", file=sys.stderr)
        print("  macOS: brew install postgresql redis", file=sys.stderr)
        return 0
    print(f"installing {names} for the tests")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True)
        if done.returncode:
            print(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
