"""A Kafka broker to play with, on localhost:9092, until Ctrl-C. Run by ``make kafka``; it keeps nothing."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.servers import Kafka  # noqa: E402

PORT = 9092


def main() -> int:
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
    sys.exit(main())
