"""Queries Kafka's brokers outside of Spark: topics, offsets, a sample. Distinguishes failures.

Spark's connector and this client are two programs with one set of settings, named as in Kafka's own documentation
(``kafka.security.protocol``, ``kafka.sasl.jaas.config``, …); what this client needs of them is translated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from millpond.errors import (
    AuthenticationIssue,
    ConfigurationIssue,
    Error,
    NetworkIssue,
    TopicMissing,
    did_you_mean,
)
from millpond.packages import needed

T = TypeVar("T")
TIMEOUT = 10.0
"""Seconds that a broker has to respond."""
_GLANCE = 0.05

_SAME = (
    "security.protocol", "sasl.mechanism", "ssl.endpoint.identification.algorithm", "client.id", "client.rack",
    "ssl.key.password", "ssl.cipher.suites", "sasl.kerberos.service.name",
)  # fmt: skip
_JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_REFUSED = {
    "_AUTHENTICATION",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
_SETTLING = {"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART", "NOT_COORDINATOR",
             "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_LEADER_EPOCH",
             "FENCED_LEADER_EPOCH"}  # fmt: skip
_UNKNOWN = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}
_WRONG = {"_INVALID_ARG", "INVALID_CONFIG", "INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR", "_CONFLICT",
          "POLICY_VIOLATION", "TOPIC_EXCEPTION", "INVALID_REQUEST"}  # fmt: skip

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Sample(NamedTuple):
    key: bytes | None
    value: bytes | None


def client_settings(servers: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Translates the settings of Kafka's own clients for this client."""
    found: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
    for name in _SAME:
        if name in settings:
            found[name] = settings[name]
    login = dict(_JAAS.findall(settings.get("sasl.jaas.config", "")))
    for name, value in login.items():
        found[f"sasl.{name}"] = value.replace('\\"', '"')
    for ours, theirs in (
        ("ssl.truststore.location", "ssl.ca.location"),
        ("ssl.keystore.location", "ssl.certificate.location"),
    ):
        if ours in settings:
            kind = settings.get(ours.replace("location", "type"), "JKS")
            if kind.upper() != "PEM":
                raise ConfigurationIssue(
                    f"kafka.{ours} is a {kind} file, and only PEM can be read here",
                    hint=f"set 'kafka.{ours.replace('location', 'type')}' = 'PEM' and name a PEM file",
                )
            found[theirs] = settings[ours]
    return found


