"""Declares the options for the formats of topics, chooses the decoder, and finds the columns of messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from millpond.connectors.kafka.registry import REGISTRY_OPTIONS, Registry
from millpond.errors import InvalidOption
from millpond.extensions import offered
from millpond.formats.keys import KeyTexts
from millpond.formats.merge import settle_schema
from millpond.formats.messages.avro import schema_text
from millpond.formats.messages.base import Messages, find_messages, message_formats
from millpond.options import Option
from millpond.types import Schema

FORMAT_OPTIONS = (
    Option(
        "format",
        "choice",
        "the format of values",
        "json",
        tuple(m.name for m in message_formats()),
        aliases=("cdc.format",),
        others=partial(offered, "message"),
    ),
    Option(
        "key.format",
        "choice",
        "the format of keys; _key is BINARY for raw, else STRING: for a record a JSON object",
        "text",
        ("text", "raw", "json", "avro"),
    ),
    *(option for m in message_formats() for option in m.options),
    Option("avro.key.schema", "text", "the Avro schema of keys, as in 'avro.schema'"),
    *REGISTRY_OPTIONS,
)
WRITING_OPTIONS = (
    Option(
        "format",
        "choice",
        "the format of values",
        "json",
        tuple(m.name for m in message_formats() if m.writer),
        others=partial(offered, "message"),
    ),
    Option(
        "key.format",
        "choice",
        "the format of keys. text: the value of _key as text, or its bytes. avro: the value; a STRUCT is a record",
        "text",
        ("text", "avro"),
    ),
    *(option for m in message_formats() if m.writer for option in m.options),
    Option("avro.key.schema", "text", "the Avro schema of keys, as in 'avro.schema'"),
    *REGISTRY_OPTIONS,
)


def registry_of(values: Mapping[str, Any], kind: type[Messages]) -> Registry | None:
    """Returns the registry with the schemas of values in a format."""
    for other in message_formats():
        for option in other.options if other is not kind else ():
            if option.default is None and values.get(option.name):
                raise InvalidOption(
                    f"'{option.name}' is for the format {other.name}, and this is {kind.name}"
                )
    if not values["schema.registry.url"]:
        if values["schema.registry.basic.auth.user.info"]:
            raise InvalidOption(
                "'schema.registry.basic.auth.user.info' has no meaning without 'schema.registry.url'"
            )
        return None
    if kind.registered is None:
        able = " and ".join(m.name for m in message_formats() if m.registered)
        raise InvalidOption(f"'schema.registry.url' is for the formats {able}, and this is {kind.name}")
    return Registry(values)


def key_texts(values: Mapping[str, Any]) -> KeyTexts | None:
    """Returns the decoder of keys that have their own format; None for those that are used as they are."""
    name, given = values["key.format"], values["avro.key.schema"]
    url = values["schema.registry.url"]
    if given and (name != "avro" or url):
        raise InvalidOption("'avro.key.schema' is for 'key.format' = 'avro' without a registry of schemas")
    if name not in ("json", "avro"):
        return None
    if name == "avro" and not given and not url:
        raise InvalidOption(
            "keys in avro need a schema",
            hint="'avro.key.schema' = '/path/of/key.avsc', or 'schema.registry.url'",
        )
    return KeyTexts(name, Registry(values) if url else None, schema_text(values, "avro.key.schema"))


class ValueFormat:
    """Represents the format of a topic's values, by the options of the source. Picklable."""

    def __init__(self, topic: str, values: Mapping[str, Any]):
        self.kind = find_messages(values["format"])
        self._values = values
        self._subject = f"{topic}-value"
        self._registry = registry_of(values, self.kind)

    def decoder(self, columns: Schema, *, watch: bool) -> Messages:
        return self.kind(columns, self._values, watch=watch, schemas=self._registry)

    def columns(self) -> Schema | None:
        """Returns the columns, if no message is needed to find them."""
        if self._registry is not None:
            latest = self._registry.latest(self._subject)
            if latest.kind != self.kind.registered:
                raise InvalidOption(
                    f"the schema of \"{self._subject}\" in the registry is {latest.kind}, and 'format' is"
                    f" {self.kind.name}"
                )
            return settle_schema(self.kind.columns_of(latest))
        known = self.kind.columns(self._values)
        return None if known is None else settle_schema(known)

    def discover(self, sample: list[bytes]) -> Schema:
        """Discovers the columns of a sample."""
        return settle_schema(self.kind.discover(sample, self._values))


def why_keyed(keys: list[bytes | None]) -> str | None:
    """Returns why messages with these keys, the first of a topic, identify rows by them."""
    return f"its first {len(keys):,} messages have keys" if keys and None not in keys else None
