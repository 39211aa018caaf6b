from __future__ import annotations

APP = """CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING);
CREATE TABLE old (x INT);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE TABLE names AS SELECT name, COUNT(*) AS n FROM t GROUP BY name;
"""
NEW = APP.replace("name STRING)", "name STRING, tier STRING DEFAULT 'A')").replace(
    "CREATE TABLE old (x INT);\n", ""
)


def test_a_changed_file(cli):
    cli.file("app.sql", APP)
    assert cli("run", "app.sql", "--once", "--state", "st").code == 0
    cli.file("app.sql", NEW)
    run = cli("run", "app.sql", "--once", "--state", "st")
    assert run.code == 1 and "hint: --yes" in run.err and "dropped table old: 0 rows" in run.err
    told = cli("upgrade", "app.sql", "--state", "st", "--dry-run")
    assert told.code == 0 and told.out.splitlines() == [
        'altered table t: column "tier" is added',
        "kept    table names: it means the same",
        "dropped table old: 0 rows",
    ]
    done = cli("upgrade", "app.sql", "--state", "st", "--yes")
    assert done.code == 0 and "altered table t" in done.err and done.err.endswith("done\n")
    cli.file(
        "app.sql", NEW.replace("id BIGINT PRIMARY KEY, name STRING", "id BIGINT, name STRING PRIMARY KEY")
    )
    refused = cli("upgrade", "app.sql", "--state", "st", "--dry-run")
    assert refused.code == 1 and "refused table t: its primary key changes" in refused.out
    rows = cli("query", "SELECT * FROM t WHERE id = 1", "--state", "st", "--format", "json")
    assert rows.out == '{"id":1,"name":"one","tier":"A"}\n'


def test_both_forms_of_a_table(cli):
    cli.file("app.sql", APP)
    assert cli("run", "app.sql", "--once", "--state", "st").code == 0
    cli.file("app.sql", APP.replace("COUNT(*) AS n", "SUM(id) AS n"))
    shown = cli("upgrade", "app.sql", "--state", "st", "--dry-run", "--shadow")
    assert shown.code == 0 and 'the old one stays, and "names$next" is built beside it' in shown.out
    noted = cli("upgrade", "app.sql", "--state", "st", "--shadow")
    assert noted.code == 0 and 'the old one stays, and "names$next" is built beside it' in noted.err
    assert cli("run", "app.sql", "--once", "--state", "st").code == 0
    rows = cli("query", "SELECT * FROM names$difference ORDER BY ALL", "--state", "st", "--format", "json")
    assert rows.out.splitlines() == [
        '{"only_in":"new","name":"two","n":2}',
        '{"only_in":"old","name":"two","n":1}',
    ]
