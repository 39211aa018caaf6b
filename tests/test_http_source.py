"""Rows over HTTP, from a real server: formats, pages, limits, and everything that a server can do wrong."""

from __future__ import annotations

import gzip
import json
import ssl
import time
from collections.abc import Iterator
from decimal import Decimal
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App, Error
from millpond.connectors.http.client import retry_after
from millpond.connectors.http.pages import next_link
from millpond.connectors.http.source import HttpSource
from millpond.connectors.source import SEQ
from millpond.errors import (
    AccessRefused,
    AddressMissing,
    BadData,
    ConfigurationIssue,
    ConnectionLost,
    InvalidOption,
    SourceChanged,
    SourceError,
)
from millpond.retry import Patience
from millpond.types import Column, Schema
from tests.webserver import Asked, Reply, WebServer

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
QUICK = {"retry.timeout": 0.0}


@pytest.fixture
def web() -> Iterator[WebServer]:
    server = WebServer()
    yield server
    server.close()


def opened(url: str, declared: Schema | None = None, **values: Any) -> HttpSource:
    return HttpSource(url, QUICK | {k.replace("_", "."): v for k, v in values.items()}, declared)


def rows(source: HttpSource, end: Any = None) -> list[dict[str, Any]]:
    splits = source.splits(None, end or source.latest(None))
    found = [batch for split in splits for batch in source.read(split)]
    table = pa.Table.from_batches(found, source.schema().arrow().append(pa.field(SEQ, pa.int64())))
    numbers = table.column(SEQ).to_pylist()
    assert numbers == sorted(set(numbers))
    return list(table.drop_columns([SEQ]).to_pylist())


# formats


@pytest.mark.parametrize(
    ("body", "kind", "path"),
    [
        (json.dumps(ROWS), "application/json", "/x"),
        (json.dumps(ROWS), "application/vnd.api+json; charset=utf-8", "/x"),
        (json.dumps(ROWS), "text/plain", "/x"),
        (json.dumps(ROWS), "", "/x"),
        ("\n".join(map(json.dumps, ROWS)), "application/x-ndjson", "/x"),
        ("\n".join(map(json.dumps, ROWS)), "application/json", "/x"),
        ("id,name\n1,a\n2,b\n", "text/csv", "/x"),
        ("id\tname\n1\ta\n2\tb\n", "text/tab-separated-values", "/x"),
        ("id,name\n1,a\n2,b\n", "application/octet-stream", "/x.csv"),
        ("\ufeffid,name\n1,a\n2,b\n", "text/plain", "/x.csv"),
    ],
)
def test_the_format_is_told_by_type_address_or_content(
    web: WebServer, body: str, kind: str, path: str
) -> None:
    web.body(path, body.encode(), kind)
    assert rows(opened(web.url + path)) == ROWS


def test_a_named_format_comes_first(web: WebServer) -> None:
    web.body("/x", b"1;a\n2;b\n", "application/json")
    source = opened(f"{web.url}/x", format="csv", header=False, delimiter=";")
    assert rows(source) == [{"_c0": 1, "_c1": "a"}, {"_c0": 2, "_c1": "b"}]
    web.body("/y", json.dumps(ROWS).encode(), "text/html")
    assert rows(opened(f"{web.url}/y", format="json")) == ROWS


def test_parquet_is_read_too(web: WebServer, tmp_path: Path) -> None:
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "x.parquet")
    web.body("/x.parquet", (tmp_path / "x.parquet").read_bytes())
    assert rows(opened(f"{web.url}/x.parquet")) == ROWS


def test_answers_that_are_packed(web: WebServer) -> None:
    packed = gzip.compress(b"id,name\n1,a\n2,b\n")
    web.body("/sent", packed, "text/csv", Content_Encoding="gzip")
    web.body("/x.csv.gz", packed, "application/gzip")
    assert rows(opened(f"{web.url}/sent")) == rows(opened(f"{web.url}/x.csv.gz")) == ROWS


def test_other_character_sets(web: WebServer) -> None:
    web.body("/x", "id,name\n1,né\n".encode("latin-1"), "text/csv; charset=ISO-8859-1")
    assert rows(opened(f"{web.url}/x")) == [{"id": 1, "name": "né"}]
    web.body("/x", b"id,name\n1,a\n", "text/csv; charset=klingon")
    with pytest.raises(BadData, match="klingon"):
        rows(opened(f"{web.url}/x"))


