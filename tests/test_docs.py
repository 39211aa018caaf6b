"""The documentation is checked like code: its examples run, its links lead somewhere, its reference is not stale.

What the word after a fence's language means:

    ```sql              runs, all of a page in one App
    ```sql check        is only checked, after the blocks before it
    ```sql error        every statement in it is refused, after the blocks before it
    ```sql name.sql     is written to a file and checked
    ```csv name.csv     is written to a file (any language, any name with a suffix)
    ```text name.test   is written too, and its cases are run
    ```python           runs, all of a page in one namespace
    ```console          commands after ``$``: `millpond` must know them
    ```console run      they are run, and their standard output is what stands below them

A page that writes a ``pyproject.toml`` is a package, which is installed before its examples run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from millpond import App
from millpond.app.check import check_text
from millpond.sql.parse import parse
from millpond.testing import read_cases, run_case
from tests.installed import install, use
from tests.servers import S3, ChdbHttp, MariaDb, Postgres
from tests.webserver import WebServer

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    word: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        return self.word if "." in self.word else None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2] or "", m[3], text.count("\n", 0, m.start()) + 1) for m in _FENCE.finditer(text)]


def runs(block: Block) -> bool:
    return (block.language == "python" and not block.word) or (block.language == "sql" and not block.word)


def _examples() -> Iterator[object]:
    for page in PAGES:
        found = blocks(page)
        if any(b.language in ("sql", "python") for b in found):
            starts = any(runs(b) and "CREATE STREAM" in b.text.upper() for b in found)
            yield pytest.param(page, id=_name(page), marks=[pytest.mark.spark] if starts else [])


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", list(_examples()))
def test_examples(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")
    _set_urls(page, monkeypatch, request)
    if any(b.file == "pyproject.toml" for b in blocks(page)):
        _install(page, tmp_path, monkeypatch, request)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    namespace: dict[str, object] = {"__name__": "__main__"}
    before = ""
    app: App | None = None
    try:
        for block in blocks(page):
            where = f"{_name(page)}:{block.line}"
            if block.file is not None:
                Path(block.file).write_text(block.text, encoding="utf-8")
            if block.language == "python" and runs(block):
                # The lines of a traceback are those of the page.
                exec(compile("\n" * block.line + block.text, page, "exec"), namespace)
            elif block.language == "sql":
                assert block.word in ("", "check", "error") or block.file, where
                if block.word == "error":
                    _check_refused(before, block.text, where)
                    continue
                _check_good(before + block.text if not block.file else block.text, where)
                if block.file is None:
                    before += block.text
                if runs(block):
                    app = app or App()
                    app.sql(block.text)
                    app.drain()
        for file in sorted(tmp_path.glob("*.test")):
            for number, case in enumerate(read_cases(file)):
                run_case(case, "plain", tmp_path / f"{file.stem}-{number}")
    finally:
        if app is not None:
            app.close()


def _install(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Installs the package that a page writes, where this test alone finds it."""
    project, site = folder / "project", folder / "site"
    project.mkdir()
    for block in blocks(page):
        if block.file is not None:
            (project / block.file).write_text(block.text, encoding="utf-8")
    install(project, site)
    use(site, monkeypatch, request)


