from __future__ import annotations

import pytest

from millpond.sql.parse import parse
from millpond.sql.statements import Insert, Select
from millpond.sql.text import pieces
from millpond.sql.uris import end_of_uri, is_uri, mask_uris


def uris(text: str) -> list[str]:
    return [text[p.start : p.end] for p in pieces(text) if p.kind == "uri"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT * FROM kafka://orders", ["kafka://orders"]),
        ("SELECT * FROM kafka://orders o, x", ["kafka://orders"]),
        ("FROM kafka://a,b", ["kafka://a"]),
        ("FROM kafka://a:9092,b:9092/topic t", ["kafka://a:9092,b:9092/topic"]),
        ("FROM kafka://a:9092,b.c-d:9093,e:1/topic, other", ["kafka://a:9092,b.c-d:9093,e:1/topic"]),
        ("FROM file:///logs/*.json;", ["file:///logs/*.json"]),
        ("FROM file:///logs/{a,b}.csv, t", ["file:///logs/{a,b}.csv"]),
        ("FROM file:///logs/[a-c]*.csv", ["file:///logs/[a-c]*.csv"]),
        ("(SELECT * FROM kafka://orders)", ["kafka://orders"]),
        ("FROM file:///a(1).csv)", ["file:///a(1).csv"]),
        (
            'FROM postgresql://h/db?query="SELECT a, b FROM x" p',
            ['postgresql://h/db?query="SELECT a, b FROM x"'],
        ),
        ("FROM sql://sqlite:////x.db?query='SELECT 1';", ["sql://sqlite:////x.db?query='SELECT 1'"]),
        ("FROM kafka://my--topic x", ["kafka://my--topic"]),
        ("FROM s3a+x.y://bucket/key", ["s3a+x.y://bucket/key"]),
        ("FROM kafka://a JOIN kafka://b", ["kafka://a", "kafka://b"]),
        ("SELECT 'kafka://a' -- kafka://b\n/* kafka://c */ \"kafka://d\" `kafka://e`", []),
        ("FROM postgres://u:${PW:-a b}@h/db x", ["postgres://u:${PW:-a b}@h/db"]),
    ],
)
def test_uris_are_found_and_end_where_they_should(text: str, found: list[str]) -> None:
    assert uris(text) == found


def test_mask_keeps_the_length() -> None:
    text = "FROM kafka://a x, file:///b/*.json;"
    spans = [(p.start, p.end) for p in pieces(text) if p.kind == "uri"]
    masked = mask_uris(text, spans)
    assert len(masked) == len(text)
    assert "://" not in masked
    assert masked.endswith("`;")


def test_end_of_uri_and_is_uri() -> None:
    assert end_of_uri("kafka://a b", 0) == len("kafka://a")
    assert is_uri("file:///x y")
    assert not is_uri("orders")


@pytest.mark.parametrize(
    ("source", "uri"),
    [
        ("kafka://orders", "kafka://orders"),
        ("'kafka://orders'", "kafka://orders"),
        ('"file:///my file.csv"', "file:///my file.csv"),
        ("`kafka://orders`", "kafka://orders"),
        ("kafka_topic('orders')", "kafka://orders"),
        ('KAFKA_TOPIC("orders")', "kafka://orders"),
    ],
)
def test_sources_and_sinks(source: str, uri: str) -> None:
    (select,) = parse(f"SELECT * FROM {source} AS o").require()
    assert isinstance(select, Select)
    table = select.query.expression.args["from_"].this
    assert (table.name, table.meta["uri"], table.alias) == (uri, True, "o")
    (insert,) = parse(f"INSERT INTO {source} SELECT 1").require()
    assert isinstance(insert, Insert)
    assert (insert.target, insert.target_is_uri) == (uri, True)


def test_offsets_behind_a_uri_stay_exact() -> None:
    (error,) = parse("SELECT * FROM file:///logs/*.json o WHERE a = = 1").errors
    assert error.column == len("SELECT * FROM file:///logs/*.json o WHERE a = ") + 1


def test_a_uri_is_only_a_source_or_sink() -> None:
    (error,) = parse("SELECT kafka://x FROM t").errors
    assert "URI" in error.message
    assert (error.line, error.column) == (1, 8)
