"""moto's server for S3, which remembers what it was asked in a file: one that is killed and started again repeats the
requests to itself before it listens, so that its objects are there again.

    python -m tests.moto_server PORT RECORDING
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(port: str, recording: str) -> None:
    os.environ["MOTO_RECORDER_FILEPATH"] = recording
    from moto.moto_api import recorder
    from moto.server import ThreadedMotoServer
    from moto.server import main as listen

    known = Path(recording)
    if known.exists():
        text = known.read_bytes()
        known.write_bytes(text[: text.rfind(b"\n") + 1])  # a kill may have cut off the last request
        hidden = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        hidden.start()
        host, hidden_port = hidden.get_host_and_port()
        recorder.replay_recording(f"http://{host}:{hidden_port}")
    recorder.start_recording()
    listen(["-H", "127.0.0.1", "-p", port])


if __name__ == "__main__":
    main(*sys.argv[1:])
