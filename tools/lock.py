"""Write requirements/lock.txt: one set of versions, with hashes, for every supported Python and platform.

Run by ``make lock``. uv resolves; it lives in an environment of its own that is thrown away. Settings that
name indexes and wheel folders are kept out, so that the file is the same whoever writes it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "lock.txt"
EXTRAS = (
    "clickhouse", "delta", "http", "java", "kafka", "mongodb", "mysql", "polars", "postgresql", "redis", "s3",
    "sql", "dev",
)  # fmt: skip
# What must be exactly this, because something outside of PyPI has to match it: the Kafka connector's jars, and
# mongo-java-server, which the driver's later versions refuse.
EXACT = ("pyspark==4.2.0", "pymongo==4.10.1")
ALLOWED = re.compile(r"^( *#.*|\S+==\S+( ; .*)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?|)$")


def main() -> int:
    settings = ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_FIND_LINKS")
    clean = {name: value for name, value in os.environ.items() if name not in settings}
    with tempfile.TemporaryDirectory(prefix="millpond-lock-") as scratch:
        home = Path(scratch)
        venv.create(home / "venv", with_pip=True)
        binaries = home / "venv" / "bin"
        subprocess.run(
            [binaries / "python", "-m", "pip", "install", "--quiet", "uv"], check=True, env=os.environ
        )
        exact = home / "exact.txt"
        exact.write_text("\n".join(EXACT) + "\n")
        written = home / "lock.txt"
        command = [
            str(binaries / "uv"), "pip", "compile", "pyproject.toml", "--no-config", "--universal",
            "--python-version", "3.11", "--generate-hashes", "--upgrade", "--no-header", "--no-annotate",
            "--quiet", "--constraint", str(exact), "--output-file", str(written),
        ]  # fmt: skip
        for extra in EXTRAS:
            command += ["--extra", extra]
        subprocess.run(command, cwd=ROOT, check=True, env=clean)
        text = written.read_text()
    strange = [line for line in text.splitlines() if not ALLOWED.match(line)]
    if strange:
        print("not written: lines that do not belong in a lock file:", *strange, sep="\n  ", file=sys.stderr)
        return 1
    extras = ", ".join(EXTRAS)
    LOCK.write_text(f"# Millpond with its extras {extras}. Written by `make lock`; do not edit.\n{text}")
    print(f"{LOCK.relative_to(ROOT)}: {text.count('==')} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
