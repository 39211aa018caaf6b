"""Decodes the values of a topic's messages, and finds their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.connectors.kafka.registry import REGISTRY_OPTIONS, Registry
from millpond.errors import InvalidOption
from millpond.formats.avromessages import AvroMessages, schema_text
from millpond.formats.avroschema import parse_avro
from millpond.formats.debezium import Envelopes, discover
from millpond.formats.jsonschema import columns_of
from millpond.formats.keys import KeyTexts
from millpond.formats.merge import settle_schema
from millpond.formats.messages import MESSAGES, Messages
from millpond.options import Option
from millpond.types import Schema

AVRO_SCHEMA = Option(
    "avro.schema", "text", "the Avro schema of values: the path of a file, or the JSON itself"
)
FORMAT_OPTIONS = (
    Option(
        "format",
        "choice",
        "the format of values",
        "json",
        (*MESSAGES, "avro", "debezium"),
        aliases=("cdc.format",),
    ),
    Option(
        "key.format",
        "choice",
        "the format of keys; _key is BINARY for raw, else STRING: for a record a JSON object",
        "text",
        ("text", "raw", "json", "avro"),
    ),
    Option("delimiter", "text", "the separator of values in CSV", ","),
    AVRO_SCHEMA,
    Option("avro.key.schema", "text", "the Avro schema of keys, as in 'avro.schema'"),
    *REGISTRY_OPTIONS,
)
Decoder = Messages | Envelopes


def registry_of(values: Mapping[str, Any], name: str) -> Registry | None:
    """Returns the registry with the schemas of values in the format ``name``."""
    if values["avro.schema"] and name != "avro":
        raise InvalidOption(f"'avro.schema' is for the format avro, and this is {name}")
    if not values["schema.registry.url"]:
        if values["schema.registry.basic.auth.user.info"]:
            raise InvalidOption(
                "'schema.registry.basic.auth.user.info' has no meaning without 'schema.registry.url'"
            )
        return None
    if name not in ("avro", "json"):
        raise InvalidOption(f"'schema.registry.url' is for the formats avro and json, and this is {name}")
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
        self.name: str = values["format"]
        self._values = values
        self._subject = f"{topic}-value"
        self._registry = registry_of(values, self.name)

    def decoder(self, columns: Schema, *, watch: bool) -> Decoder:
        if self.name == "debezium":
            return Envelopes(columns, self._values, watch=watch)
        kind = AvroMessages if self.name == "avro" else MESSAGES[self.name]
        return kind(columns, self._values, watch=watch, schemas=self._registry)

    def columns(self) -> Schema | None:
        """Returns the columns, if no message is needed to find them."""
        if self._registry is not None:
            latest = self._registry.latest(self._subject)
            if latest.kind != self.name.upper():
                raise InvalidOption(
                    f"the schema of \"{self._subject}\" in the registry is {latest.kind}, and 'format' is {self.name}"
                )
            return settle_schema(
                parse_avro(latest.text).columns if self.name == "avro" else columns_of(latest.text)
            )
        if self.name in ("text", "raw"):
            return MESSAGES[self.name].discover([], self._values)
        if self.name == "avro":
            return settle_schema(AvroMessages.discover([], self._values))
        return None

    def discover(self, sample: list[bytes]) -> Schema:
        """Discovers the columns of a sample."""
        if self.name == "debezium":
            return settle_schema(discover(sample))
        return settle_schema(MESSAGES[self.name].discover(sample, self._values))
