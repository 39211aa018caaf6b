"""Implements ``millpond demo --kafka``: trades come from a topic, and enriched ones go to another."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

from millpond.cli.demo_trades import PIECE, make_trades
from millpond.cli.error_report import say
from millpond.cli.output import Format, Printer
from millpond.cli.progress import Loading
from millpond.packages import needed

TRADES, ENRICHED = "pnl-trades", "pnl-enriched"


def run(example: Path, brokers: str, count: int) -> None:
    """Runs the app of a topic, sends trades to it, and shows the results."""
    os.environ["MILLPOND_KAFKA_BROKERS"] = brokers
    from millpond.app.app import App

    loading = Loading()
    with App(example / "kafka.sql", _on_progress=loading.report, _on_status=loading.status) as app:
        loading.close()
        app.drain(math.inf)
        say(f'the trades come from the topic "{TRADES}" at {brokers}')
        began = time.monotonic()
        for start in range(0, count, PIECE):
            _produce(brokers, make_trades(1_000 + start, min(PIECE, count - start)))
        sent = time.monotonic()
        app.drain(math.inf)
        took = time.monotonic() - began
        say(
            f"{count:,} trades written to the topic in {sent - began:.1f} s, read, joined with three tables and in"
            f" two tables and another topic after {took:.1f} s: {count / took:,.0f} trades/s"
        )
        print("\nprofit by trader\n")
        printer = Printer(Format.table)
        printer.answer(app.sql("SELECT * FROM by_trader ORDER BY profit DESC").to_arrow())
        print(f'the first messages of the topic "{ENRICHED}"\n')
        for text in _first(brokers):
            print(f"  {text}")
        print(f"\n  … {_size(brokers):,} in all\n", flush=True)


def next_steps(file: str, data: str) -> list[tuple[str, str]]:
    return [
        ("make kafka", "starts a broker on localhost:9092, until Ctrl-C"),
        (f"{data}millpond run {file}", "runs the same app on it, from another terminal"),
        ('millpond query "SELECT * FROM by_trader"', "queries it, from a third"),
        (f"{data}millpond explain {file}", "shows how each statement runs, and what the sink guarantees"),
    ]


def _produce(brokers: str, trades: list[dict[str, object]]) -> None:
    producer = needed("confluent_kafka", "topics of Kafka", "kafka").Producer(
        {"bootstrap.servers": brokers, "linger.ms": 5}
    )
    for trade in trades:
        producer.produce(TRADES, json.dumps(trade, default=str), str(trade["symbol"]))
        producer.poll(0)
    producer.flush(60)


def _first(brokers: str) -> list[str]:
    from millpond.connectors.kafka.client import brokers as at

    return [(s.value or b"").decode() for s in at(brokers, {}).sample(ENRICHED, 3)]


def _size(brokers: str) -> int:
    from millpond.connectors.kafka.client import brokers as at

    return sum(at(brokers, {}).ends(ENRICHED).values())
