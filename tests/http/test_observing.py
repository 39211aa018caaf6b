"""What a dashboard and a monitor ask for: queries, graph, samples, metrics, readiness."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millpond import App
from tests.http.conftest import Serve, Serving

ROOT = Path(__file__).resolve().parent.parent.parent
MONITORING = ROOT / "examples" / "monitoring"

SQL = """
CREATE STREAM orders (id INT, sku STRING, qty INT);
CREATE TABLE items (sku STRING PRIMARY KEY, name STRING);
CREATE TABLE totals AS SELECT sku, SUM(qty) AS qty FROM orders GROUP BY sku;
CREATE TABLE named AS SELECT t.sku, i.name, t.qty FROM totals t JOIN items i ON i.sku = t.sku;
CREATE TABLE rests (rest INT PRIMARY KEY, sku STRING);
INSERT INTO rests SELECT 100 % qty, sku FROM orders WITH ('query.name' = 'risky', 'on.error' = 'fail');
"""


@pytest.fixture(scope="module")
def works() -> Iterator[Serving]:
    """An app with running queries, and one more that failed."""
    app = App(SQL, _direct=True)
    made = Serving(app)
    app.send("orders", [{"id": i, "sku": "ab"[i % 2], "qty": 1} for i in range(100)])
    app.drain()
    made.client.get("/stats")
    yield made
    made.close()


def test_queries(works: Serving) -> None:
    found = {q["name"]: q for q in works.client.get("/queries").json()["queries"]}
    totals = found["table:totals"]
    assert (totals["state"], totals["rows"] > 0, totals["lag"]) == ("running", True, 0)
    assert (
        totals["reads"] == ["orders"] and totals["writes"] == ["totals"] and "SUM(qty)" in totals["statement"]
    )
    assert found["table:named"]["live"] and sorted(found["table:named"]["reads"]) == ["items", "totals"]


def test_the_graph(works: Serving) -> None:
    drawn = works.client.get("/graph").json()
    nodes = {n["id"]: n for n in drawn["nodes"]}
    assert nodes["stream:orders"]["rows"] == 100
    assert nodes["table:totals"]["state"] == "healthy" and nodes["table:totals"]["rows"] == 2
    assert nodes["query:table:totals"]["state"] == "running" and nodes["query:table:named"]["live"]
    edges = {(e["from"], e["to"]) for e in drawn["edges"]}
    assert {
        ("stream:orders", "query:table:totals"),
        ("query:table:totals", "table:totals"),
        ("table:totals", "query:table:named"),
        ("table:items", "query:table:named"),
        ("query:table:named", "table:named"),
        ("stream:orders", "query:risky"),
        ("query:risky", "table:rests"),
    } == edges
    assert all(e["from"] in nodes and e["to"] in nodes for e in drawn["edges"])


def test_sources_and_sinks_are_in_the_graph(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("sku,name\na,Apple\n")
    shop = serve(f"CREATE TABLE items AS SELECT * FROM file://{tmp_path}/x.csv WITH ('refresh' = 'once')")
    drawn = shop.client.get("/graph").json()
    source = next(n for n in drawn["nodes"] if n["kind"] == "source")
    assert "x.csv" in source["name"]
    assert {"from": source["id"], "to": "table:items", "rate": 0.0} in drawn["edges"]


def test_samples(works: Serving) -> None:
    first = works.client.get("/stats").json()
    latest = first["samples"][-1]
    assert latest["memory"] > 10_000_000 and latest["lag"] == 0 and latest["failed"] == 0
    assert latest["tables"]["totals"]["rows"] == 2 and "table:totals" in latest["queries"]
    assert works.client.get("/stats", params={"after": first["now"] + 60}).json()["samples"] == []
    assert works.client.get("/stats", params={"after": "noon"}).status_code == 400


def metrics_of(shop: Serving) -> dict[tuple[str, str], float]:
    """Values by name and labels."""
    text = shop.client.get("/metrics").text
    found = {}
    for family in text_string_to_metric_families(text):
        for s in family.samples:
            found[s.name, ",".join(v for _, v in sorted(s.labels.items()))] = s.value
    return found


def test_metrics(works: Serving) -> None:
    answer = works.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = metrics_of(works)
    assert found["millpond_table_rows", "totals"] == 2
    assert found["millpond_stream_rows_total", "orders"] == 100
    assert found["millpond_query_state", "table:totals,running"] == 1
    assert found["millpond_query_state", "table:totals,failed"] == 0
    assert found["millpond_query_lag_rows", "table:totals"] == 0
    assert found["millpond_table_health", "healthy,totals"] == 1
    assert found["millpond_http_requests_total", "GET /metrics,200"] >= 1
    assert found["millpond_ready", ""] == 1
    assert any(name == "process_resident_memory_bytes" for name, _ in found)


def test_prometheus_takes_the_metrics(works: Serving) -> None:
    """promtool also finds names that are against its conventions."""
    text = works.client.get("/metrics").text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_monitoring_example(works: Serving) -> None:
    """Its rules are right for Prometheus, and what it names is there."""
    for command in (["rules", "alerts.yml"], ["config", "prometheus.yml"]):
        done = subprocess.run(["promtool", "check", *command], cwd=MONITORING, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    there = {name for name, _ in metrics_of(works)}
    # Some have no values in this app.
    there |= {f"{f.name}_total" for f in text_string_to_metric_families(works.client.get("/metrics").text)}
    dashboard: dict[str, Any] = json.loads((MONITORING / "grafana.json").read_text())
    asked = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", ())]
    asked += re.findall(r"expr: (.*)", (MONITORING / "alerts.yml").read_text())
    assert len(asked) > 10
    for text in asked:
        for name in re.findall(r"\b(?:millpond|process)_\w+", text):
            assert name in there, f"{name} in {text}"


def test_holding_a_query(works: Serving) -> None:
    def post(action: str) -> Any:
        return works.client.post(f"/queries/table:totals/{action}")

    assert post("pause").json() == {"query": "table:totals", "state": "paused"}
    works.app.send("orders", {"id": 1, "sku": "a", "qty": 1})
    time.sleep(1.1)  # numbers are kept for a second
    found = {q["name"]: q for q in works.client.get("/queries").json()["queries"]}
    assert found["table:totals"]["state"] == "paused" and found["table:totals"]["lag"] == 1
    ready = works.client.get("/ready")
    assert ready.status_code == 503 and ready.json()["state"] == "degraded"
    again = post("pause")
    assert again.status_code == 400 and "paused" in again.json()["error"]["message"]
    assert post("resume").json()["state"] == "running"
    assert post("explode").status_code == 404
    assert works.client.post("/queries/nothing/pause").status_code == 404
    works.app.drain()
    assert works.client.get("/tables/totals/rows/a").json()["qty"] == 51


def test_a_query_that_fails_is_seen(works: Serving) -> None:
    works.app.send("orders", {"id": 1, "sku": "a", "qty": 0})
    with pytest.raises(Exception, match="zero"):
        works.app.drain()
    time.sleep(1.1)
    node = next(n for n in works.client.get("/graph").json()["nodes"] if n["id"] == "query:risky")
    assert node["state"] == "failed" and "zero" in node["error"]
    assert metrics_of(works)["millpond_query_state", "risky,failed"] == 1
    ready = works.client.get("/ready").json()
    assert ready["state"] == "degraded" and any("zero" in p for p in ready["problems"])


def test_only_an_admin_holds_queries(serve: Serve) -> None:
    shop = serve("CREATE TABLE t (id INT)", tokens={"WRITE": "w" * 20})
    answer = shop.client.post("/queries/x/pause", headers={"Authorization": f"Bearer {'w' * 20}"})
    assert answer.status_code == 403
    assert shop.client.get("/metrics").status_code == 401


def test_secrets_are_not_in_what_is_shown(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "s3cret-value")
    shop = serve(
        "CREATE STREAM s (id INT); CREATE TABLE t AS SELECT id, '${BROKER_PASSWORD}' AS x FROM s"
        " WITH ('primary.key' = 'id')",
        direct=True,
    )
    for path in ("/queries", "/graph", "/stats", "/metrics", "/tables/t"):
        assert "s3cret" not in shop.client.get(path).text
