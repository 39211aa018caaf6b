"""Shows long results on a terminal, a screen at a time."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

_DEFAULT = "less -FRSX"
"""It ends by itself if everything fits, and does not wrap long lines."""


def page(lines: Sequence[str]) -> bool:
    """Shows the lines with the program in ``PAGER``; returns False if they fit the terminal, or there is no such
    program.
    """
    if len(lines) < shutil.get_terminal_size().lines:
        return False
    command = shlex.split(os.environ.get("PAGER") or _DEFAULT)
    if not command or shutil.which(command[0]) is None:
        return False
    sys.stdout.flush()
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, encoding="utf-8") as pager:
        assert pager.stdin is not None
        try:
            pager.stdin.write("\n".join(lines) + "\n")
            pager.stdin.close()
        except (BrokenPipeError, KeyboardInterrupt):
            pass  # the user has left the pager
        while True:
            try:
                pager.wait()
                return True
            except KeyboardInterrupt:
                continue  # Ctrl-C is for the pager while it runs