def test_rows_within_an_object_keep_all_digits(web: WebServer) -> None:
    text = '{"at": "now", "data": {"other": [1, {"items": 2}], "items": [{"price": 12345678901234567890.123456789}]}}'
    web.body("/x", text.encode(), "application/json")
    declared = Schema((Column("price", pa.decimal128(38, 9)),))
    source = opened(f"{web.url}/x", declared, **{"rows.path": "data.items"})
    assert rows(source) == [{"price": Decimal("12345678901234567890.123456789")}]
    assert rows(opened(f"{web.url}/x", **{"rows.path": "data.other.1"})) == [{"items": 2}]


def test_an_answer_without_content(web: WebServer) -> None:
    declared = Schema((Column("id", pa.int64()),))
    for status, kind in ((204, ""), (200, ""), (200, "text/csv"), (200, "application/json")):
        web.routes["/x"] = lambda _, s=status, k=kind: (s, {"Content-Type": k} if k else {}, b"")
        with pytest.raises(BadData, match="answers without content"):
            rows(opened(f"{web.url}/x", declared))
    assert rows(opened(f"{web.url}/x", declared, format="jsonl")) == []
    pages = {"1": b'[{"id": 1}]', "2": b""}
    web.routes["/p"] = lambda a: (200, {"Content-Type": "application/json"}, pages[a.params["page"]])
    assert rows(opened(f"{web.url}/p", declared, paging="page")) == [{"id": 1}]


def test_rows_that_are_null_or_one_object(web: WebServer) -> None:
    web.json("/x", {"data": None, "one": {"id": 1}})
    declared = Schema((Column("id", pa.int64()),))
    assert rows(opened(f"{web.url}/x", declared, **{"rows.path": "data"})) == []
    assert rows(opened(f"{web.url}/x", declared, **{"rows.path": "one"})) == [{"id": 1}]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("data.itms", '"data" has items, n'),
        ("dta", "the answer has data"),
        ("data.n", "neither an array nor an object"),
        ("data.n.x", '"data.n" is neither'),
        ("data.items.7", '"data.items" has 1 elements'),
    ],
)
def test_a_path_that_leads_nowhere(web: WebServer, path: str, says: str) -> None:
    web.json("/x", {"data": {"items": [{"id": 1}], "n": 3}})
    with pytest.raises(BadData, match=says):
        opened(f"{web.url}/x", **{"rows.path": path}).schema()


# pages


def items(first: int, count: int) -> list[dict[str, int]]:
    return [{"id": i} for i in range(first, first + count)]


def test_pages_by_link_header(web: WebServer) -> None:
    def page(asked: Asked) -> Reply:
        n = int(asked.params.get("p", 0))
        more = {"Link": f'</x?p={n + 1}>; rel="next", </x?p=9>; rel="last"'} if n < 2 else {}
        return 200, {"Content-Type": "application/json", **more}, json.dumps(items(n * 3, 3)).encode()

    web.routes["/x"] = page
    assert rows(opened(f"{web.url}/x", paging="link")) == items(0, 9)
    assert rows(opened(f"{web.url}/x")) == items(0, 3)


def test_pages_by_link_in_the_body(web: WebServer) -> None:
    web.json("/a", {"rows": items(0, 2), "links": {"next": "b?z=1"}})
    web.json("/b", {"rows": items(2, 2), "links": {"next": None}})
    source = opened(f"{web.url}/a", paging="link", **{"paging.path": "links.next", "rows.path": "rows"})
    assert rows(source) == items(0, 4)


