"""Real servers for the tests: on 127.0.0.1, on a free port, in a temporary directory, stopped by their own process id.

`make setup` installs what they need (tools/services.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.processes import QUICK

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str, *places: str) -> str:
    """Where a program is; a server that is not there is a failure, never a skip."""
    for place in places:
        found = sorted(Path("/").glob(f"{place.lstrip('/')}/{name}"))
        if found:
            return str(found[-1])
    on_path = shutil.which(name)
    assert on_path is not None, f"{name} is not installed: run `make setup`"
    return on_path


class Postgres:
    """A PostgreSQL server. As root it runs as the user ``postgres``, as it wants to."""

    def __init__(self, directory: Path, **settings: object):
        self.port = free_port()
        self.settings = {
            "fsync": "off",
            "max_connections": 300,
            "shared_buffers": "32MB",
            "wal_level": "logical",
            **settings,
        }
        """What it is started with, the next time."""
        self.directory = directory
        directory.mkdir(parents=True)
        self._bin = "/usr/lib/postgresql/*/bin"
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(directory, "postgres")
        self._run(
            "initdb",
            "-D",
            str(directory / "data"),
            "-A",
            "trust",
            "-U",
            "millpond",
            "--no-sync",
            "-E",
            "UTF8",
        )
        self.start()

    def _run(self, name: str, *arguments: str) -> None:
        command = [*self._as, program(name, self._bin), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"

    def start(self) -> None:
        settings = " ".join(
            [f"-p {self.port} -h 127.0.0.1 -k {self.directory}"]
            + [f"-c {name}={value}" for name, value in self.settings.items()]
        )
        log = str(self.directory / "log")
        data = str(self.directory / "data")
        # Its output must not keep this process's pipes open.
        command = [
            *self._as,
            program("pg_ctl", self._bin),
            "-D",
            data,
            "-w",
            "-t",
            "60",
            "-l",
            log,
            "-o",
            settings,
        ]
        subprocess.run([*command, "start"], stdout=subprocess.DEVNULL, check=True, cwd="/", timeout=120)

    @property
    def pid(self) -> int:
        return int((self.directory / "data" / "postmaster.pid").read_text().splitlines()[0])

    def stop(self, how: str = "immediate") -> None:
        with suppress(FileNotFoundError):
            pid = self.pid
            os.kill(pid, {"immediate": signal.SIGQUIT, "fast": signal.SIGINT}[how])
            wait_for_end(pid)

    def url(self, database: str = "postgres", user: str = "millpond", **more: str) -> str:
        extra = "&".join(f"{k}={quote(v)}" for k, v in more.items())
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}" + (f"?{extra}" if extra else "")

    def new_schema(self, name: str) -> str:
        """The URL of a schema that is empty."""
        self.execute(f"CREATE SCHEMA {name}")
        return self.url(options=f"-csearch_path={name}")

    def execute(self, sql: str, url: str | None = None) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


class MariaDb:
    """A MariaDB server with a binary log, as changes are captured from. User ``millpond``, password ``pond``."""

    def __init__(self, directory: Path):
        self.port = free_port()
        self.directory = directory
        directory.mkdir(parents=True)
        command = [program("mariadb-install-db"), "--no-defaults", f"--datadir={directory / 'data'}"]
        command += ["--auth-root-authentication-method=normal", "--skip-test-db", *self._as()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        self.start()
        for host in ("localhost", "127.0.0.1"):
            self.execute(f"CREATE USER millpond@'{host}' IDENTIFIED BY 'pond'", user="root")
            self.execute(f"GRANT ALL ON *.* TO millpond@'{host}' WITH GRANT OPTION", user="root")

    def _as(self) -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []

    def start(self, *more: str) -> None:
        """More settings come after, and so win over, those that it has."""
        command = [program("mariadbd", "/usr/sbin"), "--no-defaults", f"--datadir={self.directory / 'data'}"]
        command += [f"--port={self.port}", "--bind-address=127.0.0.1", *self._as()]
        command += [f"--socket={self.directory / 'socket'}", f"--pid-file={self.directory / 'pid'}"]
        command += ["--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--binlog-row-image=FULL"]
        command += ["--binlog-row-metadata=FULL", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"]
        command += ["--innodb-buffer-pool-size=64M", "--character-set-server=utf8mb4", *more]
        with open(self.directory / "log", "a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            with suppress(Exception):
                self.execute("SELECT 1", user="root")
                return
            assert time.monotonic() < deadline and self._process.poll() is None, (
                f"mariadbd did not start: {(self.directory / 'log').read_text()[-2000:]}"
            )
            time.sleep(0.02)

    def stop(self) -> None:
        """As if the power had gone."""
        self._process.kill()
        self._process.wait(30)

    def connect(self, database: str | None = None, user: str = "millpond", password: str = "pond") -> Any:
        """A connection of PyMySQL, which commits each statement."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=user,
            password="" if user == "root" else password,
            database=database,
            autocommit=True,
        )

    def execute(self, sql: str, database: str | None = None, user: str = "millpond") -> list[tuple[Any, ...]]:
        with self.connect(database, user) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def new_database(self, name: str) -> str:
        """The URL of a database that is empty."""
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str, user: str = "millpond", password: str = "pond") -> str:
        return f"mysql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"


