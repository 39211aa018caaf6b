"""A real Spark cluster for tests: a standalone master and workers of the installed PySpark.

Each worker is in a mount namespace of its own, in which the folder of the test run is empty: of what the driver writes,
its state directory and its temporary files, executors see only ``shared``.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.request import urlopen

from millpond.engine.java import find_java, prepare_java
from tests.processes import QUICK

_HIDE = """
set -e
mount --bind "$SHARED" "$ASIDE"
mount -t tmpfs none "$HIDDEN"
mkdir -p "$SHARED"
mount --move "$ASIDE" "$SHARED"
exec "$@"
"""
_ASIDE = "/mnt"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Cluster:
    """Runs a master and workers with one core and room for one executor each, until it is closed. ``folder`` is new,
    and in a folder that is ``hidden`` from workers.
    """

    def __init__(self, folder: Path, hidden: Path, workers: int = 2):
        import pyspark

        self.shared = folder / "shared"
        """The folder that all see."""
        self.shared.mkdir(parents=True)
        assert self.shared.is_relative_to(hidden)
        self._class = str(Path(pyspark.__path__[0], "bin", "spark-class"))
        self.port, self._page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self._env = {
            **os.environ,
            **prepare_java(find_java(), self.shared),
            "SPARK_HOME": pyspark.__path__[0],
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -XX:+UseSerialGC",
            "SPARK_MASTER_OPTS": "-Dspark.deploy.recoveryMode=FILESYSTEM"
            f" -Dspark.deploy.recoveryDirectory={self.shared / 'recovery'}",
            "SPARK_NO_DAEMONIZE": "1",
            "SHARED": str(self.shared),
            "HIDDEN": str(hidden),
            "ASIDE": _ASIDE,
        }
        self._env.pop("SPARK_SUBMIT_OPTS", None)
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self.driver_env = self.configured(folder / "conf", {})
        """The environment of a driver."""
        self.log = (folder / "cluster.log").open("ab")
        """What the processes print."""
        self._master = self._start_master()
        self.workers = [self._start_worker(i) for i in range(workers)]
        self._numbers = workers
        try:
            self.wait_for(workers)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def configured(self, folder: Path, more: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment of a driver with more settings of Spark, which are written to a new folder."""
        settings = {
            "spark.executor.memory": "768m",
            "spark.executor.extraJavaOptions": f"{QUICK} -XX:+UseSerialGC",
            **more,
        }
        folder.mkdir()
        text = "".join(f"{name} {value}\n" for name, value in settings.items())
        (folder / "spark-defaults.conf").write_text(text)
        return {
            **os.environ,
            "TMPDIR": str(self._temporary),
            "SPARK_CONF_DIR": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
        }

    def _start_master(self) -> subprocess.Popen[bytes]:
        page = ("--webui-port", str(self._page))
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        return self._start(self._class, "org.apache.spark.deploy.master.Master", *where, *page)

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        # An address of its own: executors of one host would read each other's files.
        size = ("--cores", "1", "--memory", "1g", "--host", f"127.0.1.{number + 1}", "--webui-port", "0")
        work = ("--work-dir", str(self.shared / f"work-{number}"))
        worker = (self._class, "org.apache.spark.deploy.worker.Worker", *size, *work, self.url)
        return self._start(
            "unshare", "-m", "sh", "-c", _HIDE, "sh", *worker, SPARK_LOCAL_IP=f"127.0.1.{number + 1}"
        )

    def _start(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=self._env | env,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            cwd=self.shared,
        )

    def wait_for(self, workers: int) -> None:
        """Waits until so many workers have registered."""
        deadline = time.monotonic() + 60
        seen = ""
        while time.monotonic() < deadline:
            with suppress(OSError), urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as page:
                seen = page.read().decode()
                if seen.count('"state" : "ALIVE"') == workers:
                    return
            for process in (self._master, *self.workers):
                assert process.poll() is None, "a process of the cluster has ended: see cluster.log"
            time.sleep(0.2)
        raise AssertionError(f"not {workers} workers: {seen}")

    def executors(self) -> list[int]:
        """Returns the processes of executors."""
        return [pid for worker in self.workers for pid in _children(worker.pid)]

    def kill_executor(self) -> None:
        """Kills an executor, when there is one."""
        deadline = time.monotonic() + 60
        while not (found := self.executors()):
            assert time.monotonic() < deadline, "no executor has started"
            time.sleep(0.1)
        os.kill(found[0], signal.SIGKILL)

    def kill_worker(self) -> None:
        """Kills a worker, whose executors end with it, and starts another one."""
        worker = self.workers.pop(0)
        mine = _children(worker.pid)
        worker.kill()
        worker.wait()
        for pid in mine:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._numbers += 1
        self.workers.append(self._start_worker(self._numbers))

    def kill_master(self) -> None:
        """Kills the master, and starts it again."""
        self._master.kill()
        self._master.wait()
        self._master = self._start_master()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        mine = self.executors()
        for process in (*self.workers, self._master):
            process.kill()
            process.wait()
        for pid in mine:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.log.close()


def _children(pid: int) -> list[int]:
    """Returns the executors that a worker has started."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += (task / "children").read_text().split()
    except OSError:
        return []
    return sorted({int(p) for p in found if _is_executor(int(p))})


def _is_executor(pid: int) -> bool:
    with suppress(OSError):
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


if __name__ == "__main__":  # a cluster to play with, until Enter
    with Cluster(Path(tempfile.mkdtemp())) as cluster:
        print(cluster.url, cluster.shared, file=sys.stderr)
        sys.stdin.readline()
