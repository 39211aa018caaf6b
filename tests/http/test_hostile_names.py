"""Names, values and messages that are markup or script, in a real browser: they are shown, and never run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from millpond import App
from tests.http.conftest import Serving

pytestmark = pytest.mark.slow
expect.set_options(timeout=30_000)
IMAGE = "<img src=x onerror=window.hit=1>"
SCRIPT = "</td></script><script>window.hit=1</script>"
QUOTED = "\"'onmouseover=window.hit=1 x=`"
LINK = "javascript:window.hit=1"
LONG = "<i>" * 3_000
STEER = "\u202e\u0000\u2028</style><svg/onload=window.hit=1>"
VALUES = [IMAGE, SCRIPT, QUOTED, LINK, LONG, STEER.replace("\u0000", ""), "{{7*7}}", "${hit}", "%3Cscript%3E"]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.fixture(scope="module")
def hostile() -> Iterator[Serving]:
    table, stream, column = quoted(IMAGE), quoted("s" + SCRIPT), quoted(QUOTED)
    made = Serving(
        App(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, {column} STRING, {quoted(IMAGE)} STRING);"
            f"CREATE STREAM {stream} (id INT, {column} STRING);"
            f"CREATE TABLE kept AS SELECT id, 1 / id AS x FROM {stream};",
            _direct=True,
        )
    )
    made.app.table(IMAGE).bulk_insert([{"id": i, QUOTED: v, IMAGE: v} for i, v in enumerate(VALUES)])
    made.app.send("s" + SCRIPT, [{"id": 1, QUOTED: IMAGE}, {"id": 0, QUOTED: IMAGE}])
    made.app.drain()
    yield made
    made.close()


@pytest.fixture
def page(hostile: Serving) -> Iterator[Page]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "the tests need Chromium: make setup installs it"
    with sync_playwright() as playwright:
        browser: Browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(30_000)
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on(
            "request", lambda r: wrong.append(r.url) if not r.url.startswith(hostile.server.url) else None
        )
        page.on("console", lambda m: wrong.append(m.text) if "Content Security Policy" in m.text else None)
        page.goto(hostile.server.url)
        yield page
        # The page's own policy would stop a script; that none was made at all is seen by what the page holds.
        assert page.evaluate("window.hit") is None
        assert (
            page.locator(
                "img, iframe, object, embed, main script, [onerror], [onload], [onmouseover]"
            ).count()
            == 0
        )
        assert page.locator("a[href^='javascript']").count() == 0
        browser.close()
        assert not wrong


def test_rows_and_names(page: Page, hostile: Serving) -> None:
    page.locator("#table-name").select_option(IMAGE)
    expect(page.locator("#rows tbody tr")).to_have_count(len(VALUES))
    expect(page.locator("#rows thead")).to_contain_text(IMAGE)
    for value in (IMAGE, SCRIPT, QUOTED, LINK):
        expect(page.locator("#rows tbody")).to_contain_text(value)
    expect(page.locator("body")).to_contain_text("s" + SCRIPT)


def test_answers_errors_and_plans(page: Page) -> None:
    page.locator("#sql").fill(
        f"SELECT id, {quoted(QUOTED)} AS {quoted(SCRIPT)} FROM {quoted(IMAGE)} ORDER BY id"
    )
    page.locator("#run").click()
    expect(page.locator("#result tbody tr")).to_have_count(len(VALUES))
    expect(page.locator("#result")).to_contain_text(SCRIPT)
    page.locator("#shape").select_option("chart")
    page.locator("#shape").select_option("table")
    page.locator("#sql").fill(f"SELECT {quoted(SCRIPT)} FROM {quoted(IMAGE)}")
    page.locator("#run").click()
    expect(page.locator("#sql-error")).to_contain_text(SCRIPT)
    page.locator("#sql").fill(
        f"SELECT t.id AS {quoted(IMAGE)} FROM {quoted(IMAGE)} t WHERE {quoted(QUOTED)} = '{SCRIPT}'"
    )
    page.locator("#explain").click()
    expect(page.locator("#plan")).to_contain_text(IMAGE)


def test_answers_are_what_they_say_they_are(hostile: Serving) -> None:
    """A browser that is led to an address of the API shows text, and looks for nothing else in it."""
    for path in (
        f"/tables/{IMAGE}/rows",
        "/tables",
        "/graph",
        "/queries",
        f"/tables/{SCRIPT}/rows",
        "/<script>",
    ):
        answer = hostile.client.get(path)
        assert answer.headers["content-type"].startswith("application/json"), path
        assert answer.headers["x-content-type-options"] == "nosniff"
    drawn = hostile.client.post("/explain?format=svg", json={"sql": f"SELECT * FROM {quoted(IMAGE)}"})
    assert drawn.status_code == 200 and "<img" not in drawn.text and "onerror=window.hit=1&gt;" in drawn.text