class Redis:
    """A Redis server. It keeps nothing on the disk unless it is started as ``durable``."""

    def __init__(self, directory: Path):
        self.port = free_port()
        self.directory = directory
        directory.mkdir(parents=True)
        self._durable = False
        self.start()

    def start(self, *, durable: bool = False) -> None:
        self._durable = self._durable or durable
        command = [program("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self.directory), "--save", ""]
        command += ["--appendonly", "yes" if self._durable else "no", "--appendfsync", "always"]
        with open(self.directory / "log", "a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            with suppress(Exception):
                assert self.command("PING")
                return
            assert time.monotonic() < deadline and self._process.poll() is None, "redis-server did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def command(self, *words: str) -> object:
        import redis

        with redis.Redis(port=self.port, decode_responses=True) as client:
            return client.execute_command(*words)  # type: ignore[no-untyped-call]

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"


class MongoJavaServer:
    """mongo-java-server: it speaks the protocol of MongoDB, and is none. It keeps its documents in memory, or as
    ``durable`` in a file, which it writes when it is asked to end."""

    def __init__(self, directory: Path):
        self.port = free_port()
        self.directory = directory
        directory.mkdir(parents=True)
        self._durable = False
        self.start()

    def start(self, *, durable: bool = False) -> None:
        from tools.services import documents

        self._durable = self._durable or durable
        command = [program("java"), "-Xmx512m", "-XX:+UseSerialGC", QUICK, "-cp", f"{documents()}/*"]
        command += [str(Path(__file__).parent / "MongoJavaServer.java"), str(self.port)]
        command += [str(self.directory / "data")] if self._durable else []
        with open(self.directory / "log", "a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            tail = (self.directory / "log").read_text()[-2000:]
            assert time.monotonic() < deadline and self._process.poll() is None, (
                f"no mongo-java-server: {tail}"
            )
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.terminate() if self._durable else self._process.kill()
        self._process.wait(30)

    def url(self, database: str, user: str = "") -> str:
        return f"mongodb://{user}{'@' if user else ''}127.0.0.1:{self.port}/{database}"

    def client(self) -> Any:
        import pymongo

        return pymongo.MongoClient(self.url(""))


class Kafka:
    """A Kafka broker, one process. Its second listener wants a login: user ``millpond``, password ``pond``."""

    def __init__(self, directory: Path, port: int | None = None):
        self.port, self.sasl_port, self._controller = port or free_port(), free_port(), free_port()
        self.directory = directory
        directory.mkdir(parents=True)
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL://127.0.0.1:{self.sasl_port},"
            f"CONTROLLER://127.0.0.1:{self._controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f'{login} user_millpond="pond";',
            "log.dirs": str(directory / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.backoff.ms": "200",
            "log.retention.check.interval.ms": "500",
        }
        self._settings = directory / "server.properties"
        self._settings.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self._java(
            "kafka.tools.StorageTool", "format", "-t", "bWlsbHBvbmQtdGVzdHMtMQ", "-c", str(self._settings)
        )
        self.start()

    def _command(self, *words: str) -> list[str]:
        path = f"{broker_jars()}/*"
        return [program("java"), "-Xmx512m", "-XX:+UseSerialGC", QUICK, "-cp", path, *words]

    def _java(self, *words: str) -> None:
        done = subprocess.run(self._command(*words), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"

    def start(self) -> None:
        with open(self.directory / "log", "a") as log:
            command = self._command("kafka.Kafka", str(self._settings))
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        deadline = time.monotonic() + 120
        while True:
            with suppress(Exception):
                admin.list_topics(timeout=1)
                return
            tail = (self.directory / "log").read_text()[-2000:]
            assert time.monotonic() < deadline and self._process.poll() is None, f"no Kafka broker: {tail}"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)

    @property
    def brokers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_brokers(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        for done in admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
            done.result(30)
        self._await(admin, lambda topics: topic in topics)

    def delete(self, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        for done in admin.delete_topics([topic]).values():
            done.result(30)
        self._await(admin, lambda topics: topic not in topics)

    def delete_records(self, topic: str) -> None:
        """Removes what the topic holds now, as retention does."""
        from confluent_kafka import OFFSET_END, TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
        wanted = [TopicPartition(topic, p, OFFSET_END) for p in partitions]
        for done in admin.delete_records(wanted).values():
            done.result(30)

    def _await(self, admin: AdminClient, seen: Callable[[Container[str]], bool]) -> None:
        """The controller answers before the broker has heard of a change of topics."""
        deadline = time.monotonic() + 30
        while not seen({name for name, t in admin.list_topics(timeout=30).topics.items() if not t.error}):
            assert time.monotonic() < deadline, "the broker has not heard of a change of topics"
            time.sleep(0.02)

    def produce(self, topic: str, values: Iterable[object], **settings: object) -> None:
        """Values: text, bytes, None, or (key, value) or (key, value, partition)."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 5, "log_level": 0, **settings})
        failed: list[object] = []
        for each in values:
            key, value, *more = each if isinstance(each, tuple) else (None, each)
            kind = {"partition": more[0]} if more else {}
            while True:
                try:
                    producer.produce(
                        topic, value, key, on_delivery=lambda e, _: e and failed.append(e), **kind
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0 and not failed, failed

    def consume(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of every committed record of a topic, partition by partition."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.brokers,
                "group.id": "tests",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        try:
            partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
            found: list[tuple[int, bytes | None, bytes | None]] = []
            ended: set[int] = set()
            while len(ended) < len(partitions):
                for message in consumer.consume(10_000, timeout=0.1):
                    if message.error() is None:
                        found.append((message.partition() or 0, message.key(), message.value()))
                    else:
                        ended.add(message.partition() or 0)
            return [(k, v) for _, k, v in sorted(found, key=lambda m: m[0])]
        finally:
            consumer.close()


class S3:
    """A server that speaks S3 and SQS: moto's. As ``durable`` it has its objects again when it is started again."""

    def __init__(self, directory: Path, *, durable: bool = False):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.directory = directory
        self._durable = durable
        directory.mkdir(parents=True)
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        if self._durable:
            recording = str(self.directory / "recording")
            command = [sys.executable, "-m", "tests.moto_server", str(self.port), recording]
        root = str(Path(__file__).parent.parent)
        with open(self.directory / "log", "a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=root)
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < deadline and self._process.poll() is None, "moto did not start"
            time.sleep(0.02)

    @cache  # noqa: B019
    def client(self, service: str = "s3") -> Any:
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="k",
            aws_secret_access_key="s",
        )

    @property
    def options(self) -> dict[str, str]:
        """Those of a source."""
        return {"endpoint": self.url, "key": "k", "secret": "s"}

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)


class ChdbHttp:
    """The engine of ClickHouse behind HTTP (tests/chdb_http.py). Users: ``default``, and ``millpond`` with the password
    ``pond``."""

    def __init__(self, directory: Path, certificate: tuple[str, str] | None = None):
        self.port = free_port()
        self.directory = directory
        self._tls = certificate or ()
        directory.mkdir(parents=True)
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.chdb_http", str(self.port), str(self.directory / "data")]
        root = str(Path(__file__).parent.parent)
        with open(self.directory / "log", "a") as log:
            self._process = subprocess.Popen([*command, *self._tls], stdout=log, stderr=log, cwd=root)
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < deadline and self._process.poll() is None, "chdb did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def new_database(self, name: str) -> str:
        """The URI of a database that is empty."""
        self.execute(f"CREATE DATABASE {name}")
        return f"clickhouse://{self.address}/{name}"

    def execute(self, sql: str, database: str = "default") -> str:
        """What a statement answers, as text."""
        import urllib3

        url = f"http://{self.address}/?database={database}"
        answer = urllib3.request("POST", url, body=sql.encode(), timeout=60)
        assert answer.status == 200, answer.data.decode()
        return answer.data.decode()


def broker_jars() -> Path:
    from tools.services import broker

    return broker()


class Servers:
    """Each is started when it is first asked for."""

    def __init__(self) -> None:
        # Not pytest's directory: that is closed to other users, and PostgreSQL does not run as root.
        self._directory = Path(tempfile.mkdtemp(prefix="millpond-servers-"))
        self._directory.chmod(0o711)

    @cached_property
    def postgresql(self) -> Postgres:
        return Postgres(self._directory / "postgresql")

    @cached_property
    def own_postgresql(self) -> Postgres:
        """One that may be stopped, and started with other settings."""
        return Postgres(self._directory / "own_postgresql")

    @cached_property
    def mariadb(self) -> MariaDb:
        return MariaDb(self._directory / "mariadb")

    @cached_property
    def redis(self) -> Redis:
        return Redis(self._directory / "redis")

    @cached_property
    def mongodb(self) -> MongoJavaServer:
        return MongoJavaServer(self._directory / "mongodb")

    @cached_property
    def kafka(self) -> Kafka:
        return Kafka(self._directory / "kafka")

    @cached_property
    def s3(self) -> S3:
        return S3(self._directory / "s3")

    @cached_property
    def clickhouse(self) -> ChdbHttp:
        return ChdbHttp(self._directory / "clickhouse")

    def stop(self) -> None:
        for name in (
            "postgresql",
            "own_postgresql",
            "mariadb",
            "redis",
            "mongodb",
            "kafka",
            "s3",
            "clickhouse",
        ):
            server = vars(self).get(name)
            if server is not None:
                server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} does not end")
