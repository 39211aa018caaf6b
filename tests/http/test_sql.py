"""Statements over HTTP: answers, errors with their place, roles, and what may be named."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest

from millpond import App
from millpond.errors import EngineError, InvalidOption
from millpond.http.restrictions import Allowed, harmless
from millpond.http.settings import Settings
from tests.http.conftest import SQL, Serve, Serving

READ, WRITE, ADMIN = "r" * 20, "w" * 20, "a" * 20
TOKENS = {"READ": READ, "WRITE": WRITE, "ADMIN": ADMIN}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_query_with_parameters(shop: Serving) -> None:
    answer = shop.sql("SELECT sku, price FROM items WHERE price > ? ORDER BY sku", ["2.25"])
    assert answer.status_code == 200
    assert answer.text == (
        '{"columns":[{"name":"sku","type":"STRING"},{"name":"price","type":"DECIMAL(12,4)"}],'
        '"rows":[{"sku":"c,d","price":3.0000},{"sku":"e/f","price":4.0001}]}'
    )
    named = shop.sql("SELECT COUNT(*) AS n FROM items WHERE sku = :sku", {"sku": "a"})
    assert named.json()["rows"] == [{"n": 1}]
    assert shop.sql("SELECT 1 AS a, 2 AS a").json()["rows"] == [{"a": 1, "a_1": 2}]


def test_a_change_answers_its_count(serve: Serve) -> None:
    shop = serve()
    assert shop.sql("UPDATE items SET price = price + 1 WHERE sku IN ('a', 'b')").json() == {"count": 2}
    assert shop.sql("BEGIN; DELETE FROM items; INSERT INTO log VALUES ('x'); COMMIT").json() == {"count": 0}
    assert len(shop.app.table("items")) == 0 and len(shop.app.table("log")) == 4


def test_a_large_answer_comes_in_pieces(serve: Serve) -> None:
    shop = serve("CREATE TABLE big (id INT PRIMARY KEY, name STRING)")
    shop.app.table("big").bulk_insert([{"id": i, "name": f"n{i % 7}"} for i in range(25_000)])
    rows = shop.sql("SELECT * FROM big ORDER BY id").json()["rows"]
    assert [r["id"] for r in rows] == list(range(25_000))
    arrow = shop.sql("SELECT * FROM big", headers={"Accept": "application/vnd.apache.arrow.stream"})
    assert pa.ipc.open_stream(BytesIO(arrow.content)).read_all().num_rows == 25_000
    empty = shop.sql("SELECT * FROM big WHERE id < 0")
    assert empty.json()["rows"] == [] and len(empty.json()["columns"]) == 2


@pytest.mark.parametrize(
    ("sql", "status", "code", "place"),
    [
        ("SELECT\n  prise FROM items", 400, "unknown_name", (2, 3)),
        ("SELEC 1", 400, "unknown_name", (1, 1)),
        ("SELECT 'x", 400, "syntax", (1, 8)),
        ("SELECT 1/0", 422, "query_failed", None),
        ("SELECT * FROM nowhere", 400, "unknown_name", (1, 15)),
        ("CREATE TABLE items (id INT)", 409, "already_exists", (1, 14)),
        ("EXPLAIN UPGRADE items", 403, "not_allowed", (1, 1)),
        ("SELECT * FROM orders", 422, "not_supported", None),
        ("SELECT * FROM items EMIT CHANGES", 422, "not_supported", None),
        ("", 400, "bad_request", None),
        ("-- nothing", 400, "bad_request", None),
    ],
)
def test_errors_have_code_and_place(
    shop: Serving, sql: str, status: int, code: str, place: tuple[int, int] | None
) -> None:
    answer = shop.sql(sql)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), answer.text
    if place is not None:
        assert (error["line"], error["column"]) == place and "^" in error["caret"]


def test_several_mistakes_come_together(shop: Serving) -> None:
    error = shop.sql("SELECT a FROM items; SELECT b FROM items").json()["error"]
    assert error["code"] == "check_failed" and [e["column"] for e in error["errors"]] == [8, 29]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"sql": 1}', '"sql" has a wrong type'),
        (b'{"params": []}', '"sql" is missing'),
        (b'{"sql": "SELECT 1", "parms": []}', '"parms" is not known'),
        (b'{"sql": "SELECT ?", "params": [NaN]}', "NaN"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bodies_that_are_wrong(shop: Serving, body: bytes, says: str) -> None:
    answer = shop.client.post("/sql", content=body)
    assert answer.status_code == 400 and says in answer.json()["error"]["message"]


def test_paths_and_methods_that_are_not_there(shop: Serving) -> None:
    assert shop.client.get("/tabels").json()["error"]["code"] == "not_found"
    answer = shop.client.get("/sql")
    assert answer.status_code == 405 and answer.headers["allow"] == "POST"


def test_explain(shop: Serving) -> None:
    plan = shop.client.post("/explain", json={"sql": "SELECT * FROM items WHERE sku = 'a'"}).json()["plan"]
    assert any("lookup" in line for line in plan)
    wrong = shop.client.post("/explain", json={"sql": "SELECT x FROM items"})
    assert wrong.status_code == 400 and (wrong.json()["error"]["line"], wrong.json()["error"]["column"]) == (
        1,
        8,
    )
    for several in ("SELECT 1; DROP TABLE items", "", "SELECT 1; EXPLAIN SELECT 1"):
        assert shop.client.post("/explain", json={"sql": several}).status_code == 400
    assert "items" in shop.app.tables()


@pytest.mark.parametrize(
    ("form", "media", "has"),
    [
        ("text", "text/plain", "SELECT: answered once\n"),
        ("json", "application/json", '"from": "table:items"'),
        ("mermaid", "text/vnd.mermaid", '[("items")]'),
        ("svg", "image/svg+xml", "<title>items</title>"),
    ],
)
def test_explain_in_every_form(shop: Serving, form: str, media: str, has: str) -> None:
    body = {"sql": "SELECT name FROM items WHERE price > 1"}
    by_name = shop.client.post(f"/explain?format={form}", json=body)
    by_header = shop.client.post("/explain", json=body, headers={"Accept": media})
    assert by_name.headers["content-type"].split(";")[0] == media and has in by_name.text
    assert by_header.content == by_name.content
    assert shop.client.post("/explain?format=png", json=body).status_code == 400
    assert shop.client.post("/explain", json=body, headers={"Accept": "image/png"}).status_code == 406


# roles


@pytest.fixture(scope="module")
def guarded() -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch:
        for role, token in TOKENS.items():
            patch.setenv(f"MILLPOND_TOKEN_{role}", token)
        made = Serving(App(SQL))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("sql", "least"),
    [
        ("SELECT * FROM items", "READ"),
        ("SHOW TABLES", "READ"),
        ("DESCRIBE EXTENDED items", "READ"),
        ("SHOW CREATE TABLE items", "READ"),
        ("EXPLAIN DROP TABLE items", "READ"),
        ("INSERT INTO log VALUES ('x')", "WRITE"),
        ("UPDATE items SET name = 'x' WHERE false", "WRITE"),
        ("DELETE FROM items WHERE false", "WRITE"),
        ("BEGIN; DELETE FROM items WHERE false; ROLLBACK", "WRITE"),
        ("MERGE INTO items USING log ON items.sku = log.line WHEN MATCHED THEN DELETE", "WRITE"),
        ("SELECT 1; DELETE FROM items WHERE false", "WRITE"),
        ("CREATE TABLE IF NOT EXISTS items (x INT)", "ADMIN"),
        ("CREATE INDEX IF NOT EXISTS i ON items (name)", "ADMIN"),
        ("DROP TABLE IF EXISTS nothing_here", "ADMIN"),
    ],
)
def test_statements_by_role(guarded: Serving, sql: str, least: str) -> None:
    enough = False
    for role, token in TOKENS.items():
        enough = enough or role == least
        answer = guarded.sql(sql, headers=bearer(token))
        if enough:
            assert answer.status_code == 200, (role, answer.text)
        else:
            error = answer.json()["error"]
            assert answer.status_code == 403 and f"needs the role {least.lower()}" in error["message"]


def test_only_an_admin_starts_what_goes_on(guarded: Serving) -> None:
    answer = guarded.sql("INSERT INTO log SELECT sku FROM orders", headers=bearer(WRITE))
    assert answer.status_code == 403 and "a running INSERT" in answer.json()["error"]["message"]
    assert not guarded.app._runtime.runner.names


def test_tokens(serve: Serve) -> None:
    shop = serve(tokens={"WRITE": WRITE})
    assert shop.client.get("/tables").status_code == 401
    assert shop.client.get("/tables").headers["www-authenticate"] == "Bearer"
    for wrong in (
        "Bearer nope",
        f"Basic {WRITE}",
        "Bearer",
        "Bearer " + WRITE[:-1],
        f"Bearer {WRITE}x",
        "Bearer ü",
    ):
        answer = shop.client.get("/tables", headers={"Authorization": wrong.encode()})
        assert answer.status_code == 401 and WRITE not in answer.text
    assert shop.client.get("/tables", headers=bearer(WRITE)).status_code == 200
    assert shop.client.get("/health").status_code == 200
    assert shop.client.get("/ready").json() == {"ready": True, "state": "ready"}
    assert "problems" in shop.client.get("/ready", headers=bearer(WRITE)).json()
    assert shop.client.post("/streams/orders", json={"id": 1}).status_code == 401


def test_another_address_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with App("CREATE TABLE t (id INT)") as app:
        with pytest.raises(InvalidOption, match="without a token"):
            app.serve(host="0.0.0.0")
        monkeypatch.setenv("MILLPOND_TOKEN_READ", "short")
        with pytest.raises(InvalidOption, match="shorter than 16"):
            app.serve()
        monkeypatch.setenv("MILLPOND_TOKEN_READ", READ)
        with pytest.raises(InvalidOption, match="is not known"):
            app.serve(host="no.such.host.invalid")
        with app.serve(host="0.0.0.0") as server, pytest.raises(EngineError, match="cannot listen"):
            app.serve(port=server.port)


def test_pages_of_other_sites_may_not_ask(serve: Serve) -> None:
    shop = serve()
    body = {"sql": "DELETE FROM items"}
    assert shop.client.post("/sql", json=body, headers={"Origin": "https://evil.example"}).status_code == 403
    assert shop.client.post("/sql", json=body, headers={"Host": "evil.example"}).status_code == 421
    assert len(shop.app.table("items")) == 4
    own = shop.client.get("/tables", headers={"Origin": shop.server.url})
    assert own.status_code == 200 and "access-control-allow-origin" not in own.headers
    with shop.app.serve(origins=["https://good.example"]) as other:
        asked = shop.client.get(f"{other.url}/tables", headers={"Origin": "https://good.example"})
        assert asked.headers["access-control-allow-origin"] == "https://good.example"


# what may be named


@pytest.fixture(scope="module")
def fenced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, Path]]:
    """A server that allows one folder, with secrets and ways out beside it."""
    folder = tmp_path_factory.mktemp("fenced")
    for name in ("open", "opener"):
        (folder / name).mkdir()
        (folder / name / "x.csv").write_text("a\n1\n")
    (folder / "secret.csv").write_text("a\nTOP-SECRET\n")
    (folder / "open" / "link.csv").symlink_to(folder / "secret.csv")
    made = Serving(App(SQL), allow=[f"file://{folder}/open"])
    yield made, folder
    made.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM file://{folder}/secret.csv",
        "SELECT * FROM `file://{folder}/secret.csv`",
        "SELECT * FROM items WHERE sku IN (SELECT a FROM 'file://{folder}/secret.csv')",
        "WITH x AS (SELECT * FROM file://{folder}/secret.csv) SELECT * FROM x",
        "CREATE TABLE x AS SELECT * FROM file://{folder}/secret.csv",
        "CREATE VIEW x AS SELECT * FROM file://{folder}/secret.csv",
        "CREATE STREAM x WITH ('connector' = 'file://{folder}/secret.csv')",
        "CREATE STREAM x (a INT) WITH ('connector' = 'kafka://t', 'bootstrap.servers' = 'host:1')",
        "CREATE TABLE x (a INT) WITH ('extension' = 'sqlite', 'path' = '{folder}/x.db')",
        "CREATE TABLE x (a INT PRIMARY KEY) WITH ('extension' = 'redis')",
        "CREATE TABLE x (a INT PRIMARY KEY) WITH ('extension' = 'postgresql', 'url' = 'postgresql://host/db')",
        "CREATE TABLE x (a INT) WITH ('max_memory' = '1MB', 'spill.path' = '{folder}')",
        "CREATE TABLE x (a INT PRIMARY KEY) WITH ('extension' = 'cache', 'cache.over' = 'sqlite:///{folder}/x.db')",
        "INSERT INTO log SELECT a FROM file://{folder}/secret.csv",
        "INSERT INTO kafka://out SELECT sku FROM items",
        "DESCRIBE file://{folder}/secret.csv",
        "DESCRIBE HISTORY delta://{folder}/lake",
        "EXPLAIN SELECT * FROM file://{folder}/secret.csv",
        "MERGE INTO items USING file://{folder}/secret.csv AS f ON items.sku = f.a WHEN MATCHED THEN DELETE",
        "DELETE FROM items USING file://{folder}/secret.csv AS f WHERE items.sku = f.a",
        "SELECT * FROM kafka_topic('t')",
        "SELECT * FROM memory://items",
        "SELECT * FROM file://{folder}/open/../secret.csv",
        "SELECT * FROM file://{folder}/open/link.csv",
        "SELECT * FROM file://{folder}/open/{{a,..}}/secret.csv",
        "SELECT * FROM file://{folder}/opener/x.csv",
    ],
)
def test_a_client_names_nothing_that_is_not_allowed(fenced: tuple[Serving, Path], sql: str) -> None:
    shop, folder = fenced
    answer = shop.sql(sql.format(folder=folder))
    assert answer.status_code == 403 and answer.json()["error"]["code"] == "not_allowed", answer.text
    assert "TOP-SECRET" not in answer.text and "x" not in shop.app.tables()


@pytest.mark.parametrize("explain", ["", "EXPLAIN "])
def test_a_client_writes_no_file_where_it_may_read(fenced: tuple[Serving, Path], explain: str) -> None:
    serving, folder = fenced
    answer = serving.sql(f"{explain}INSERT INTO file://{folder}/open/out SELECT 1 AS x")
    assert answer.status_code == 403 and answer.json()["error"]["code"] == "not_allowed", answer.text
    assert "may not write" in answer.json()["error"]["message"]
    assert not (folder / "open" / "out").exists()


def test_a_client_names_what_is_allowed(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "x.csv").write_text("a\n1\n2\n")
    shop = serve(allow=[f"file://{tmp_path}/open"])
    assert shop.sql(f"SELECT SUM(a) AS s FROM file://{tmp_path}/open/x.csv").json()["rows"] == [{"s": 3}]
    kept = shop.sql("CREATE TABLE x (a INT) WITH ('durability' = 'batch')")
    assert kept.json() == {"count": 0}
    urls = shop.sql("SELECT 'https://example.org/x' AS url, 'file:///etc/passwd' AS path")
    assert urls.json()["rows"][0]["path"] == "file:///etc/passwd"


@pytest.mark.parametrize(
    ("prefix", "uri", "may"),
    [
        ("https://example.org", "https://example.org/x", True),
        ("https://example.org", "https://example.org.evil.com/x", False),
        ("https://example.org", "https://example.org@evil.com/x", False),
        ("https://example.org/a/", "https://example.org/a/b", True),
        ("https://example.org/a/", "https://example.org/a/%2e%2e/b", False),
        ("https://example.org/a/", "HTTPS://example.org/a/b", True),
        ("kafka://", "kafka://orders", True),
        ("kafka://broker:9092/", "kafka://other:9092/x", False),
        ("file:///data/", "file:///data/x.csv", True),
        ("file:///data/", "file:///database/x.csv", False),
        ("file:///data", "file:///database/x.csv", False),
        ("file:///data/", "orders", False),
    ],
)
def test_prefixes(prefix: str, uri: str, may: bool) -> None:
    assert Allowed((prefix,)).covers(uri) is may


def test_options_that_name_something_are_not_harmless() -> None:
    naming = {
        "url",
        "path",
        "connector",
        "bootstrap.servers",
        "spill.path",
        "cache.over",
        "schema.registry.url",
    }
    assert not harmless() & naming and {"durability", "max_memory", "format", "primary.key"} <= harmless()
    assert all("." not in name or not name.startswith("kafka.") for name in harmless())


def test_a_prefix_is_of_a_uri() -> None:
    with pytest.raises(InvalidOption, match="no beginning of a URI"):
        Settings(allow=("/data",))


# secrets


def test_the_environment_is_not_for_clients(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "s3cret-value")
    shop = serve("CREATE TABLE t (id INT PRIMARY KEY, x STRING); INSERT INTO t VALUES (1, '${MY_SECRET}-x')")
    for text in (
        "SELECT '${MY_SECRET}' AS x",
        "SELECT * FROM t WHERE x = '${MY_SECRET}'",
        "SELECT ${MY_SECRET:?}",
    ):
        for _ in range(2):
            answer = shop.sql(text)
            assert answer.status_code == 400 and "s3cret" not in answer.text
    assert shop.sql("SELECT '${MY_SECRET:-none}' AS x").json()["rows"] == [{"x": "none"}]
    for path in ("/tables", "/tables/t", "/ready", "/openapi.json"):
        assert "s3cret" not in shop.client.get(path).text
    assert "s3cret" not in shop.sql("SHOW CREATE TABLE t").text