def _set_urls(page: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What examples take from the environment: servers that the tests start."""
    text = page.read_text(encoding="utf-8")
    for name, url in (
        ("DATABASE_URL", lambda servers: servers.postgresql.new_schema(f"docs_{page.parent.name}")),
        ("MYSQL_URL", lambda servers: servers.mariadb.new_database(f"docs_{page.stem}")),
        ("REDIS_URL", lambda servers: servers.redis.url(15)),
        ("MONGODB_URL", lambda servers: servers.mongodb.url("docs")),
    ):
        if f"${{{name}}}" in text:
            monkeypatch.setenv(name, url(request.getfixturevalue("servers")))
    if "${SHOP_URL}" in text:
        shop = request.getfixturevalue("servers").own_postgresql
        shop.execute(
            "DROP TABLE IF EXISTS orders, customers;"
            "CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric(10, 2));"
            "CREATE TABLE customers (id bigint PRIMARY KEY, country text)"
        )
        monkeypatch.setenv("SHOP_URL", shop.url())
    if "${S3_URL}" in text:
        _fill_bucket(request.getfixturevalue("servers").s3, monkeypatch)
    if "${SHOP_HOST}" in text:
        _fill_shop(request.getfixturevalue("servers").postgresql, monkeypatch)
    if "${STORE_HOST}" in text:
        _fill_store(request.getfixturevalue("servers").mariadb, monkeypatch)
    if "${WAREHOUSE}" in text:
        monkeypatch.setenv("WAREHOUSE", _filled_warehouse(request.getfixturevalue("servers").clickhouse))
    if "${API_HOST}" in text:
        web = _web_server()
        request.addfinalizer(web.close)
        monkeypatch.setenv("API_HOST", f"127.0.0.1:{web.port}")
        monkeypatch.setenv("API_TOKEN", "a-token-of-the-tests")
    if any("kafka://" in b.text for b in blocks(page) if runs(b)):
        monkeypatch.setenv("MILLPOND_KAFKA_BROKERS", request.getfixturevalue("servers").kafka.brokers)


def _fill_bucket(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trades, as the examples have them."""
    for name, value in (("URL", s3.url), ("KEY", "k"), ("SECRET", "s")):
        monkeypatch.setenv(f"S3_{name}", value)
    client = s3.client()
    client.create_bucket(Bucket="market")
    client.put_object(Bucket="market", Key="trades/2026/a.csv", Body=b"id,price\n1,10\n2,20\n")


def _fill_shop(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders and customers, as the examples have them."""
    monkeypatch.setenv("SHOP_LOGIN", "millpond")
    monkeypatch.setenv("SHOP_HOST", f"127.0.0.1:{server.port}")
    server.execute("DROP DATABASE IF EXISTS shop")
    server.execute("CREATE DATABASE shop")
    server.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, qty int, price numeric(10, 2));"
        "CREATE TABLE customers (id int PRIMARY KEY, name text, changed_at timestamptz DEFAULT now());"
        "INSERT INTO orders VALUES (1, 1, 2, 9.50), (2, 2, 1, 3.00);"
        "INSERT INTO customers VALUES (1, 'Ann'), (2, 'Bob')",
        server.url("shop"),
    )


def _fill_store(server: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders and customers, as the examples have them."""
    monkeypatch.setenv("STORE_LOGIN", "millpond:pond")
    monkeypatch.setenv("STORE_HOST", f"127.0.0.1:{server.port}")
    server.execute("CREATE OR REPLACE DATABASE store")
    for statement in (
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, qty int, price decimal(10, 2))",
        "CREATE TABLE customers (id int PRIMARY KEY, name text, changed_at timestamp(6) DEFAULT now(6))",
        "INSERT INTO orders VALUES (1, 1, 2, 9.50), (2, 2, 1, 3.00)",
        "INSERT INTO customers (id, name) VALUES (1, 'Ann'), (2, 'Bob')",
    ):
        server.execute(statement, "store")


def _filled_warehouse(server: ChdbHttp) -> str:
    """Visits of pages, as the examples have them."""
    server.execute("DROP DATABASE IF EXISTS web")
    server.new_database("web")
    server.execute(
        "CREATE TABLE visits (id UInt32, at DateTime, page String) ENGINE = MergeTree ORDER BY id", "web"
    )
    server.execute(
        "INSERT INTO visits VALUES (1, '2026-01-02 03:04:05', '/a'), (2, '2026-01-02 03:04:06', '/b')", "web"
    )
    kinds = "day Date, page String, visitors AggregateFunction(uniq, UInt32)"
    server.execute(f"CREATE TABLE daily ({kinds}) ENGINE = AggregatingMergeTree ORDER BY (day, page)", "web")
    server.execute(
        "INSERT INTO daily SELECT toDate(at), page, uniqState(id) FROM visits GROUP BY 1, 2", "web"
    )
    return server.address


def _web_server() -> WebServer:
    """Orders, as the examples have them."""
    web = WebServer()
    web.routes["/hooks/orders"] = lambda asked: (204, {}, b"")
    web.body("/orders.csv", b"id,status\n1,new\n2,paid\n3,new\n", "text/csv", etag=True)
    for page, more in (("/v1/orders", "/v1/more"), ("/v1/more", None)):
        items = [{"id": len(page), "status": "new", "total": 1.5}]
        web.json(page, {"data": {"items": items}, "links": {"next": more}}, etag=True)
    return web


def _check_good(text: str, where: str) -> None:
    errors = check_text(text).errors
    assert not errors, f"{where}: {errors[0]}"


def _check_refused(before: str, text: str, where: str) -> None:
    """Each statement by itself: one that is no longer refused has to be found."""
    for statement in re.split(r";\s*(?:--[^\n]*)?\n", text):
        if parse(statement, {}).statements or statement.strip():
            assert check_text(before + statement).errors, f"{where} is not refused: {statement.strip()}"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "```console" in p.read_text(encoding="utf-8")], ids=_name
)
def test_commands_exist(page: Path) -> None:
    from millpond.cli.main import app

    known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    for line, command in _commands(page):
        name, *rest = command[1:] or ["--help"]
        assert name in known | {"--help", "--version"}, f"{_name(page)}:{line}: there is no millpond {name}"
        options = [o for o in rest if o.startswith("--")]
        said = CliRunner().invoke(app, [name, "--help"]).output if options else ""
        for option in options:
            assert option in said, f"{_name(page)}:{line}: millpond {name} has no {option}"


