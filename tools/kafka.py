"""A Kafka broker to play with, on localhost:9092, until Ctrl-C. Run by ``make kafka``; it keeps nothing.

With ``demo`` (``make demo KAFKA=1``) it is on a free port and lives as long as ``millpond demo`` runs on it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.servers import Kafka  # noqa: E402

PORT = 9092


def main(arguments: list[str]) -> int:
    return demo(arguments[1:]) if arguments[:1] == ["demo"] else play()


def demo(arguments: list[str]) -> int:
    directory = Path(tempfile.mkdtemp(prefix="millpond-kafka-"))
    print("starting a Kafka broker", flush=True)
    broker = Kafka(directory / "kafka")
    try:
        code = "from millpond.cli.main import main; main()"
        command = [sys.executable, "-c", code, "demo", "--kafka", broker.brokers, *arguments]
        return subprocess.run(command).returncode
    finally:
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)


def play() -> int:
    directory = Path(tempfile.mkdtemp(prefix="millpond-kafka-"))
    print("starting a Kafka broker", flush=True)
    broker = Kafka(directory / "kafka", PORT)
    print(f"it listens on localhost:{PORT}, which is where kafka://topic looks; Ctrl-C ends it", flush=True)
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    ended.wait()
    broker.stop()
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
