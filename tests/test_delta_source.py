"""Delta tables as sources: read once, at a version, polled, and followed by their changes."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from millpond import App
from millpond.connectors.cdc.log import ENDED, KEPT, OP
from millpond.connectors.delta.source import DeltaSource
from millpond.errors import (
    BadData,
    CaptureLost,
    Error,
    InvalidOption,
    NotSupported,
    SourceChanged,
    SourceError,
    UnknownName,
)
from millpond.types import Column, Schema
from tests.servers import Servers

FEED = {"delta.enableChangeDataFeed": "true"}


def rows(first: int, count: int, part: str | None = "a b%/é") -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "n": pa.array([i % 5 for i in ids], pa.int32()),
            "part": pa.array([part] * count, pa.string()),
        }
    )


def write(path: Path, table: pa.Table, **more: Any) -> None:
    write_deltalake(path, table, mode=more.pop("mode", "append"), **more)


def content(path: Path, version: int | None = None) -> list[str]:
    return sorted(str(r) for r in pa.table(DeltaTable(path, version=version).scan()).to_pylist())


def shown(app: App, name: str = "t") -> list[str]:
    return sorted(str(r) for r in app.sql(f"SELECT * FROM {name}").rows())


def source(path: Path, declared: Schema | None = None, **values: Any) -> DeltaSource:
    return DeltaSource(f"delta://{path}", values, declared)


# once


def test_a_table_is_read_in_every_statement(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    for first, part in ((0, "a b%/é"), (10, None), (20, "c")):
        write(at, rows(first, 10, part), partition_by=["part"])
    with App(f"CREATE TABLE t AS SELECT * FROM delta://{at}") as app:
        assert shown(app) == content(at) and len(shown(app)) == 30
        assert app.sql(f"SELECT COUNT(*) AS c, MAX(part) AS p FROM delta://{at}").rows() == [
            {"c": 30, "p": "c"}
        ]
        app.sql("CREATE TABLE u (id BIGINT PRIMARY KEY, part STRING)")
        app.sql(f"INSERT INTO u SELECT id, part FROM delta://{at} WHERE n = 1")
        assert app.sql("SELECT COUNT(*) AS c FROM u").rows() == [{"c": 6}]
        write(at, rows(30, 10))
        app.drain(60)
        assert len(shown(app)) == 30
        plan = app.sql(f"EXPLAIN SELECT sum(n) AS s FROM delta://{at}").to_arrow()["plan"].to_pylist()
        assert any("the columns n of the files" in line for line in plan)


def test_partitions_of_every_type_and_nested_columns(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    for n in range(2):
        made = pa.table(
            {
                "id": pa.array([n], pa.int64()),
                "day": pa.array([date(2024, 2, 28 + n)]),
                "moment": pa.array([datetime(2024, 1, 1, n, 30)], pa.timestamp("us", "UTC")),
                "local": pa.array([datetime(2024, 1, 1, n, 30, 0, 5)], pa.timestamp("us")),
                "yes": pa.array([n == 1]),
                "d": pa.array([Decimal(n)], pa.decimal128(10, 2)),
                "l": [["a", None]],
                "r": [{"x": n, "y": "t"}],
            }
        )
        write(at, made, partition_by=["day", "moment", "local", "yes", "d"], configuration=FEED)
    with App(f"CREATE TABLE t AS SELECT * FROM delta://{at} WITH ('cdc' = 'true', 'key' = 'id')") as app:
        assert shown(app) == sorted(str(r) for r in app.sql(f"SELECT * FROM delta://{at}").rows())
        DeltaTable(at).update(updates={"l": "make_array('z')"}, predicate="id = 1")
        DeltaTable(at).delete("id = 0")
        app.drain(60)
        found = app.sql("SELECT * FROM t").rows()
        (expected,) = DeltaTable(at).to_pyarrow_table().to_pylist()
    assert found == [expected]


def test_versions_and_times(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    for first in (0, 10, 20):
        write(at, rows(first, 10))
    moment = datetime.fromtimestamp(DeltaTable(at).history()[1]["timestamp"] / 1000).astimezone().isoformat()
    with App() as app:
        for option, expected in (("version=0", 10), ("version=1", 20), ("version=2", 30)):
            assert app.sql(f"SELECT COUNT(*) AS c FROM 'delta://{at}?{option}'").rows() == [{"c": expected}]
        travel = f"SELECT id FROM delta://{at} WITH ('timestamp' = '{moment}')"
        assert len(app.sql(travel).rows()) == 20
        with pytest.raises(Error, match="has no version 9"):
            app.sql(f"SELECT * FROM 'delta://{at}?version=9'")


def test_a_polled_table_follows_without_a_key(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    write(at, rows(0, 10))
    with App(f"CREATE TABLE t AS SELECT * FROM delta://{at} WITH ('poll.interval' = '20ms')") as app:
        write(at, rows(5, 10))
        DeltaTable(at).delete("n = 3")
        app.drain(60)
        assert shown(app) == content(at)


# what is wrong


def test_bad_input_is_told(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    write(at, rows(0, 3))
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "nothing"):
        with pytest.raises(SourceError, match="is not there"):
            source(place).schema()
    with pytest.raises(UnknownName, match="no column"):
        source(at, key="nix").schema()
    with pytest.raises(InvalidOption, match="no column"):
        source(at, Schema((Column("other", pa.int64()),))).schema()
    wrong = source(at, Schema((Column("part", pa.int64()),)))
    with pytest.raises(BadData, match='column "part"'):
        [list(wrong.read(s)) for s in wrong.splits(None, wrong.latest(None))]
    for values in (
        {"version": 0, "cdc": True},
        {"version": 0, "timestamp": "2024-01-01"},
        {"timestamp": "x"},
    ):
        with pytest.raises(InvalidOption):
            source(at, **values)
    with pytest.raises(InvalidOption, match="which is no option"):
        DeltaSource(f"delta://{at}?nix=1", {}, None)
    write(at, rows(0, 3))
    with pytest.raises(BadData, match="has 2 rows with the key id = "):
        source(at, key="id", cdc=True).begin_capture()
    with pytest.raises(Error, match="has 2 rows with the key"):
        App(f"CREATE TABLE t AS SELECT * FROM delta://{at} WITH ('cdc' = 'true', 'key' = 'id')")


def test_features_that_are_not_read_are_refused(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    DeltaTable.create(at, rows(0, 0).schema, configuration={"delta.columnMapping.mode": "name"})
    with pytest.raises(NotSupported, match="columnMapping"):
        source(at).schema()


def test_a_version_that_was_vacuumed(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    write(at, rows(0, 3), configuration=FEED)
    reader = source(at)
    end = reader.latest(None)
    follower = source(at, cdc=True)
    write(at, rows(5, 3), mode="overwrite")
    write(at, rows(8, 3), mode="overwrite")
    DeltaTable(at).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert not reader.stands(end) and reader.stands(source(at).latest(None))
    with pytest.raises(SourceChanged, match=r"of version 0 any more"):
        [list(reader.read(s)) for s in reader.splits(None, end)]
    with pytest.raises(CaptureLost, match="changes of version 1 any more"):
        [follower.read(s) for s in follower.splits(end, follower.latest(end))]
    (at / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(CaptureLost, match="does not have version 1 any more"):
        source(at, cdc=True)._log.after(0, 2, 10)


def test_another_table_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = tmp_path / "lake"
    for first in (0, 3):
        write(at, rows(first, 3))
    follower, polled = source(at, cdc=True), source(at, **{"poll.interval": 1.0})
    before = follower.latest(None)
    shutil.rmtree(at)
    for first in (0, 3, 6):
        write(at, rows(first, 3))
    monkeypatch.setattr("millpond.connectors.delta.table_files._AGAIN", 0.0)
    with pytest.raises(CaptureLost, match="another table"):
        follower.latest(before)
    assert polled.replaced(before, polled.latest(before))


def test_a_stale_table_keeps_its_rows_and_says_why(tmp_path: Path) -> None:
    at, state = tmp_path / "lake", tmp_path / "state"
    write(at, rows(0, 3))
    text = f"CREATE TABLE t AS SELECT * FROM delta://{at} WITH ('cdc' = 'true', 'key' = 'id')"
    with App(text, state=state) as app:
        before = shown(app)
    write(at, rows(0, 3), mode="overwrite")
    write(at, rows(5, 3), mode="overwrite")
    DeltaTable(at).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with App(text, state=state) as app:
        health = app.table("t").health_check()
        assert health.status == "stale" and "changes of version 1 any more" in health.reason
        assert shown(app) == before


# changes


def test_changes_arrive_in_tables_and_views(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    write(at, rows(0, 20), configuration=FEED)
    text = f"""CREATE TABLE t AS SELECT * FROM delta://{at} WITH ('cdc' = 'true', 'key' = 'id');
        CREATE TABLE sums AS SELECT n, COUNT(*) AS c, SUM(id) AS s FROM t GROUP BY n;
        CREATE TABLE direct AS SELECT n, COUNT(*) AS c FROM delta://{at} WHERE id > 3 GROUP BY n
        WITH ('cdc' = 'true', 'key' = 'id')"""
    with App(text, state=tmp_path / "state") as app:
        delta = DeltaTable(at)
        delta.update(updates={"n": "n + 1", "id": "id + 100"}, predicate="id = 7")
        delta.delete("id < 4")
        merge = delta.merge(rows(15, 10, "new"), "s.id = t.id", "s", "t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        delta.optimize.compact()
        app.drain(60)
        assert shown(app) == content(at)
        again = "SELECT n, COUNT(*) AS c, SUM(id) AS s FROM t GROUP BY n"
        assert shown(app, "sums") == sorted(str(r) for r in app.sql(again).rows())
        here = f"SELECT n, COUNT(*) AS c FROM delta://{at} WHERE id > 3 GROUP BY n"
        assert shown(app, "direct") == sorted(str(r) for r in app.sql(here).rows())


def test_new_columns_come_and_dropped_ones_are_null(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    write(at, rows(0, 2), configuration=FEED)
    with App(f"CREATE TABLE t AS SELECT * FROM delta://{at} WITH ('cdc' = 'true', 'key' = 'id')") as app:
        delta = DeltaTable(at)
        delta.alter.add_columns([Field("more", "string")])
        write(at, rows(2, 1).append_column("more", pa.array(["x"])))
        app.drain(60)
        assert shown(app) == content(at) and "'more': 'x'" in shown(app)[2]
        write(at, rows(2, 2).drop_columns(["n"]), mode="overwrite", schema_mode="overwrite")
        app.drain(60)
        assert app.sql("SELECT id, n, more FROM t ORDER BY id").rows() == [
            {"id": 2, "n": None, "more": None},
            {"id": 3, "n": None, "more": None},
        ]


def test_a_type_that_does_not_fit_any_more_is_told(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    write(at, rows(0, 3))
    with App(f"CREATE TABLE t AS SELECT * FROM delta://{at} WITH ('cdc' = 'true', 'key' = 'id')") as app:
        before = shown(app)
        other = pa.table({"id": pa.array([7], pa.int64()), "n": ["x"], "part": ["a"]})
        write(at, other, mode="overwrite", schema_mode="overwrite")
        with pytest.raises(BadData, match=r'column "n" of Delta table .* does not fit INT'):
            app.drain(60)
        assert shown(app) == before and app.table("t").health_check().status == "stale"


def test_a_stream_of_changes_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "lake", rows(0, 3))
    with App() as app, pytest.raises(NotSupported, match="no stream of the changes"):
        app.sql(f"CREATE STREAM s WITH ('connector' = 'delta://{tmp_path}/lake', 'cdc' = 'true')")


@pytest.mark.slow
def test_a_table_in_an_object_store(servers: Servers) -> None:
    s3, name = servers.s3, f"b{uuid.uuid4().hex[:10]}"
    s3.client().create_bucket(Bucket=name)
    storage = {
        "AWS_ENDPOINT_URL": s3.url,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    place, options = f"s3://{name}/t", ", ".join(f"'storage.{k}' = '{v}'" for k, v in storage.items())
    for first, part in ((0, "a b%/é"), (5, None)):
        write_deltalake(
            place, rows(first, 5, part), mode="append", storage_options=storage, partition_by=["part"]
        )

    def there() -> list[str]:
        table = pa.table(DeltaTable(place, storage_options=storage).scan())
        return sorted(str(r) for r in table.to_pylist())

    text = f"CREATE TABLE t AS SELECT * FROM delta://{place} WITH ('cdc' = 'true', 'key' = 'id', {options})"
    with App(text) as app:
        assert shown(app) == there() and len(there()) == 10
        DeltaTable(place, storage_options=storage).delete("id < 3")
        app.drain(60)
        assert shown(app) == there() and len(there()) == 7


def test_deletion_vectors_of_spark_are_read_and_followed(tmp_path: Path) -> None:
    """Version 1 has 100 rows in two files; version 2 deletes every seventh of them, by deletion vectors alone."""
    at = tmp_path / "lake"
    shutil.copytree(Path(__file__).parent / "delta_made_by_spark", at)
    there = {v: [i for i in range(100) if v == 1 or i % 7] for v in (1, 2)}
    follower = source(at, cdc=True)
    ends = {v: {"log": {**follower.latest(None)["log"], "version": v}} for v in there}
    for version, ids in there.items():
        found = [b for s in follower.splits(None, ends[version]) for b in follower.read(s)]
        assert sorted(i for b in found for i in b.column("id").to_pylist()) == ids
        assert content(at, version) == sorted(str({"id": i, "k": i % 3}) for i in ids)
    state = list(there[1])
    for batch in (b for s in follower.splits(ends[1], ends[2]) for b in follower.read(s)):
        for op, row in zip(batch.column(OP).to_pylist(), batch.column("id").to_pylist(), strict=True):
            state.remove(row) if op == ENDED else state.append(row)
    assert sorted(state) == there[2]


def test_a_deletion_vector_is_of_one_file_though_others_have_its_name(tmp_path: Path) -> None:
    made, at = Path(__file__).parent / "delta_made_by_spark", tmp_path / "lake"
    (at / "_delta_log").mkdir(parents=True)
    versions = [
        [json.loads(line) for line in (made / "_delta_log" / f"{v:020}.json").read_text().splitlines()]
        for v in range(3)
    ]
    name = next(a["add"]["path"] for a in versions[2] if "add" in a)
    about = next(a["metaData"] for a in versions[0] if "metaData" in a)
    schema = json.loads(about["schemaString"])
    schema["fields"].append({"name": "p", "type": "long", "nullable": True, "metadata": {}})
    about |= {"schemaString": json.dumps(schema), "partitionColumns": ["p"]}

    def of_partition(action: dict[str, Any], kind: str, p: int) -> dict[str, Any]:
        return {kind: {**action[kind], "path": f"p={p}/{name}", "partitionValues": {"p": str(p)}}}

    for p in (1, 2):
        (at / f"p={p}").mkdir()
        shutil.copy(made / name, at / f"p={p}" / name)
    for vector in made.glob("*.bin"):
        shutil.copy(vector, at)
    one = [a for a in versions[1] if a.get("add", {}).get("path") == name]
    both = [of_partition(a, "add", p) for a in one for p in (1, 2)]
    versions[1] = [a for a in versions[1] if "add" not in a] + both
    other = [a for a in versions[2] if "add" not in a and "remove" not in a]
    deleted = [a for k in ("add", "remove") for a in versions[2] if a.get(k, {}).get("path") == name]
    versions[2] = other + [of_partition(a, next(iter(a)), 1) for a in deleted]
    for number, actions in enumerate(versions):
        text = "".join(json.dumps(a) + "\n" for a in actions)
        (at / "_delta_log" / f"{number:020}.json").write_text(text)
    with App(_direct=True) as app:
        found = app.sql(f"SELECT p, COUNT(*) AS n FROM 'delta://{at}' GROUP BY p ORDER BY p").rows()
    assert found == [{"p": 1, "n": 42}, {"p": 2, "n": 50}]


def test_a_change_log_is_read_in_whole_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = tmp_path / "lake"
    for first in range(0, 50, 10):
        write(at, rows(first, 10))
    monkeypatch.setattr("millpond.connectors.delta.source.CHANGES", 15)
    follower = source(at, cdc=True)
    at_ = {"log": {**follower.latest(None)["log"], "version": 0}}
    seen = [0]
    while not follower.reached(at_, end := follower.latest(at_)):
        seen.append(end["log"]["version"])
        at_ = end
    assert seen == [0, 2, 4]


def operations(path: Path, chance: random.Random, fresh: int = 100) -> Iterator[int]:
    """Changes a table at random, each in one version or some; yields after each."""
    for _ in range(25):
        delta = DeltaTable(path)
        low, size = chance.randint(0, 60), chance.randint(1, 30)
        match chance.randint(0, 6):
            case 0 | 1:
                write(path, rows(fresh, size, chance.choice(("a b%/é", "c", None))))
                fresh += size
            case 2:
                merge = delta.merge(rows(low, size, chance.choice(("c", "d"))), "s.id = t.id", "s", "t")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            case 3:
                delta.delete(f"id >= {low} AND id < {low + size}")
            case 4:
                delta.update(updates={"n": "n + 1"}, predicate=f"id >= {low} AND id < {low + size}")
            case 5:
                write(path, rows(low, size), mode="overwrite")
            case 6:
                delta.optimize.compact()
        yield DeltaTable(path).version()


@pytest.mark.parametrize("seed", range(4))
def test_changes_between_any_versions_lead_from_one_to_the_other(tmp_path: Path, seed: int) -> None:
    """With the change feed and without; each version read here, and by delta-rs; with a key and by value."""
    chance, at = random.Random(seed), tmp_path / "lake"
    more: dict[str, Any] = {"configuration": FEED} if seed % 2 else {}
    write(at, rows(0, 40), partition_by=["part"] if seed < 2 else None, **more)
    versions = [0, *operations(at, chance)]
    follower = source(at, cdc=True)
    identity = follower.latest(None)["log"]["table"]
    for _ in range(6):
        one, other = sorted(chance.sample(range(versions[-1] + 1), 2))
        first, last = ({"log": {"table": identity, "version": v}} for v in (one, other))
        held = [b for s in follower.splits(None, first) for b in follower.read(s)]
        state = [str(r) for b in held for r in b.drop_columns(["_seq"]).to_pylist()]
        assert sorted(state) == content(at, one)
        for split in follower.splits(first, last):
            for batch in follower.read(split):
                ended = np.asarray(batch.column(OP)) == ENDED
                for row, gone in zip(batch.drop_columns([OP, KEPT]).to_pylist(), ended, strict=True):
                    state.remove(str(row)) if gone else state.append(str(row))
        assert sorted(state) == content(at, other)


@pytest.mark.parametrize("key", ["", "id"])
def test_a_table_that_follows_random_operations_is_the_table(tmp_path: Path, key: str) -> None:
    at = tmp_path / "lake"
    write(at, rows(0, 40), partition_by=["part"], configuration=FEED)
    options = f"'cdc' = 'true', 'key' = '{key}'" if key else "'cdc' = 'true'"
    with App(f"CREATE TABLE t AS SELECT * FROM delta://{at} WITH ({options})") as app:
        for number, _ in enumerate(operations(at, random.Random(len(key)))):
            if number % 6 == 0:
                app.drain(60)
                assert shown(app) == content(at)
        app.drain(60)
        assert shown(app) == content(at)