def test_pages_by_cursor(web: WebServer) -> None:
    def page(asked: Asked) -> Reply:
        n = int(asked.params.get("after", 0))
        body = {"data": items(n, 2), **({"next": n + 2} if n < 4 else {})}
        assert asked.params["q"] == "a b"
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    web.routes["/x"] = page
    more = {"paging.path": "next", "paging.param": "after", "rows.path": "data"}
    assert rows(opened(f"{web.url}/x?q=a%20b", paging="cursor", **more)) == items(0, 6)


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize(("size", "asked"), [(None, 4), (3, 3)])
def test_pages_by_number_and_by_offset(web: WebServer, kind: str, size: int | None, asked: int) -> None:
    def page(asked: Asked) -> Reply:
        n = int(asked.params["page"]) * 3 - 3 if "page" in asked.params else int(asked.params["offset"])
        found = items(n, 3)[: max(8 - n, 0)]
        if kind == "csv":
            return (
                200,
                {"Content-Type": "text/csv"},
                ("id\n" + "".join(f"{r['id']}\n" for r in found)).encode(),
            )
        return 200, {"Content-Type": "application/json"}, json.dumps(found).encode()

    web.routes["/x"] = page
    for paging in ("page", "offset"):
        web.asked.clear()
        assert rows(opened(f"{web.url}/x", paging=paging, **{"paging.size": size})) == items(0, 8)
        assert len(web.asked) == asked
    assert rows(opened(f"{web.url}/x", paging="page", **{"paging.start": 2})) == items(3, 5)
    assert rows(opened(f"{web.url}/x?offset=5", paging="offset")) == items(5, 3)


def test_pages_that_never_end(web: WebServer) -> None:
    web.json("/x", {"rows": items(0, 1), "next": "/x"})
    with pytest.raises(SourceError, match="go in a circle"):
        rows(opened(f"{web.url}/x", paging="link", **{"paging.path": "next", "rows.path": "rows"}))
    web.json("/y", items(0, 1))
    with pytest.raises(SourceError, match="more than 5 pages") as e:
        rows(opened(f"{web.url}/y", paging="page", **{"paging.max.pages": 5}))
    assert "paging.max.pages" in str(e.value)


