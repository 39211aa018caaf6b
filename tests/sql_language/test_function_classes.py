"""Every function has a class, whatever way it is written, and those that reach outside are refused for everybody."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millpond import App
from millpond.errors import NotSupported
from millpond.sql.calls import calls_in
from millpond.sql.functions import function_classes, known_functions
from millpond.sql.parse import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTSIDE = sorted(name for name, kind in function_classes().items() if kind == "outside")
SESSION = sorted(name for name, kind in function_classes().items() if kind == "session")
_WORDS = {"and", "between", "case", "div", "in", "not", "or", "when"}
"""What Spark lists among its functions and is an operator."""

# %s is the call
PLACES = [
    "SELECT %s",
    "SELECT 1 + %s AS x FROM t",
    "SELECT id FROM t WHERE %s = 'x'",
    "SELECT id FROM t GROUP BY %s",
    "SELECT MAX(id) FROM t HAVING %s = 'x'",
    "SELECT id FROM t ORDER BY %s",
    "SELECT a.id FROM t a JOIN t b ON a.s = %s",
    "SELECT id FROM t WHERE s IN (SELECT %s FROM t)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t b WHERE b.s = %s)",
    "WITH w AS (SELECT %s AS x) SELECT x FROM w",
    "SELECT x FROM (SELECT %s AS x)",
    "SELECT 1 UNION ALL SELECT %s",
    "SELECT transform(array(1), x -> %s)",
    "SELECT CASE WHEN id = 1 THEN %s ELSE 'x' END FROM t",
    "SELECT CAST(%s AS STRING)",
    "SELECT SUM(id) OVER (ORDER BY %s) FROM t",
    "SELECT COUNT(*) FILTER (WHERE %s = 'x') FROM t",
    "SELECT array(1)[%s]",
    "INSERT INTO t VALUES (9, %s)",
    "INSERT INTO t SELECT 9, %s",
    "UPDATE t SET s = %s WHERE id = 1",
    "DELETE FROM t WHERE s = %s",
    "MERGE INTO t USING t AS b ON t.id = b.id WHEN MATCHED THEN UPDATE SET s = %s",
    "CREATE TABLE u AS SELECT %s AS x FROM t",
    "CREATE VIEW v AS SELECT %s AS x FROM t",
    "EXPLAIN SELECT %s",
]
SPELLINGS = ["reflect", "REFLECT", "Try_Reflect", "java_method", "`reflect`", "reflect /* x */ "]
CALL = "('java.lang.System', 'getenv', 'HOME')"


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("place", PLACES)
def test_functions_that_reach_outside_are_refused_in_the_file(place: str, spelling: str) -> None:
    text = place % (spelling + CALL)
    with pytest.raises(NotSupported, match="reaches files, hosts or the JVM") as e:
        App(f"CREATE TABLE t (id INT PRIMARY KEY, s STRING);\n{text}")
    assert e.value.line == 2 and e.value.column == text.index(spelling.split()[0]) + 1
    assert "@app.function" in str(e.value.hint)


@pytest.mark.parametrize("prefix", ["builtin.", "system.builtin.", "`system`.`builtin`.", "t."])
def test_names_before_a_function_hide_nothing(prefix: str) -> None:
    with pytest.raises(NotSupported, match="reaches files"):
        App(f"CREATE TABLE t (id INT PRIMARY KEY); SELECT {prefix}reflect{CALL} FROM t")


@pytest.mark.parametrize("name", OUTSIDE)
def test_each_of_them(name: str) -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING)") as app:
        for arguments in ("", "s", "s, s", "s, s, s", "s, s, s, map('a', 'b')"):
            with pytest.raises(NotSupported, match=f'function "{name}" reaches files'):
                app.sql(f"SELECT {name}({arguments}) FROM t")
        with pytest.raises(NotSupported, match=f'function "{name}" reaches files'):
            app.table("t").sql_filter(f"{name}(s) = 'x'")
        with pytest.raises(NotSupported, match=f'function "{name}" reaches files'):
            app.table("t").compile_update_set(f"s = {name}(s)")


@pytest.mark.parametrize(
    "call",
    [
        "from_xml(s, 'a STRING', map('rowValidationXSDPath', 'http://127.0.0.1/x'))",
        "from_xml(s, 'a STRING', map('a', 'b', 'ROWVALIDATIONXSDPATH', '/etc/passwd'))",
        "from_xml(s, 'a STRING', map('row\\u0056alidationXSDPath', '/etc/passwd'))",
        "schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))",
        "from_avro(s, 'x', map('avroSchemaUrl', '/etc/passwd'))",
        "schema_of_avro('x', map('avroSchemaUrl', '/etc/passwd'))",
    ],
)
def test_options_of_functions_that_name_files(call: str) -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING)") as app:
        with pytest.raises(NotSupported, match="names a file or host outside"):
            app.sql(f"SELECT {call} FROM t")
        for options in ("map(s, s)", "map(concat('a', 'b'), 'c')", "s"):
            with pytest.raises(NotSupported, match="options of from_xml are not written out"):
                app.sql(f"SELECT from_xml(s, 'a STRING', {options}) FROM t")


def test_calls_are_found_by_the_name_that_they_have_in_the_text() -> None:
    for name, kind in function_classes().items():
        for count in range(5):
            arguments = ", ".join(["a1", "b2", "c3", "d4"][:count])
            for statement in parse(f"SELECT {name}({arguments}) FROM t").statements:
                found = {function_classes().get(n) for n, _ in calls_in(statement)}
                assert kind in found or not found, name
                if kind != "pure":
                    assert name in {n for n, _ in calls_in(statement)}


@pytest.mark.parametrize("text", ["current_user", "CURRENT_USER", "session_user", "current_user()"])
def test_calls_without_brackets(text: str) -> None:
    (statement,) = parse(f"SELECT 1 FROM t WHERE {text} = 'x'").require()
    assert [function_classes()[n] for n, _ in calls_in(statement)] == ["session"]


def test_what_changes_by_itself_is_not_followed() -> None:
    changing = [n for n, kind in function_classes().items() if kind in ("volatile", "session")]
    with App("CREATE TABLE t (id INT PRIMARY KEY, a ARRAY<INT>)") as app:
        for name in changing:
            arguments = {"uniform": "1, 2", "randstr": "3", "shuffle": "a"}.get(name, "")
            with pytest.raises(Exception, match="change by themselves"):
                app.sql(f"CREATE TABLE u AS SELECT id, {name}({arguments}) AS x FROM t")
        app.sql("CREATE TABLE u AS SELECT id, unix_timestamp('2024-01-01 00:00:00') AS x FROM t")


def test_every_function_of_spark_has_a_class(spark: SparkSession) -> None:
    """A version of Spark that brings a function fails here until somebody has thought about its class."""
    theirs = {row[0].lower() for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    theirs |= {
        spark._jsparkSession.sessionState().functionRegistry().listFunction().apply(i).funcName()
        for i in range(spark._jsparkSession.sessionState().functionRegistry().listFunction().length())
    }
    named = {name for name in theirs if re.fullmatch(r"[a-z_]\w*", name)} - _WORDS
    assert not named - known_functions()
    # Forms of Spark's grammar, and names of ours.
    forms = {"timediff", "timestampadd", "timestampdiff", "try_cast"}
    assert known_functions() - named == forms | {"collect", "covar", "kafka_topic"}


def test_spark_has_no_functions_that_reach_outside(spark: SparkSession) -> None:
    """Also a text that nobody has checked does not find them."""
    from millpond.engine.answer import ask
    from millpond.engine.session import new_session

    registry = new_session(spark)._jsparkSession.sessionState().functionRegistry()
    there = {registry.listFunction().apply(i).funcName() for i in range(registry.listFunction().length())}
    assert "upper" in there and not there & set(OUTSIDE)
    for name in ("reflect", "java_method", "try_reflect", "builtin.reflect"):
        with pytest.raises(Exception) as e:
            ask(spark, f"SELECT {name}{CALL}", {})
        assert str(Path.home()) not in str(e.value)


def test_variables_of_spark_have_no_values(spark: SparkSession) -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)", _path="spark") as app:
        for text in (
            "${env:HOME}",
            "${system:user.name}",
            "${spark.app.name}",
            "${sparkconf:spark.app.name}",
        ):
            assert app.sql("SELECT ? AS x FROM t", [text]).rows() == [{"x": text}]
            assert app.sql(f"SELECT '{text}' AS x, \"{text}\" AS y FROM t").rows() == [{"x": text, "y": text}]
