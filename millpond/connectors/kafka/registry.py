"""Uses a schema registry over HTTP, by the routes of Confluent's."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from millpond.errors import AuthenticationIssue, BadData, NetworkIssue, SourceError, without_passwords
from millpond.formats.wire import Described
from millpond.options import Option

if TYPE_CHECKING:
    from urllib.error import HTTPError

TIMEOUT = 10.0
"""Seconds that the registry has to respond."""
_TYPE = "application/vnd.schemaregistry.v1+json"

REGISTRY_OPTIONS = (
    Option(
        "schema.registry.url",
        "text",
        "the schema registry, for avro and json: each message contains the id of its schema",
    ),
    Option(
        "schema.registry.basic.auth.user.info",
        "secret",
        "the login for the schema registry: user:password",
    ),
)


class SubjectMissing(SourceError):
    """Reports that the registry has no schema of a topic yet."""

    code = "subject_missing"
    retryable = True


class Registry:
    """Represents a registry. Caches schemas by number: a number always means the same one. Picklable."""

    def __init__(self, values: Mapping[str, Any]):
        parts = urlsplit(str(values["schema.registry.url"]))
        host = parts.netloc.rpartition("@")
        login = values.get("schema.registry.basic.auth.user.info") or unquote(host[0])
        self.url = urlunsplit((parts.scheme, host[2], parts.path.rstrip("/"), "", ""))
        self._login = base64.b64encode(login.encode()).decode() if login else ""
        self._known: dict[int, Described] = {}

    def schema(self, number: int) -> Described:
        """Returns a schema by number. Raises BadData if there is none."""
        if number not in self._known:
            found = self._ask("GET", f"/schemas/ids/{number}")
            if found is None:
                raise BadData(f"the registry of schemas at {self.url} has no schema {number}")
            self._known[number] = self._described(number, found)
        return self._known[number]

    def latest(self, subject: str) -> Described:
        """Returns the newest schema of a subject. Raises SubjectMissing."""
        found = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        if found is None:
            raise SubjectMissing(
                f'the registry of schemas at {self.url} has no subject "{subject}"',
                hint="declare the columns, or wait for it with 'topic.wait.timeout' = '60s'",
            )
        number = int(found["id"])
        self._known[number] = self._described(number, found)
        return self._known[number]

    def register(self, subject: str, kind: str, text: str) -> int:
        """Registers a schema with the subject, and returns its number."""
        found = self._ask(
            "POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": text, "schemaType": kind}
        )
        if found is None:
            raise SourceError(f"{self.url} is no registry of schemas", hint="check 'schema.registry.url'")
        return int(found["id"])

    def _described(self, number: int, found: Mapping[str, Any]) -> Described:
        """Returns the schema with those that it refers to. Raises BadData if one is missing."""
        others: dict[tuple[str, int], tuple[str, str] | None] = {}
        self._follow(found, others, f"schema {number}")
        references = tuple(other for other in others.values() if other is not None)
        return Described(number, str(found.get("schemaType") or "AVRO"), str(found["schema"]), references)

    def _follow(
        self, found: Mapping[str, Any], others: dict[tuple[str, int], tuple[str, str] | None], of: str
    ) -> None:
        """Adds what a schema refers to, each version of a subject once, and what one refers to before itself."""
        for reference in found.get("references") or ():
            subject, version = str(reference["subject"]), int(reference["version"])
            if (subject, version) in others:
                continue
            others[subject, version] = None  # a circle ends here
            other = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if other is None:
                raise BadData(
                    f'{of} refers to version {version} of "{subject}", which the registry of schemas at {self.url}'
                    " does not have"
                )
            self._follow(other, others, of)
            del others[subject, version]
            others[subject, version] = str(reference["name"]), str(other["schema"])

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Returns the response; None if what was requested does not exist."""
        from urllib.error import HTTPError  # not imported without a registry: a start must be fast
        from urllib.request import Request, urlopen

        headers = {"Accept": _TYPE} | ({"Content-Type": _TYPE} if body is not None else {})
        if self._login:
            headers["Authorization"] = f"Basic {self._login}"
        data = json.dumps(body).encode() if body is not None else None
        request = Request(self.url + path, data, headers, method=method)
        try:
            with urlopen(request, timeout=TIMEOUT) as answer:
                found = json.load(answer)
        except HTTPError as error:
            if error.code == 404:
                return None
            said = _said(error)
            if error.code in (401, 403):
                raise AuthenticationIssue(
                    f"the registry of schemas at {self.url} refuses the login: {said}",
                    hint="check 'schema.registry.basic.auth.user.info', and what the user may do",
                ) from None
            if error.code in (409, 422):
                raise SourceError(
                    f"the registry of schemas at {self.url} refuses the schema: {said}"
                ) from None
            raise NetworkIssue(
                f"the registry of schemas at {self.url} answers {error.code}: {said}"
            ) from None
        except (OSError, ValueError) as error:
            raise NetworkIssue(
                f"the registry of schemas at {self.url} does not answer: {without_passwords(str(error))}",
                hint="check 'schema.registry.url'",
            ) from None
        if not isinstance(found, dict):
            raise SourceError(f"{self.url} is no registry of schemas", hint="check 'schema.registry.url'")
        return found


def _said(error: HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return str(error.reason)