@pytest.mark.parametrize(
    "values",
    [
        {"paging.size": 3},
        {"paging": "cursor"},
        {"paging": "link", "paging.start": 1},
        {"paging": "page", "paging.path": "x"},
        {"format": "csv", "rows.path": "x"},
    ],
)
def test_options_that_do_not_go_together(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        HttpSource("http://127.0.0.1:1/x", values, None)


def test_links_of_headers() -> None:
    assert next_link('<https://a/b?c=1,2>; rel="prev next"; title="x, <y>"') == "https://a/b?c=1,2"
    assert next_link("<a>; rel=next") == "a"
    assert next_link('<a>; rel="last", <b>; REL="NEXT"') == "b"
    assert next_link('<a>; rel="nextish"') is None and next_link("") is None


# what changes


def test_what_has_not_changed_costs_nothing(web: WebServer) -> None:
    web.json("/x", ROWS, etag=True)
    source = opened(f"{web.url}/x")
    end = source.latest(None)
    sent = web.sent
    assert source.latest(end) is end and source.splits(end, source.latest(end)) == []
    assert web.sent == sent
    # After a restart too, without the rows.
    again = opened(f"{web.url}/x", source.schema())
    assert again.latest(json.loads(json.dumps(end))) == end and web.sent == sent
    web.json("/x", [*ROWS, {"id": 3, "name": "c"}], etag=True)
    newer = again.latest(end)
    assert not again.reached(end, newer) and len(rows(again, newer)) == 3
    assert newer["first"] >= 2


def test_last_modified(web: WebServer) -> None:
    stamp = formatdate(1_000_000_000, usegmt=True)

    def route(asked: Asked) -> Reply:
        if asked.headers.get("if-modified-since") == stamp:
            return 304, {}, b""
        return 200, {"Content-Type": "application/json", "Last-Modified": stamp}, json.dumps(ROWS).encode()

    web.routes["/x"] = route
    source = opened(f"{web.url}/x")
    end = source.latest(None)
    assert source.latest(end) is end and rows(source, end) == ROWS


def test_the_same_rows_are_the_same_version(web: WebServer) -> None:
    count = iter(range(9))
    body = lambda: json.dumps({"at": next(count), "rows": ROWS}).encode()  # noqa: E731
    web.routes["/x"] = lambda _: (
        200,
        {"Content-Type": "application/json", "ETag": f'"{next(count)}"'},
        body(),
    )
    source = opened(f"{web.url}/x", **{"rows.path": "rows"})
    end = source.latest(None)
    assert source.latest(end) is end


def test_only_pages_that_changed_are_sent(web: WebServer) -> None:
    for n in range(3):
        more = {"Link": f'</{n + 1}>; rel="next"'} if n < 2 else {}
        web.json(f"/{n}", items(n * 2, 2), etag=True, **more)
    source = opened(f"{web.url}/0", paging="link")
    end = source.latest(None)
    # The last page is asked for as a whole: the link to another one is in no ETag.
    sent, last = web.sent, len(json.dumps(items(4, 2)))
    assert source.latest(end) is end and web.sent == sent + last
    web.json("/2", items(4, 2), etag=True, Link='</3>; rel="next"')
    web.json("/3", items(6, 3))
    newer = source.latest(end)
    assert rows(source, newer) == items(0, 9) and web.sent - sent == 2 * last + len(json.dumps(items(6, 3)))
    # Those who come from a restart have nothing of it and ask for all.
    assert opened(f"{web.url}/0", source.schema(), paging="link").latest(newer) == newer


def test_a_version_that_is_gone(web: WebServer) -> None:
    web.json("/x", items(0, 1))
    source = opened(f"{web.url}/x")
    ends = [source.latest(None)]
    for n in range(1, 5):
        web.json("/x", items(n, 1))
        ends.append(source.latest(ends[-1]))
    assert rows(source, ends[-1]) == items(4, 1) and rows(source, ends[-2]) == items(3, 1)
    with pytest.raises(SourceChanged):
        source.splits(None, ends[0])
    with pytest.raises(SourceChanged):
        web.json("/x", items(9, 1))
        opened(f"{web.url}/x").splits(None, ends[-1])


def test_columns_and_rows_come_of_one_answer(web: WebServer) -> None:
    web.json("/x", ROWS)
    source = opened(f"{web.url}/x")
    source.schema()
    assert rows(source) == ROWS and len(web.asked) == 1
    assert rows(source) == ROWS and len(web.asked) == 2


def test_files_go_with_the_source(web: WebServer) -> None:
    web.json("/x", ROWS)
    source = opened(f"{web.url}/x")
    (split,) = source.splits(None, source.latest(None))
    folder = Path(split.path).parent.parent  # type: ignore[attr-defined]
    assert folder.is_dir()
    source.close()
    assert not folder.exists()


# headers, logins, redirects


def test_headers_and_tokens(web: WebServer) -> None:
    web.json("/x", ROWS)
    rows(opened(f"{web.url}/x", **{"bearer.token": "t0p", "header.x-api-key": "k"}))
    assert web.asked[-1].headers["authorization"] == "Bearer t0p"
    assert web.asked[-1].headers["x-api-key"] == "k"
    rows(opened(f"http://al:p%40ss@127.0.0.1:{web.port}/x"))
    assert web.asked[-1].headers["authorization"] == "Basic YWw6cEBzcw=="
    with pytest.raises(InvalidOption, match="header"):
        rows(opened(f"{web.url}/x", **{"header.x-bad": "a\r\nb: c"}))


def test_secrets_in_the_address_are_not_shown(web: WebServer) -> None:
    for name in (
        "key",
        "sig",
        "signature",
        "access_key",
        "access_token",
        "api_key",
        "apikey",
        "X-Amz-Signature",
    ):
        with App() as app, pytest.raises(AddressMissing) as e:
            app.sql(f"SELECT * FROM '{web.url}/none?q=1&{name}=abcdef'")
        assert f"?q=1&{name}=***" in str(e.value) and "abcdef" not in str(e.value)


def test_a_redirect_to_no_address(web: WebServer) -> None:
    for target in ("http://[", "http://127.0.0.1:x/", "http://127.0.0.1:99999/", "//[::1"):
        web.routes["/x"] = lambda _, t=target: (302, {"Location": t}, b"")
        with pytest.raises(SourceError, match="which is no HTTP address"):
            rows(opened(f"{web.url}/x"))


def test_what_was_fetched_goes_with_its_query(
    web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    web.json("/x", ROWS)
    with App() as app:
        for n in range(3):
            assert len(app.sql(f"SELECT * FROM {web.url}/x?n={n}").rows()) == len(ROWS)
        assert not list(tmp_path.glob("millpond-http-*"))
        app.sql(f"CREATE TABLE t AS SELECT * FROM {web.url}/x?n=1 WITH ('refresh' = 'once')")
        app.sql(f"SELECT * FROM {web.url}/x?n=1")
        assert list(tmp_path.glob("millpond-http-*"))
    assert not list(tmp_path.glob("millpond-http-*"))


def test_secrets_are_never_shown(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cr3t-t0k3n")
    web.routes["/x"] = lambda a: (403, {}, f"no: {a.headers['authorization']} {a.headers['x-key']}".encode())
    sql = (
        f"SELECT * FROM {web.url}/x WITH ('bearer.token' = '${{API_TOKEN}}', "
        "'header.X-Key' = 'abcdef', 'retry.timeout' = '0s')"
    )
    with App() as app, pytest.raises(AccessRefused) as e:
        app.sql(sql)
    assert "answers 403 Forbidden: no:" in str(e.value)
    assert "s3cr3t" not in str(e.value) and "abcdef" not in str(e.value)
    web.json("/x", ROWS)
    with App() as app:
        app.sql(f"CREATE TABLE t AS {sql}")
        shown = [app.sql(q).to_arrow().to_pylist() for q in ("SHOW CREATE TABLE t", "DESCRIBE EXTENDED t")]
    assert "s3cr3t" not in str(shown) and "abcdef" not in str(shown)


def test_redirects_on_the_same_host(web: WebServer) -> None:
    web.routes["/x"] = lambda _: (302, {"Location": "/y?z=1"}, b"")
    web.json("/y", ROWS)
    assert rows(opened(f"{web.url}/x", **{"bearer.token": "t"})) == ROWS
    assert web.asked[-1].headers["authorization"] == "Bearer t"


def test_redirects_to_other_hosts(web: WebServer) -> None:
    other = WebServer()
    web.routes["/x"] = lambda _: (307, {"Location": f"{other.url}/y"}, b"")
    other.json("/y", ROWS)
    values = {"bearer.token": "t", "header.x-key": "k"}
    with pytest.raises(SourceError, match=f"another host, 127.0.0.1:{other.port}") as e:
        rows(opened(f"{web.url}/x", **values))
    assert "redirect.hosts" in str(e.value) and not other.asked
    assert (
        rows(opened(f"{web.url}/x", **values, **{"redirect.hosts": f"a.org, 127.0.0.1:{other.port}"})) == ROWS
    )
    assert "authorization" not in other.asked[-1].headers and "x-key" not in other.asked[-1].headers
    # Links of pages are held to the same.
    web.json("/p", ROWS, Link=f'<{other.url}/y>; rel="next"')
    with pytest.raises(SourceError, match="another host"):
        rows(opened(f"{web.url}/p", paging="link"))
    other.close()


def test_endless_redirects(web: WebServer) -> None:
    web.routes["/x"] = lambda a: (301, {"Location": f"/x?n={int(a.params.get('n', 0)) + 1}"}, b"")
    with pytest.raises(SourceError, match="redirects without end"):
        rows(opened(f"{web.url}/x"))
    assert len(web.asked) == 11
    web.routes["/x"] = lambda _: (301, {"Location": "ftp://127.0.0.1/x"}, b"")
    with pytest.raises(SourceError, match="no HTTP address"):
        rows(opened(f"{web.url}/x"))


def test_tls(web: WebServer, certificate: tuple[str, ssl.SSLContext], tmp_path: Path) -> None:
    path, context = certificate
    safe = WebServer(context)
    safe.json("/x", ROWS)
    assert rows(opened(f"{safe.url}/x", **{"ssl.ca": path})) == ROWS
    with pytest.raises(ConfigurationIssue, match="is not trusted") as e:
        rows(opened(f"{safe.url}/x", **{"retry.timeout": 60.0}))
    assert "ssl.ca" in str(e.value)
    with pytest.raises(InvalidOption, match="cannot be read"):
        rows(opened(f"{safe.url}/x", **{"ssl.ca": str(tmp_path / "nothing.pem")}))
    safe.routes["/x"] = lambda _: (302, {"Location": f"{web.url}/x"}, b"")
    with pytest.raises(SourceError, match="from https to http"):
        rows(opened(f"{safe.url}/x", **{"ssl.ca": path, "redirect.hosts": f"127.0.0.1:{web.port}"}))
    assert not web.asked
    safe.close()


def test_proxies_of_the_environment(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = WebServer()

    def forward(asked: Asked) -> Reply:
        assert asked.handler.path == "http://far.example/x"
        return 200, {"Content-Type": "application/json"}, json.dumps(ROWS).encode()

    proxy.routes["/x"] = forward
    web.json("/x", ROWS)
    monkeypatch.setenv("http_proxy", f"http://al:secret@127.0.0.1:{proxy.port}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert rows(opened("http://far.example/x")) == ROWS and rows(opened(f"{web.url}/x")) == ROWS
    assert proxy.asked[-1].headers["proxy-authorization"].startswith("Basic ") and len(proxy.asked) == 1
    proxy.close()


# failures


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ConfigurationIssue),
        (401, AccessRefused),
        (403, AccessRefused),
        (404, AddressMissing),
        (410, AddressMissing),
        (418, ConfigurationIssue),
        (429, ConnectionLost),
        (500, ConnectionLost),
        (501, SourceError),
        (503, ConnectionLost),
    ],
)
def test_answers_that_are_errors(web: WebServer, status: int, kind: type[Error]) -> None:
    web.routes["/x"] = lambda _: (status, {}, b"<html><style>p{}</style><p>so   it is</p></html>")
    with pytest.raises(kind, match=f"answers {status}.*: so it is") as e:
        rows(opened(f"{web.url}/x"))
    assert type(e.value) is kind and (e.value.hint or status == 501)
    assert e.value.retryable == (kind is ConnectionLost)


@pytest.mark.parametrize("named", [None, "json", "csv"])
def test_a_page_for_people(web: WebServer, named: str | None) -> None:
    web.body("/x", b"\n<!DOCTYPE html><html>log in</html>", "text/html")
    with pytest.raises(BadData, match="answers HTML") as e:
        rows(opened(f"{web.url}/x", format=named))
    assert "check the address" in str(e.value)


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (b"\x00\x01", "application/octet-stream", "its format is not known"),
        (b"[{]", "application/json", "the answer of .* is not JSON"),
        (b'[{"id": 1}, 2]', "application/json", "the answer of .*record 2: not a JSON object"),
        (b'{"a": "\xff"}', "application/json", "is not UTF-8"),
        (b"[" * 100_000, "application/json", "the answer of .* is nested deeper"),
        (b"", "application/json", "answers without content"),
        (b"[]", "application/json", "answers no rows"),
    ],
)
def test_bodies_that_are_wrong(web: WebServer, body: bytes, kind: str, says: str) -> None:
    web.body("/x", body, kind)
    with pytest.raises(Error, match=says):
        rows(opened(f"{web.url}/x"))


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"rows": [1', b'{"rows"', b"{", b'{"a" 1, "rows": []}', b'{"rows": \xff}']
)
def test_bodies_whose_path_cannot_be_walked(web: WebServer, body: bytes) -> None:
    web.body("/x", body, "application/json")
    with pytest.raises(BadData, match="the answer of"):
        opened(f"{web.url}/x", **{"rows.path": "rows"}).schema()


def test_a_value_that_does_not_fit(web: WebServer) -> None:
    web.json("/x", [{"id": 1}, {"id": "x"}])
    with pytest.raises(BadData, match=f'the answer of "{web.url}/x", record 2: "x" in column "id"'):
        rows(opened(f"{web.url}/x", Schema((Column("id", pa.int64()),))))


def test_an_answer_that_is_too_large(web: WebServer) -> None:
    web.json("/x", items(0, 1000))
    with pytest.raises(BadData, match="larger than 100 bytes") as e:
        rows(opened(f"{web.url}/x", **{"max.size": 100}))
    assert "max.size" in str(e.value)
    for kind, path, more in (
        ("text/csv", "/bomb", {"Content_Encoding": "gzip"}),
        ("application/gzip", "/b.csv.gz", {}),
    ):
        web.body(path, gzip.compress(b"a\n" + b"1\n" * 5_000_000), kind, **more)
        with pytest.raises(BadData, match="larger than 1000000 bytes"):
            rows(opened(f"{web.url}{path}", **{"max.size": 1_000_000}))
    web.body("/torn", gzip.compress(b"id\n1\n")[:-12] + b"????", "text/csv", Content_Encoding="gzip")
    web.body("/odd", b"x", "text/csv", Content_Encoding="br")
    for path, says in (("/torn", "cannot be unpacked"), ("/odd", 'encoding "br"')):
        with pytest.raises(BadData, match=says):
            rows(opened(web.url + path))


def test_an_answer_that_never_ends(web: WebServer) -> None:
    def endless(asked: Asked) -> None:
        h = asked.handler
        h.send_response(200)
        h.send_header("Content-Type", "text/csv")
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        while True:
            h.wfile.write(b"2\r\n1\n\r\n")
            h.wfile.flush()
            time.sleep(0.01)

    web.routes["/x"] = endless
    with pytest.raises(ConnectionLost, match=r"has not ended after 0\.3 s"):
        rows(opened(f"{web.url}/x", **{"request.timeout": 0.3}))


def test_a_server_that_says_nothing(web: WebServer) -> None:
    web.routes["/x"] = lambda _: time.sleep(5)
    with pytest.raises(ConnectionLost, match="does not answer"):
        rows(opened(f"{web.url}/x", **{"read.timeout": 0.1}))


def test_a_connection_that_breaks_is_tried_again(web: WebServer) -> None:
    broken: list[int] = []

    def breaks(asked: Asked) -> Reply | None:
        if len(broken) < 2:
            broken.append(1)
            asked.handler.send_response(200)
            asked.handler.send_header("Content-Length", "1000")
            asked.handler.end_headers()
            asked.handler.wfile.write(b"[{")
            asked.handler.close_connection = True
            return None
        return 200, {"Content-Type": "application/json"}, json.dumps(ROWS).encode()

    web.routes["/x"] = breaks
    source = opened(f"{web.url}/x", **{"retry.timeout": 30.0})
    assert rows(source) == ROWS
    assert str(source.issues) == "connection_lost: 2 retries, 1 successes, 0 failures"


def test_nobody_there_and_no_such_host() -> None:
    for url in ("http://127.0.0.1:1/x", "http://no-such-host.invalid/x"):
        with pytest.raises(ConnectionLost, match="does not answer"):
            opened(url).latest(None)
    with pytest.raises(InvalidOption, match="names no host"):
        opened("http:///x")


def test_a_server_that_asks_to_wait(web: WebServer) -> None:
    replies = iter([(429, {"Retry-After": "1"}, b""), (503, {"Retry-After": formatdate(usegmt=True)}, b"")])
    web.routes["/x"] = lambda _: next(
        replies, (200, {"Content-Type": "application/json"}, json.dumps(ROWS).encode())
    )
    began = time.monotonic()
    assert rows(opened(f"{web.url}/x", **{"retry.timeout": 60.0})) == ROWS
    assert time.monotonic() - began >= 1 and len(web.asked) == 3
    web.routes["/x"] = lambda _: (429, {"Retry-After": "3600"}, b"slow down")
    with pytest.raises(ConnectionLost, match=r"429.*slow down") as e:
        rows(opened(f"{web.url}/x", **{"retry.timeout": 60.0}))
    assert e.value.after == 3600 and len(web.asked) == 4


def test_what_retry_after_says() -> None:
    assert retry_after("120", 0) == 120 and retry_after(None, 0) == retry_after("soon", 0) == 0
    assert retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 20) == 40
    assert retry_after("Thu, 01 Jan 1970 00:00:00 GMT", 20) == 0


