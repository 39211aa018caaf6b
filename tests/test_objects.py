"""Objects of S3, from a server of moto: read, listed again, and everything that can be wrong about them."""

from __future__ import annotations

import io
import json
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest
from pyarrow import parquet

from millpond import App, Error
from millpond.connectors.objects.source import ObjectSource
from millpond.engine_rule import Engine
from millpond.errors import AccessRefused, ConfigurationIssue, ConnectionLost, FileMissing, InvalidOption
from tests.servers import S3, Servers
from tests.spark_jobs import Jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


class Bucket:
    """One that nothing has used yet."""

    def __init__(self, s3: S3):
        self.s3 = s3
        self.name = f"b{uuid.uuid4().hex[:10]}"
        self.client = s3.client()
        self.client.create_bucket(Bucket=self.name)
        self.url = f"s3://{self.name}"
        self.options = ", ".join(f"'{k}' = '{v}'" for k, v in s3.options.items())

    def put(self, key: str, body: str | bytes) -> None:
        self.client.put_object(
            Bucket=self.name, Key=key, Body=body.encode() if isinstance(body, str) else body
        )

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def source(self, path: str, **values: Any) -> ObjectSource:
        return ObjectSource(f"{self.url}/{path}", {**self.s3.options, **values}, None)


@pytest.fixture
def bucket(servers: Servers) -> Bucket:
    return Bucket(servers.s3)


def wait_for(app: App, sql: str, expected: list[dict[str, Any]]) -> None:
    deadline = time.monotonic() + 30
    while (found := app.sql(sql).rows()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_executors_load_them(bucket: Bucket, spark: SparkSession) -> None:
    for number in range(3):
        rows = [json.dumps({"id": i, "k": i % 5}) for i in range(1000 * number, 1000 * number + 1000)]
        bucket.put(f"in/{number}.jsonl", "\n".join([*rows, "{bad"]))
    text = f"""
    CREATE TABLE a AS SELECT * FROM '{bucket.url}/in/*.jsonl' WITH ({bucket.options});
    CREATE TABLE b AS SELECT k, COUNT(*) AS n FROM '{bucket.url}/in/*.jsonl' GROUP BY k WITH ({bucket.options});
    """
    jobs, found = Jobs(spark), []
    for engine in get_args(Engine)[1:]:
        with App(text, engine=engine) as app:
            app.drain()
            bad = app.sql("SELECT seq, reason, row FROM a$errors ORDER BY seq").rows()
            found.append([sorted(map(repr, app.table(t).all_rows())) for t in ("a", "b")] + [bad])
    assert found[0] == found[1] and [len(part) for part in found[0]] == [3000, 5, 3]
    assert jobs.of("table:a") and jobs.of("table:b")


def test_formats_patterns_and_names(bucket: Bucket) -> None:
    made = io.BytesIO()
    parquet.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), made, row_group_size=1)
    bucket.put("in/2026/a.parquet", made.getvalue())
    bucket.put("in/2026/b.csv", "id,name\n3,c\n")
    bucket.put("in/2027/c.jsonl", '{"id": 4, "name": "d"}\n')
    bucket.put("in/2027/_hidden.csv", "id,name\n99,x\n")
    bucket.put("in/2027/notes.txt", "nothing")
    with App() as app:
        for path, expected in (
            ("in/**/*.{parquet,csv,jsonl}", [1, 2, 3, 4]),
            ("in/2026/*.parquet", [1, 2]),
            ("in/2026/b.csv", [3]),
            ("in/2027", [4]),
            ("in/2027/", [4]),
            ("in/202[67]/[bc].*", [3, 4]),
        ):
            sql = f"SELECT id FROM '{bucket.url}/{path}' ORDER BY id WITH ({bucket.options})"
            assert [r["id"] for r in app.sql(sql).rows()] == expected, path


def test_a_table_follows_what_is_new_other_and_gone(bucket: Bucket) -> None:
    bucket.put("t/a.csv", "id,name\n1,a\n2,b\n")
    with App() as app:
        app.sql(
            f"CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM {bucket.url}/t/*.csv "
            f"WITH ({bucket.options}, 'watch.interval' = '100ms', 'on.remove' = 'delete')"
        )
        ask = "SELECT id, name FROM t ORDER BY id"
        bucket.put("t/b.csv", "id,name\n3,c\n")
        wait_for(app, ask, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}])
        # As long as before, and within the same second: its tag tells.
        bucket.put("t/a.csv", "id,name\n1,a\n2,x\n")
        wait_for(app, ask, [{"id": 1, "name": "a"}, {"id": 2, "name": "x"}, {"id": 3, "name": "c"}])
        bucket.delete("t/a.csv")
        wait_for(app, ask, [{"id": 3, "name": "c"}])


