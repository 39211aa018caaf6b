"""Reads the URI and the options of a topic."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from millpond.connectors.kafka.formats import FORMAT_OPTIONS
from millpond.errors import InvalidOption
from millpond.options import Option
from millpond.retry import Patience

SOURCE_OPTIONS: tuple[Option, ...] = (
    *FORMAT_OPTIONS,
    Option(
        "bootstrap.servers",
        "text",
        "the brokers, host:port, separated by commas, if the URI has none; the default is "
        "MILLPOND_KAFKA_BROKERS, then localhost:9092",
    ),
    Option(
        "auto.offset.reset",
        "text",
        "where a new query starts: earliest, or latest for messages that arrive after its start",
        "earliest",
    ),
    Option(
        "topic.wait.timeout",
        "duration",
        "how long to wait for a missing topic or an unreachable broker",
        0.0,
    ),
    Option("topic.retry.interval", "duration", "the first pause between retries (2s)"),
    Option(
        "topic.retry.strategy",
        "choice",
        "how the pauses grow (exponential)",
        None,
        ("exponential", "linear", "fixed"),
    ),
    Option("topic.retry.multiplier", "text", "the factor of exponential pauses (1.5)"),
    Option("topic.retry.max.delay", "duration", "the longest pause (120s)"),
    Option("topic.create.if.missing", "bool", "whether a missing topic is created", False),
    Option(
        "topic.partitions",
        "int",
        "the number of partitions of a created topic; by default the broker decides",
    ),
    Option(
        "topic.replication",
        "int",
        "the number of replicas of a created topic; by default the broker decides",
    ),
    Option(
        "topic.recreated",
        "choice",
        "what happens to a query whose topic was deleted and created again: it fails, or reads "
        "the new topic as 'auto.offset.reset' says",
        "fail",
        ("fail", "restart"),
    ),
    Option("kafka.*", "secret", "any setting of the Kafka client, such as 'kafka.security.protocol'"),
)


def parts_of(uri: str) -> tuple[str | None, str, list[tuple[str, str]]]:
    """Returns brokers, topic and options of a URI."""
    rest, _, query = uri.partition("://")[2].partition("?")
    hosts, slash, topic = rest.partition("/")
    if not slash:
        hosts, topic = "", hosts
    topic = topic.strip("/")
    if not topic:
        raise InvalidOption(f'"{uri}" names no topic', hint="kafka://topic or kafka://host:9092/topic")
    return hosts or None, topic, [(k, v.strip("\"'")) for k, v in parse_qsl(query, keep_blank_values=True)]


def patience_of(values: Mapping[str, Any]) -> Patience:
    """Returns how long to wait for a missing topic, and with which pauses."""
    return Patience(
        values["topic.wait.timeout"],
        number(values["topic.retry.interval"], "MILLPOND_RETRY_INTERVAL_SECS", 2.0),
        values["topic.retry.strategy"] or _strategy(),
        number(values["topic.retry.multiplier"], "MILLPOND_RETRY_MULTIPLIER", 1.5),
        number(values["topic.retry.max.delay"], "MILLPOND_RETRY_MAX_DELAY_SECS", 120.0),
    )


def default_of(name: str) -> Any:
    return next((o.default for o in SOURCE_OPTIONS if o.name == name), None)


def number(value: Any, variable: str, default: float) -> float:
    """Returns an option, else a variable of the environment, else the default."""
    text = value if value is not None else os.environ.get(variable)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise InvalidOption(
            f'"{text}" is not a number', hint=f"the option, or the variable {variable}"
        ) from None


def _strategy() -> Any:
    text = os.environ.get("MILLPOND_RETRY_STRATEGY", "exponential").strip().lower()
    if text not in ("exponential", "linear", "fixed"):
        raise InvalidOption(
            f'MILLPOND_RETRY_STRATEGY cannot be "{text}"', hint="it is exponential, linear or fixed"
        )
    return text