def test_a_pause_that_was_asked_for_is_kept() -> None:
    slept: list[float] = []
    errors = [ConnectionLost("x"), ConnectionLost("y")]
    errors[1].after = 7.0

    def work() -> int:
        if errors:
            raise errors.pop()
        return 1

    assert Patience(60, 1, "fixed").wait_for(work, sleep=slept.append, clock=lambda: 0.0) == 1
    assert slept == [7.0, 1]


# statements


def test_queries_and_tables(web: WebServer, tmp_path: Path) -> None:
    web.json("/x", {"data": ROWS})
    web.body("/rates.csv", b"id,rate\n1,0.5\n2,1.25\n", "text/csv")
    with App() as app:
        assert app.sql(f"SELECT SUM(id) AS s FROM {web.url}/x WITH ('rows.path' = 'data')").rows() == [
            {"s": 3}
        ]
        app.sql(f"CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM {web.url}/x WITH ('rows.path' = 'data')")
        joined = f"SELECT t.name, r.rate FROM t JOIN {web.url}/rates.csv r ON t.id = r.id ORDER BY 1"
        assert app.sql(joined).rows() == [{"name": "a", "rate": 0.5}, {"name": "b", "rate": 1.25}]
        with pytest.raises(AddressMissing, match="answers 404 Not Found: nothing here"):
            app.sql(f"SELECT * FROM {web.url}/nothing")
        with pytest.raises(Error, match=r"paging\.pth") as e:
            app.sql(f"SELECT * FROM {web.url}/x WITH ('paging.pth' = 'x')")
    assert 'did you mean "paging.path"' in str(e.value)
