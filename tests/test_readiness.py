"""Tables answer before the running statements have been started."""

from __future__ import annotations

import pytest

from millpond import App


@pytest.mark.spark
def test_tables_answer_before_spark_is_there(spark: object) -> None:
    sql = """
        CREATE STREAM s (x INT);
        CREATE TABLE t (x INT PRIMARY KEY);
        INSERT INTO t VALUES (7);
        INSERT INTO t SELECT x FROM s WITH ('query.name' = 'fill');
    """
    with App(sql, _defer=True) as app:
        assert app.sql("SELECT x FROM t").rows() == [{"x": 7}]
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["name"], query["state"]) == ("fill", "starting")
        assert not app.ready()
        app.send("s", {"x": 8})
        emitted = app.sql("SELECT x FROM s")
        app._start()
        app.drain()
        assert app.ready()
        assert len(app.table("t")) == 2
        assert emitted.rows() == [{"x": 8}]
