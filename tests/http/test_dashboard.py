"""The dashboard in a real browser: what it shows is what the API says, as it changes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from millpond import App
from tests.http.conftest import Serve, Serving

pytestmark = pytest.mark.slow
expect.set_options(timeout=30_000)
SQL = """
CREATE STREAM orders (id INT, sku STRING, qty INT);
CREATE TABLE items (sku STRING PRIMARY KEY, name STRING, price DECIMAL(10,2));
CREATE TABLE totals AS SELECT sku, SUM(qty) AS qty FROM orders GROUP BY sku;
CREATE TABLE rests (rest INT PRIMARY KEY, sku STRING);
INSERT INTO rests SELECT 100 % qty, sku FROM orders WITH ('query.name' = 'risky', 'on.error' = 'fail');
INSERT INTO items VALUES ('A1', 'Lamp', 19.90), ('B2', 'Desk', 249.00), ('C3', '<b>bold</b>', 89.50);
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "the tests need Chromium: make setup installs it"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def works() -> Iterator[Serving]:
    made = Serving(App(SQL, _direct=True))
    made.app.send("orders", [{"id": i, "sku": "ab"[i % 2], "qty": 1} for i in range(100)])
    made.app.drain()
    yield made
    made.close()


@pytest.fixture
def page(browser: Browser, works: Serving) -> Iterator[Page]:
    """The page, and a failure for everything that it finds wrong or asks of another host."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(30_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    # The browser itself notes every answer of 400 or more.
    said = "Failed to load resource"
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" and said not in m.text else None)
    page.on("request", lambda r: wrong.append(r.url) if not r.url.startswith(works.server.url) else None)
    page.goto(works.server.url)
    yield page
    page.close()
    assert not wrong


def test_it_shows_what_the_api_says(page: Page, works: Serving) -> None:
    expect(page.locator("#state")).to_have_text("ready")
    node = page.locator('[data-id="table:totals"]')
    expect(node).to_contain_text("2 rows")
    expect(page.locator('[data-id="stream:orders"]')).to_contain_text("100 rows")
    for edge in works.client.get("/graph").json()["nodes"]:
        expect(page.locator(f'[data-id="{edge["id"]}"]')).to_have_count(1)
    row = page.locator('#queries tr[data-name="table:totals"]')
    numbers = next(q for q in works.client.get("/queries").json()["queries"] if q["name"] == "table:totals")
    told = f"rows: 0 by Spark, {numbers['process_rows']} in process"
    expect(row.locator("td", has_text=" of ")).to_have_attribute("title", re.compile(told))
    expect(row.locator("td").nth(2)).to_have_text(str(numbers["rows"]))
    for name in ("rows_per_second", "batch_ms", "lag", "memory", "errors"):
        expect(page.locator(f'.plot[data-name="{name}"] b')).not_to_have_text("–")


def test_a_row_that_is_sent_appears(page: Page, works: Serving) -> None:
    page.locator("#table-name").select_option("totals")
    expect(page.locator("#rows tbody tr")).to_have_count(2)
    works.app.send("orders", {"id": 1, "sku": "new", "qty": 7})
    works.app.drain()
    expect(page.locator("#rows tbody tr", has_text="new")).to_contain_text("7")
    expect(page.locator('[data-id="stream:orders"]')).to_contain_text("101 rows")
    works.app.sql("INSERT INTO items VALUES ('D4', 'Door', 1)")
    page.locator("#table-name").select_option("items")
    expect(page.locator("#rows tbody tr", has_text="Door")).to_contain_text("1.00")
    works.app.sql("DELETE FROM items WHERE sku = 'D4'")
    expect(page.locator("#rows tbody tr")).to_have_count(3)


def test_rows_are_searched_and_sorted_and_never_markup(page: Page) -> None:
    page.locator("#table-name").select_option("items")
    expect(page.locator("#rows tbody tr")).to_have_count(3)
    expect(page.locator("#rows")).to_contain_text("<b>bold</b>")
    assert page.locator("#rows b").count() == 0
    price = page.locator("#rows th", has_text="price")
    price.click()
    expect(page.locator("#rows tbody tr").first).to_contain_text("19.90")
    price.click()
    expect(page.locator("#rows tbody tr").first).to_contain_text("249.00")
    page.locator("#search").fill("lamp")
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    expect(page.locator("#table-about")).to_have_text("1 of 3 rows")


def test_sql(page: Page) -> None:
    page.locator("#sql").fill("SELECT sku, price FROM items ORDER BY sku")
    page.locator("#run").click()
    expect(page.locator("#result tbody tr")).to_have_count(3)
    expect(page.locator("#result")).to_contain_text("249.00")
    page.locator("#shape").select_option("chart")
    expect(page.locator("#chart rect")).to_have_count(3)
    page.locator("#shape").select_option("table")
    page.locator("#sql").fill("SELECT prise FROM items")
    page.locator("#sql").press("Control+Enter")
    expect(page.locator("#sql-error")).to_contain_text('did you mean "price"?')
    expect(page.locator("#sql-error")).to_contain_text("^^^^^")


def test_a_statement_is_drawn(page: Page, works: Serving) -> None:
    page.locator("#sql").fill(
        "SELECT o.id, i.name FROM orders o JOIN items i ON i.sku = o.sku WHERE o.qty > 1 AND o.sku <> '<b>'"
    )
    page.locator("#explain").click()
    picture = page.locator("#picture")
    for id_ in ("stream:orders", "table:items", "query:select"):
        expect(picture.locator(f'[data-id="{id_}"]')).to_have_count(1)
    expect(picture.locator("path.edge")).to_have_count(2)
    expect(picture).to_contain_text("by sku = o.sku")
    plan = works.client.post("/explain", json={"sql": page.locator("#sql").input_value()}).json()["plan"]
    expect(page.locator("#plan pre")).to_have_text("\n".join(plan))
    assert page.locator("#plan b").count() == 0
    page.locator("#sql").fill("SELECT 1 AS one")
    page.locator("#run").click()
    expect(page.locator("#plan")).to_be_hidden()
    expect(page.locator("#result tbody tr")).to_have_count(1)


def test_queries_are_held_and_failures_are_red(page: Page, works: Serving) -> None:
    row = page.locator('#queries tr[data-name="table:totals"]')
    row.get_by_role("button", name="pause").click()
    expect(row).to_have_attribute("data-state", "paused")
    row.get_by_role("button", name="resume").click()
    expect(row).to_have_attribute("data-state", "running")
    works.app.send("orders", {"id": 1, "sku": "a", "qty": 0})
    with pytest.raises(Exception, match="zero"):
        works.app.drain()
    node = page.locator('[data-id="query:risky"]')
    expect(node).to_have_attribute("data-state", "failed")
    expect(node).to_have_class("node query bad")
    expect(page.locator('#queries tr[data-name="risky"] td.error')).to_contain_text("zero")
    expect(page.locator("#state")).to_have_text("degraded")


def test_light_dark_and_small(page: Page) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(back)
    page.locator("#theme").click()
    assert page.evaluate(back) != before
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.locator("#state")).not_to_have_text("connecting")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_token_is_asked_for(browser: Browser, serve: Serve) -> None:
    shop = serve("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)", tokens={"READ": "r" * 20})
    page = browser.new_page()
    page.goto(shop.server.url)
    page.locator("#token").fill("r" * 20)
    page.locator("#login button").click()
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    expect(page.locator("#login")).to_be_hidden()
    page.close()


def test_the_parts_of_the_page(works: Serving) -> None:
    answer = works.client.get("/")
    assert (
        answer.headers["content-type"].startswith("text/html")
        and "default-src 'none'" in answer.headers["content-security-policy"]
    )
    assert works.client.get("/assets/main.js").headers["content-type"].startswith("text/javascript")
    for wrong in ("nothing.js", "..%2Fpages.py", "%2e%2e/pages.py"):
        assert works.client.get(f"/assets/{wrong}").status_code == 404
