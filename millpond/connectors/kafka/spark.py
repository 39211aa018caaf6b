"""Declares the jars with which Spark reads and writes Kafka, and explains the errors of its connector."""

from __future__ import annotations

import re
from collections.abc import Mapping

from millpond.connectors.spark import SparkFormat
from millpond.errors import AuthenticationIssue, ConfigurationIssue, Error, NetworkIssue, TopicMissing

_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
_ERROR = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+): ([^\n]*)")


def _explain(text: str) -> Error | None:
    if "org.apache.kafka.common.errors" not in text and "KafkaException" not in text:
        return None
    found = _ERROR.search(text)
    name, said = (found[1], found[2].strip()) if found else ("", text.strip().splitlines()[0])
    if "Auth" in name:
        return AuthenticationIssue(f"the Kafka brokers refuse the login or the request: {said}")
    if name == "UnknownTopicOrPartitionException":
        return TopicMissing(f"a topic is not there any more: {said}")
    if "Config" in name or name in ("RecordTooLargeException", "InvalidTopicException"):
        return ConfigurationIssue(f"Kafka refuses the request: {said}")
    return NetworkIssue(f"Kafka does not answer: {said}")


def reading_settings(servers: str, client: Mapping[str, str]) -> dict[str, str]:
    """Returns Spark's options to read from brokers, with these settings of the client."""
    return {f"kafka.{k}": v for k, v in client.items()} | {
        "kafka.bootstrap.servers": servers,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "failOnDataLoss": "false",
    }


FORMAT = SparkFormat(
    "kafka",
    _PACKAGE,
    (
        _PACKAGE,
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
    _explain,
)