def test_only_new_objects_are_read_after_a_restart(bucket: Bucket, tmp_path: Path) -> None:
    sql = (
        f"CREATE TABLE t AS SELECT * FROM {bucket.url}/*.csv WITH ({bucket.options}, 'watch.interval' = '1h')"
    )
    bucket.put("a.csv", "id\n1\n2\n")
    with App(sql, state=tmp_path / "s") as app:
        app.drain()
    bucket.put("b.csv", "id\n3\n")
    with App(sql, state=tmp_path / "s") as app:
        app.drain()
        assert app.sql("SELECT COUNT(*) AS n, SUM(id) AS s FROM t").rows() == [{"n": 3, "s": 6}]


def test_a_queue_tells_when_to_look(bucket: Bucket) -> None:
    sqs = bucket.s3.client("sqs")
    queue = sqs.create_queue(QueueName=bucket.name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    told = {"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]}
    bucket.client.put_bucket_notification_configuration(Bucket=bucket.name, NotificationConfiguration=told)
    bucket.put("a.csv", "id\n1\n")
    with App() as app:
        app.sql(
            f"CREATE TABLE t AS SELECT * FROM {bucket.url}/*.csv "
            f"WITH ({bucket.options}, 'watch.interval' = '1h', 'queue' = '{queue}')"
        )
        bucket.put("b.csv", "id\n2\n")
        wait_for(app, "SELECT SUM(id) AS s FROM t", [{"s": 3}])
    assert "Messages" not in sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=0)


def test_a_queue_that_is_not_there_leaves_the_listing(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.put("a.csv", "id\n1\n")
    with App() as app:
        app.sql(
            f"CREATE TABLE t AS SELECT * FROM {bucket.url}/*.csv WITH ({bucket.options}, "
            f"'watch.interval' = '200ms', 'queue' = '{bucket.s3.url}/123456789012/nothing')"
        )
        bucket.put("b.csv", "id\n2\n")
        wait_for(app, "SELECT SUM(id) AS s FROM t", [{"s": 3}])
    assert sum("cannot be read" in r.message for r in caplog.records) == 1


def test_logins_of_the_environment(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bucket.put("a.csv", "id\n1\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.s3.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    with App() as app:
        assert app.sql(f"SELECT * FROM {bucket.url}/a.csv").rows() == [{"id": 1}]


def test_what_can_be_wrong(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("broken.parquet", b"PAR1 this is none")
    bucket.put("x.json", json.dumps({"id": 1}))
    for path, kind, says in (
        ("nothing.csv", FileMissing, "there is no object"),
        ("none/*.csv", FileMissing, "no object matches"),
        ("broken.parquet", Error, "broken.parquet"),
    ):
        with pytest.raises(kind, match=says):
            bucket.source(path).schema()
    with pytest.raises(ConfigurationIssue, match="bucket"):
        ObjectSource("s3://no-such-bucket-here/a.csv", bucket.s3.options, None).schema()
    with pytest.raises(InvalidOption, match="names no bucket"):
        ObjectSource("s3://", bucket.s3.options, None)
    with pytest.raises(InvalidOption, match="queue"):
        ObjectSource("gs://b/x.csv", {"queue": "q"}, None)
    with pytest.raises(ConnectionLost):
        bucket.source("x.json", endpoint="http://127.0.0.1:1").schema()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AccessRefused, match="redentials"):
        ObjectSource(f"{bucket.url}/x.json", {"endpoint": bucket.s3.url}, None).schema()


def test_an_object_that_is_waited_for(bucket: Bucket) -> None:
    source = bucket.source("late.csv", **{"file.wait.timeout": 20.0, "file.retry.interval": 0.1})
    threading.Timer(0.3, bucket.put, ("late.csv", "id\n1\n")).start()
    assert source.schema().names == ("id",)


def test_secrets_are_never_shown(bucket: Bucket) -> None:
    login = f"'endpoint' = '{bucket.s3.url}', 'key' = 'k', 'secret' = 'hush-hush'"
    sql = f"SELECT * FROM {bucket.url}/none.csv WITH ({login})"
    with App() as app, pytest.raises(FileMissing) as e:
        app.sql(sql)
    assert "hush" not in str(e.value)