def _commands(page: Path) -> Iterator[tuple[int, list[str]]]:
    for block in blocks(page):
        if block.language == "console":
            for line, text in enumerate(block.text.splitlines(), block.line + 1):
                if text.startswith("$ millpond"):
                    yield line, shlex.split(text[2:], comments=True)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if any(b.language == "console" and b.word == "run" for b in blocks(p))],
    ids=_name,
)
def test_commands_say_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for block in blocks(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        if block.language != "console" or block.word != "run":
            continue
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            assert done.stdout.strip() == expected.strip(), command


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in _LINK.findall(text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{_name(page)}: {target}"
        if anchor:
            heads = _HEADING.findall(_FENCE.sub("", file.read_text(encoding="utf-8")))
            assert anchor in {_anchor(h) for h in heads}, f"{_name(page)}: {target}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


_MACHINE = re.compile(
    r"(?<!file:)//?(?:work|root|home/\w+|Users/\w+)/|/tmp/|localhost:\d+/simple|pypi\.|(?<!schema\.)registry\."
)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_nothing_of_one_machine(page: Path) -> None:
    found = _MACHINE.search(page.read_text(encoding="utf-8"))
    assert found is None, f"{_name(page)}: {found[0]}"


def test_every_page_is_reached() -> None:
    """From README.md, by links."""
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in target:
                waiting.append((page.parent / target.partition("#")[0]).resolve())
    missing = {p for p in PAGES if (ROOT / "docs") in p.parents} - seen
    assert not missing, sorted(map(_name, missing))


def test_the_reference_is_not_stale() -> None:
    reference = _load(ROOT / "tools" / "reference.py")
    for name, text in reference.pages().items():
        file = ROOT / "docs" / "reference" / name
        assert file.exists() and file.read_text(encoding="utf-8") == text, f"{name} is stale: run make docs"
    limits: Path = reference.LIMITS
    assert limits.read_text(encoding="utf-8") == reference.limits(), "limits.md is stale: run make docs"


def test_every_statement_has_its_syntax_and_an_example() -> None:
    reference = _load(ROOT / "tools" / "reference.py")
    page = reference.STATEMENTS.read_text(encoding="utf-8")
    sections = {part.partition("\n")[0]: part for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]}
    for title, runs in reference.statement_titles().items():
        assert "```text\n" in sections.get(title, ""), f"{title} has no syntax"
        assert ("```sql\n" if runs else "```sql error\n") in sections[title], f"{title} has no example"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_has_every_page_and_no_link_into_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = _load(ROOT / "tools" / "site.py")
    monkeypatch.setattr(site, "SITE", tmp_path / "site")
    monkeypatch.setattr(site, "ROOT", tmp_path)
    site.main()
    made = sorted((tmp_path / "site").rglob("*.html"))
    assert len(made) == len([p for p in PAGES if (ROOT / "docs") in p.parents])
    ids = {page: set(re.findall(r'id="([^"]+)"', page.read_text(encoding="utf-8"))) for page in made}
    for page in made:
        for target in re.findall(r"""(?:href|src)=["']([^"']+)["']""", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = (page.parent / path).resolve() if path else page
            inside = (tmp_path / "site").resolve() in file.resolve().parents
            assert not inside or file.exists(), f"{page.name}: {target}"
            assert not anchor or file not in ids or anchor in ids[file], f"{page.name}: {target}"
