"""Delta tables of others that demand something of their rows or of those who write: rows that break it are refused
before they are committed, and tables that no flush can write to when they are opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from millpond import App
from millpond.errors import ConfigurationIssue, InvalidRecord, NotSupported
from tests.test_delta_tables import LATE, base, flush, rows

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("age", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("paid", pa.decimal128(10, 2)),
    ]
)
COLUMNS = "id INT PRIMARY KEY, age INT, name STRING, paid DECIMAL(10,2)"


def create(at: Path, columns: str = COLUMNS) -> str:
    return f"CREATE TABLE t ({columns}) WITH ('extension' = 'delta', 'path' = '{at}', {LATE})"


def as_found(
    at: Path,
    settings: Mapping[str, str],
    features: list[str],
    about_age: Mapping[str, str] | None = None,
    schema: pa.Schema = SCHEMA,
) -> Path:
    """Makes a table with any metadata, as other engines write it."""
    DeltaTable.create(str(at), schema)
    log = at / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
        if "metaData" in action:
            schema_text = json.loads(action["metaData"]["schemaString"])
            schema_text["fields"][1]["metadata"] = dict(about_age or {})
            action["metaData"] |= {"schemaString": json.dumps(schema_text), "configuration": dict(settings)}
    log.write_text("\n".join(map(json.dumps, actions)))
    return at


def made(at: Path, checks: Mapping[str, str], schema: pa.Schema = SCHEMA) -> Path:
    settings = {f"delta.constraints.{name}": text for name, text in checks.items()}
    return as_found(at, settings, ["checkConstraints", "invariants", "appendOnly"], schema=schema)


ADULT = {"adult": "age >= 18", "known": "name IN ('a', 'b') OR name IS NULL"}


def test_a_row_that_breaks_a_constraint_is_refused_before_the_commit(tmp_path: Path) -> None:
    at = made(tmp_path / "lake", ADULT)
    with App(create(at), state=tmp_path / "state") as app:
        app.sql("INSERT INTO t VALUES (1, 18, 'a', 1.5)")
        for age in ("17", "NULL"):
            with pytest.raises(InvalidRecord, match='breaks the constraint "adult": age >= 18') as refused:
                app.sql(f"INSERT INTO t VALUES (2, 20, 'b', 1), (3, {age}, 'a', 1)")
            assert refused.value.row == 1
        with pytest.raises(InvalidRecord, match='"known"'):
            app.sql("UPDATE t SET name = 'c' WHERE id = 1")
        for change in ("age = 3", {"age": 3}):
            with pytest.raises(InvalidRecord, match="adult"):
                app.table("t").update("id = 1", change)
        with pytest.raises(InvalidRecord, match="adult"):
            app.sql("BEGIN; UPDATE t SET age = 4 WHERE id = 1; COMMIT")
        app.sql("INSERT INTO t VALUES (4, 30, NULL, NULL)")
        app.sql("DELETE FROM t WHERE id = 1")
        flush(app, "t")
        assert rows(app, "t") == [(4, 30, None, None)]
    with App(state=tmp_path / "state") as app:
        app.sql("ALTER TABLE t RENAME TO people")
        with pytest.raises(InvalidRecord, match='row 0 for table "people" breaks the constraint "adult"'):
            app.sql("INSERT INTO people VALUES (5, 1, 'a', 1)")
    assert base(at) == [(4, 30, None, None)]


def test_rows_of_a_running_statement_become_error_records(tmp_path: Path) -> None:
    schema = SCHEMA.set(2, pa.field("name", pa.string(), nullable=False))
    at = made(tmp_path / "lake", {"adult": "age >= 18"}, schema)
    text = f"CREATE STREAM s ({COLUMNS.replace(' PRIMARY KEY', '')}); {create(at)}"
    insert = "INSERT INTO t SELECT * FROM s WITH ('query.name' = 'fill')"
    with App(f"{text}; {insert}", state=tmp_path / "state") as app:
        given = [(1, 18, "a"), (2, 17, "b"), (3, 19, None), (4, 20, "d")]
        app.send("s", [{"id": i, "age": age, "name": name} for i, age, name in given])
        app.drain()
        assert [r[0] for r in rows(app, "t")] == [1, 4]
        found = app.sql("SELECT seq, reason FROM fill$errors ORDER BY seq").rows()
        assert [r["seq"] for r in found] == [1, 2]
        assert (
            'breaks the constraint "adult"' in found[0]["reason"] and '"name" is NULL' in found[1]["reason"]
        )
        flush(app, "t")
    assert [row[0] for row in base(at)] == [1, 4]


def test_not_null_of_the_delta_table_and_groups_without_a_key(tmp_path: Path) -> None:
    groups = made(tmp_path / "g", {}, pa.schema([pa.field("k", pa.string(), False), ("n", pa.int64())]))
    text = f"""CREATE STREAM s (k STRING); CREATE TABLE g WITH ('extension' = 'delta', 'path' = '{groups}', {LATE})
               AS SELECT k, COUNT(*) AS n FROM s GROUP BY k"""
    at = made(tmp_path / "lake", {}, SCHEMA.set(1, pa.field("age", pa.int32(), nullable=False)))
    with App(f"{text}; {create(at)}", state=tmp_path / "state") as app:
        with pytest.raises(InvalidRecord, match='"age" is NULL, but it is declared NOT NULL'):
            app.sql("INSERT INTO t (id) VALUES (1)")
        app.send("s", [{"k": "a"}, {"k": None}, {"k": "a"}])
        app.drain()
        flush(app, "g", "t")
        assert rows(app, "g", "k") == [("a", 2)]
    assert base(groups) == [("a", 2)] and base(at) == []


def test_constraints_that_others_add_while_rows_wait(tmp_path: Path) -> None:
    """They are those of when the table is opened; what was committed before is not lost, and a restart says why."""
    at, state = made(tmp_path / "lake", {}), tmp_path / "state"
    app = App(create(at), state=state)
    app.sql("INSERT INTO t VALUES (1, 3, 'a', 1)")
    DeltaTable(str(at)).alter.add_constraint({"adult": "age >= 18"})
    app.close()
    with App(state=state) as app:
        assert rows(app, "t")[0][:2] == (1, 3)
        app.sql("UPDATE t SET age = 18")
    assert [row[:2] for row in base(at)] == [(1, 18)]


def test_an_invariant_of_a_column(tmp_path: Path) -> None:
    said = json.dumps({"expression": {"expression": "age > 3"}})
    at = as_found(tmp_path / "lake", {}, ["invariants"], {"delta.invariants": said})
    with App(create(at)) as app:
        with pytest.raises(InvalidRecord, match='breaks the constraint "age": age > 3'):
            app.sql("INSERT INTO t VALUES (1, 3, 'a', 1)")
        app.sql("INSERT INTO t VALUES (1, 4, 'a', 1)")
    assert [row[:2] for row in base(at)] == [(1, 4)]


@pytest.mark.parametrize(
    "text",
    [
        "age BETWEEN 1 AND 150",
        "age + 1 > 3 AND NOT (id = 7)",
        "length(name) > 0 OR age <=> 4",
        "name LIKE 'a%' AND trim(upper(name)) <> 'B'",
        "paid >= 0 AND paid IS NOT NULL",
        "`age` > -1 AND id != 8",
    ],
)
def test_conditions_that_mean_the_same_everywhere(tmp_path: Path, text: str) -> None:
    at = made(tmp_path / "lake", {"fine": text})
    with App(create(at)) as app:
        app.sql("INSERT INTO t VALUES (1, 4, 'a', 2.25)")
        with pytest.raises(InvalidRecord, match="fine"):
            app.sql("INSERT INTO t VALUES (7, -4, '', -2.25), (8, -5, NULL, NULL)")
    assert [row[0] for row in base(at)] == [1]


@pytest.mark.parametrize(
    "text",
    ["age / 2 > 1", "paid > 2", "name > 5", "age % 2 = 0", "CAST(name AS INT) > 3", r"name LIKE 'a\\_'"],
)
def test_conditions_that_engines_read_in_different_ways(tmp_path: Path, text: str) -> None:
    at = made(tmp_path / "lake", {"odd": text})
    with App(state=tmp_path / "state") as app:
        for _ in range(2):
            with pytest.raises(
                NotSupported, match=r'its constraint "odd", .* cannot be checked here'
            ) as refused:
                app.sql(create(at))
            assert "DROP CONSTRAINT" in str(refused.value.hint)
    assert DeltaTable(str(at)).to_pyarrow_table().num_rows == 0


@pytest.mark.parametrize(
    ("settings", "about_age", "features", "said"),
    [
        ({"delta.constraints.a": "foo(age) > 1"}, {}, ["checkConstraints"], "cannot be written here: .*foo"),
        ({"delta.constraints.a": "AGE > 1"}, {}, ["checkConstraints"], "cannot be written here: .*AGE"),
        ({}, {}, ["clustering", "domainMetadata"], "cannot be written here: .*ClusteredTable"),
        ({}, {}, ["rowTracking"], "cannot be written here: .*RowTracking"),
        ({}, {"delta.generationExpression": "id + 1"}, ["generatedColumns"], 'computes the column "age"'),
    ],
)
def test_tables_that_no_flush_can_write_to(
    tmp_path: Path, settings: Mapping[str, str], about_age: Mapping[str, str], features: list[str], said: str
) -> None:
    at = as_found(tmp_path / "lake", settings, features, about_age)
    with App() as app, pytest.raises(NotSupported, match=said):
        app.sql(create(at))


def test_fields_inside_of_a_column_that_must_not_be_null(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    at = made(tmp_path / "lake", {}, pa.schema([pa.field("id", pa.int32()), pa.field("s", inner)]))
    with App() as app, pytest.raises(NotSupported, match='inside of column "s" that must not be NULL'):
        app.sql(create(at, "id INT PRIMARY KEY, s STRUCT<a: INT>"))


def test_a_table_that_takes_no_updates_is_refused(tmp_path: Path) -> None:
    at = as_found(tmp_path / "lake", {"delta.appendOnly": "true"}, ["appendOnly"])
    with App() as app, pytest.raises(NotSupported, match="takes no updates") as refused:
        app.sql(create(at))
    assert "INSERT INTO 'delta://…'" in str(refused.value.hint)


def test_a_table_that_takes_no_updates_any_more(tmp_path: Path) -> None:
    at = made(tmp_path / "lake", {})
    with App(create(at), state=tmp_path / "state") as app:
        app.sql("INSERT INTO t VALUES (1, 4, 'a', 1), (2, 5, 'b', 1)")
        flush(app, "t")
        DeltaTable(str(at)).alter.set_table_properties({"delta.appendOnly": "true"})
        app.sql("UPDATE t SET age = 6 WHERE id = 1")
        with pytest.raises(NotSupported, match="takes no updates"):
            flush(app, "t")
        DeltaTable(str(at)).alter.set_table_properties({"delta.appendOnly": "false"})
    assert [row[:2] for row in base(at)] == [(1, 6), (2, 5)]


def test_the_change_feed_is_written_where_it_is_enabled(tmp_path: Path) -> None:
    at = as_found(tmp_path / "lake", {"delta.enableChangeDataFeed": "true"}, ["changeDataFeed"])
    with App(create(at)) as app:
        for text in (
            "INSERT INTO t (id, age) VALUES (1, 2), (2, 3)",
            "UPDATE t SET age = 4 WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
        ):
            app.sql(text)
            flush(app, "t")
    feed = pa.table(DeltaTable(str(at)).load_cdf(2).read_all())
    found = zip(
        feed["_change_type"].to_pylist(), feed["id"].to_pylist(), feed["age"].to_pylist(), strict=True
    )
    assert sorted(found) == [("delete", 2, 3), ("update_postimage", 1, 4), ("update_preimage", 1, 2)]


FORGETS = {"delta.setTransactionRetentionDuration": "interval 30 days"}


def test_a_table_that_forgets_what_was_written(tmp_path: Path, caplog: Any) -> None:
    """Spark removes the entries of delta-rs, which have no time, with its next checkpoint."""
    at, state = as_found(tmp_path / "lake", FORGETS, ["appendOnly"]), tmp_path / "state"
    with App(f"CREATE STREAM s ({COLUMNS.replace(' PRIMARY KEY', '')})", state=state) as app:
        with pytest.raises(ConfigurationIssue, match="forgets after a while") as refused:
            app.sql(create(at))
        assert "UNSET TBLPROPERTIES" in str(refused.value.hint)
        with pytest.raises(ConfigurationIssue, match="forgets after a while"):
            app.sql(f"INSERT INTO delta://{at} SELECT * FROM s")
        app.sql(f"INSERT INTO delta://{at} SELECT * FROM s WITH ('key' = 'id', 'delivery' = 'at-least-once')")
        app.sql(create(tmp_path / "mine"))
        app.sql("INSERT INTO t VALUES (1, 2, 'a', 1)")
        flush(app, "t")
        DeltaTable(str(tmp_path / "mine")).alter.set_table_properties(FORGETS)
    with App(state=state) as app:
        assert rows(app, "t")[0][0] == 1
    assert "forgets after a while which changes were written" in caplog.text


def test_a_table_of_others_without_rules_is_taken_as_it_is(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    write_deltalake(str(at), pa.table({"id": pa.array([1], pa.int32()), "name": ["a"]}))
    with App(create(at, "id INT PRIMARY KEY, name STRING")) as app:
        app.sql("INSERT INTO t VALUES (2, 'b')")
    assert base(at) == [(1, "a"), (2, "b")]
