"""What every sink promises, over every sink there is, in each way of delivery."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from millpond.connectors.sink import sinks
from millpond.testing.contracts import SinkContract, SinkPlace
from millpond.testing.contracts.source import SCHEMA
from tests.servers import Kafka


class KafkaPlace(SinkPlace):
    """A topic of a real broker, of one partition."""

    kind = "kafka"
    broker: Kafka
    refused = pa.table({"id": [1, 2], "name": ["a", "x" * 3_000_000]}, SCHEMA.arrow())

    def __init__(self, delivery: str):
        self.topic = f"contract{uuid.uuid4().hex[:8]}"
        self.broker.create(self.topic)
        self.uri = f"kafka://{self.broker.brokers}/{self.topic}"
        self.values = {"delivery": delivery}

    def written(self) -> list[dict[str, Any]]:
        return [json.loads(value or b"") for _, value in self.broker.consume(self.topic)]


PLACES: dict[str, Callable[[], KafkaPlace]] = {
    "kafka at least once": lambda: KafkaPlace("at-least-once"),
    "kafka exactly once": lambda: KafkaPlace("exactly-once"),
}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow) for name in PLACES])
def place(request: pytest.FixtureRequest) -> Iterator[SinkPlace]:
    KafkaPlace.broker = request.getfixturevalue("servers").kafka
    request.getfixturevalue("spark")
    made = PLACES[request.param]()
    yield made
    made.close()


class TestSinks(SinkContract):
    """The suite that ships, over every sink there is."""


def test_every_sink_has_a_place() -> None:
    assert {name.split()[0] for name in PLACES} == {s.kind for s in sinks()}