class Brokers:
    """Represents the brokers at one address. Every method may raise one of the four kinds of issue."""

    def __init__(self, servers: str, settings: Mapping[str, str]):
        self.servers = servers
        self.settings = dict(settings)
        self._said: list[Any] = []
        client = needed("confluent_kafka.admin", "topics of Kafka", "kafka").AdminClient
        self._admin = self._asked(
            lambda: client(client_settings(servers, settings) | {"error_cb": self._said.append})
        )

    def topics(self) -> dict[str, list[int]]:
        """Returns the partitions of every topic."""
        found = self._asked(self._metadata).topics
        return {name: sorted(t.partitions) for name, t in found.items() if t.error is None}

    def _metadata(self) -> Any:
        """Returns the metadata, in short tries, so that a refusal is noticed as soon as the client reports it."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                return self._admin.list_topics(timeout=1)
            except KafkaException:
                self._admin.poll(0)
                said = {_name(e) for e in self._said}
                if said & (_REFUSED | {"_ALL_BROKERS_DOWN"}) or time.monotonic() > deadline:
                    raise

    def partitions(self, topic: str) -> list[int]:
        topics = self.topics()
        if topic not in topics:
            raise self.missing(topic, topics)
        return topics[topic]

    def missing(self, topic: str, topics: Mapping[str, Any]) -> TopicMissing:
        others = [t for t in topics if not t.startswith("__")]
        near = did_you_mean(topic, others) or ""
        return TopicMissing(
            f'there is no topic "{topic}" at {self.servers}',
            hint=(f"{near}; " if near else "")
            + f"create it: kafka-topics.sh --bootstrap-server {self.servers} --create --topic {topic}; or let it be "
            "created with 'topic.create.if.missing' = 'true'; or wait for it with 'topic.wait.timeout' = '60s'",
        )

    def topic_id(self, topic: str) -> str:
        """Returns the identity of a topic, which changes if it is created again; brokers before 2.8 have none."""
        from confluent_kafka import TopicCollection

        def ask() -> str:
            future = self._admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT)[topic]
            return str(future.result().topic_id)

        try:
            found = self._asked(ask)
        except TopicMissing:
            raise self.missing(topic, self.topics()) from None
        return "" if found == _NO_ID else found

    def setting(self, topic: str, name: str) -> str | None:
        """Returns a setting of a topic; None if the brokers refuse the request."""
        from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

        resource = ConfigResource(ResourceType.TOPIC, topic)

        def ask() -> str:
            futures = self._admin.describe_configs([resource], request_timeout=TIMEOUT)
            return str(futures[resource].result()[name].value)

        try:
            return self._asked(lambda: settled(ask))
        except AuthenticationIssue:
            return None

    def ends(self, topic: str, partitions: list[int] | None = None) -> dict[int, int]:
        """Returns the offsets after the last committed record of each partition."""
        return self._offsets(topic, "latest", partitions)

    def begins(self, topic: str, partitions: list[int] | None = None) -> dict[int, int]:
        """Returns the first stored record of each partition."""
        return self._offsets(topic, "earliest", partitions)

    def _offsets(self, topic: str, which: str, partitions: list[int] | None) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition, admin

        spec = admin.OffsetSpec  # type: ignore[attr-defined]
        wanted = {
            TopicPartition(topic, p): getattr(spec, which)() for p in partitions or self.partitions(topic)
        }

        def ask() -> dict[int, int]:
            futures = self._admin.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT
            )
            return {tp.partition: f.result().offset for tp, f in futures.items()}

        return self._asked(lambda: settled(ask))

    def create(self, topic: str, partitions: int, replication: int) -> None:
        """Creates a topic; -1 leaves a number to the broker. One that exists by now is accepted.

        The controller responds before every broker knows the topic, so this waits until it is visible.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        def ask() -> None:
            futures = self._admin.create_topics(
                [NewTopic(topic, partitions, replication)], request_timeout=TIMEOUT
            )
            try:
                futures[topic].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        self._asked(ask)
        deadline = time.monotonic() + TIMEOUT
        while not self.topics().get(topic):
            if time.monotonic() > deadline:
                raise NetworkIssue(
                    f'topic "{topic}" was created at {self.servers}, but is not seen there after {TIMEOUT:g} s',
                    hint="are all brokers up?",
                )
            time.sleep(0.05)

    def sample(self, topic: str, most: int, seconds: float = TIMEOUT) -> list[Sample]:
        """Returns up to ``most`` of the earliest committed records."""
        from confluent_kafka import Consumer, TopicPartition

        begins, ends = self.begins(topic), self.ends(topic)
        full = {p for p in ends if ends[p] > begins[p]}
        if not full:
            return []
        settings = client_settings(self.servers, self.settings) | {
            "group.id": "millpond-sample",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "error_cb": self._said.append,
        }

        def ask() -> list[Sample]:
            consumer = Consumer(settings)
            found: list[Sample] = []
            try:
                consumer.assign([TopicPartition(topic, p, begins[p]) for p in full])
                ended: set[int] = set()
                # It waits until it has the requested number, although all partitions have reached their end.
                deadline = time.monotonic() + seconds
                while len(found) < most and len(ended) < len(full) and time.monotonic() < deadline:
                    messages = consumer.consume(most - len(found), timeout=_GLANCE)
                    ended |= {m.partition() or 0 for m in messages if m.error() is not None}
                    found += [Sample(m.key(), m.value()) for m in messages if m.error() is None]
            finally:
                consumer.close()
            return found

        return self._asked(ask)

    def _asked(self, work: Callable[[], T]) -> T:
        """Returns the result of ``work``; translates a failure to one of our errors, with the client's messages."""
        from confluent_kafka import KafkaException

        self._said.clear()
        try:
            return work()
        except KafkaException as error:
            raise issue_of(error, self.servers, self._said) from None
        except (TypeError, ValueError) as error:
            raise ConfigurationIssue(f"a setting of Kafka is wrong: {error}") from None


def settled(ask: Callable[[], T]) -> T:
    """Returns the result of ``ask``; a topic that was just created has no leader at first, a group no coordinator."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return ask()
        except KafkaException as error:
            if _name(error.args[0]) not in _SETTLING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def issue_of(error: Any, servers: str, said: Sequence[Any] = ()) -> Error:
    """Translates a failure of the client to one of our errors; the messages that it ``said`` contain more."""
    error = error.args[0] if isinstance(error, Exception) else error
    for one in (*said, error):
        if _name(one) in _REFUSED:
            return AuthenticationIssue(
                f"the brokers at {servers} refuse the login or the request: {_text(one)}",
                hint="check 'kafka.security.protocol', 'kafka.sasl.mechanism' and 'kafka.sasl.jaas.config', and "
                "what the user may do",
            )
    if _name(error) in _UNKNOWN:
        return TopicMissing(f"the brokers at {servers} know no such topic: {_text(error)}")
    if _name(error) in _WRONG:
        return ConfigurationIssue(
            f"a setting of Kafka is wrong: {_text(error)}", hint="correct the option that is named"
        )
    return NetworkIssue(
        f"no Kafka broker answers at {servers}: {_text(error)}",
        hint="check the address ('bootstrap.servers' or MILLPOND_KAFKA_BROKERS) and that the broker runs",
    )


def _name(error: Any) -> str:
    return str(error.name()) if hasattr(error, "name") else ""


def _text(error: Any) -> str:
    return str(error.str()) if hasattr(error, "str") else str(error)


@cache
def _brokers(servers: str, settings: tuple[tuple[str, str], ...]) -> Brokers:
    return Brokers(servers, dict(settings))


def brokers(servers: str, settings: Mapping[str, str]) -> Brokers:
    """Returns one client for all users of the same brokers."""
    return _brokers(servers, tuple(sorted(settings.items())))
