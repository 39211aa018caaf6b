"""Sends requests over HTTP: with limits of time and size, only to named hosts, retried if that may help."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from millpond.connectors.http.pool import Pools
from millpond.errors import (
    AccessRefused,
    AddressMissing,
    BadData,
    Closed,
    ConfigurationIssue,
    ConnectionLost,
    Error,
    InvalidOption,
    SourceError,
)
from millpond.options import Option
from millpond.retry import Issues, Patience

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

CHUNK = 1 << 16
MOST_DRAINED = 1 << 20
"""Bytes of a response to rows that are read so that its connection can be used again."""
MOST_REDIRECTS = 10
SAID = 200
"""Characters of a response that an error quotes."""
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = (301, 302, 303, 307, 308)
_PASSING = (408, 425, 429, 500, 502, 503, 504)
"""Responses after which the same request may succeed."""
_TAGS = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)

_OF_ROWS = (400, 409, 413, 422)
"""Responses that refuse what was sent for good: other rows may be accepted."""

REQUEST_OPTIONS = (
    Option(
        "bearer.token", "secret", "sent as Authorization: Bearer …; take it from the environment: ${NAME}"
    ),
    Option("header.*", "secret", "a header of each request, such as header.X-Api-Key"),
    Option("connect.timeout", "duration", "the time to open a connection", 10.0),
    Option("read.timeout", "duration", "the time to wait for data from the server", 30.0),
    Option("request.timeout", "duration", "the time limit for one request", 300.0),
    Option("retry.timeout", "duration", "how long a request is retried after a temporary failure", 10.0),
    Option("ssl.ca", "text", "a file with trusted certificates, in place of those of the system"),
)
CLIENT_OPTIONS = (
    *REQUEST_OPTIONS,
    Option("redirect.hosts", "text", "other hosts that redirects and links may lead to: a.org, b.org:8080"),
    Option("max.size", "size", "the maximum number of bytes of all pages, uncompressed", 100 << 20),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Describes a response whose body has been written, possibly compressed; ``url`` is the final address. A 304 is
    ``unchanged``.
    """

    url: str
    headers: Mapping[str, str]
    size: int
    unchanged: bool = False

    @property
    def etag(self) -> str | None:
        return self.headers.get("etag")

    @property
    def modified(self) -> str | None:
        return self.headers.get("last-modified")


class Client:
    """Sends requests to one host, and to those that it may redirect to. Secrets go to the one host only."""

    def __init__(self, url: str, values: Mapping[str, Any], issues: Issues):
        self._values = values
        self._issues = issues
        self._hosts = {
            h.strip().lower() for h in (values.get("redirect.hosts") or "").split(",") if h.strip()
        }
        self._own_thread = threading.local()
        self._own = {name[7:]: value for name, value in values.items() if name.startswith("header.")}
        parts = urlsplit(url)
        login, _, host = parts.netloc.rpartition("@")
        if not host:
            raise InvalidOption(f'"{url}" names no host', hint="https://host/path")
        self.url = urlunsplit(parts._replace(netloc=host, fragment=""))
        if values["bearer.token"]:
            self._own["Authorization"] = f"Bearer {values['bearer.token']}"
        elif login:
            coded = base64.b64encode(unquote(login).encode()).decode()
            self._own.setdefault("Authorization", f"Basic {coded}")

    def get(self, url: str, headers: Mapping[str, str], body: IO[bytes], most: int) -> Answer:
        """Returns the response, its body of at most ``most`` bytes written to ``body``."""
        stop: threading.Event | None = getattr(self._own_thread, "stop", None)

        def ask() -> Answer:
            if stop is not None and stop.is_set():
                raise Closed(f'"{url}" is not asked any more')
            return self._ask(url, headers, body, most)

        return self._patience.wait_for(ask, issues=self._issues, sleep=stop.wait if stop else time.sleep)

    @property
    def _patience(self) -> Patience:
        return Patience(self._values["retry.timeout"], 0.5, "exponential", 2.0, 10.0)

    def send(self, method: str, headers: Mapping[str, str], body: bytes, *, keyed: bool = False) -> None:
        """Sends a body to the address. Raises BadData if the server refuses it for good. If it is ``keyed``, 409 says
        that the server is still busy with the same request.
        """

        def ask() -> None:
            deadline = time.monotonic() + self._values["request.timeout"]
            response = self._open(self.url, headers, deadline, method, body)
            drained = False
            try:
                if 200 <= response.status < 300:
                    drained = _drain(response, deadline)
                    return
                found = {name.lower(): value for name, value in response.headers.items()}
                if response.status in _REDIRECTS and "location" in found:
                    raise ConfigurationIssue(
                        f'"{self.url}" redirects to "{joined(self.url, found["location"])}"',
                        hint="name the final address",
                    )
                raise self._refused(self.url, response, found, sent=True, keyed=keyed)
            finally:
                response.release_conn() if drained else response.close()

        self._patience.wait_for(ask, issues=self._issues)

    def end_with(self, stop: threading.Event) -> None:
        """Cancels requests of this thread when the event is set."""
        self._own_thread.stop = stop
        self._pools.end_with(stop)

    def close(self) -> None:
        self._pools.close()

    def check_allowed(self, url: str, came_from: str) -> None:
        """Raises if a response redirects to a forbidden address."""
        if not _is_address(url):
            raise SourceError(f'"{came_from}" leads to "{url}", which is no HTTP address')
        parts, before = urlsplit(url), urlsplit(came_from)
        if before.scheme == "https" and parts.scheme == "http":
            raise SourceError(f'"{came_from}" leads to "{url}": from https to http, which is not followed')
        if not self._is_own(url) and not ({_host(url), parts.hostname} & self._hosts):
            raise SourceError(
                f'"{came_from}" leads to another host, {_host(url)}',
                hint=f"if that is right: WITH ('redirect.hosts' = '{_host(url)}')",
            )

    def _is_own(self, url: str) -> bool:
        """Returns whether an address is of the named host, or the same over TLS."""
        there, own = urlsplit(url), urlsplit(self.url)
        upgraded = (_port(own), _port(there)) == (80, 443) and there.scheme == "https"
        return there.hostname == own.hostname and (_port(there) == _port(own) or upgraded)

    def _ask(self, url: str, headers: Mapping[str, str], body: IO[bytes], most: int) -> Answer:
        deadline = time.monotonic() + self._values["request.timeout"]
        for _ in range(MOST_REDIRECTS + 1):
            response = self._open(url, headers, deadline)
            try:
                target = response.headers.get("location") if response.status in _REDIRECTS else None
                if target is None:
                    return self._take(url, response, body, most, deadline)
            finally:
                response.close()
            target = joined(url, target)
            self.check_allowed(target, url)
            url = target
        raise SourceError(
            f'"{self.url}" redirects without end, at last to "{url}"', hint="check the address with a browser"
        )

    def _open(
        self,
        url: str,
        headers: Mapping[str, str],
        deadline: float,
        method: str = "GET",
        body: bytes | None = None,
    ) -> BaseHTTPResponse:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        left = max(deadline - time.monotonic(), 0.001)
        timeout = Timeout(
            connect=min(self._values["connect.timeout"], left), read=min(self._values["read.timeout"], left)
        )
        sent = {"User-Agent": "millpond", "Accept-Encoding": "gzip", **headers}
        if self._is_own(url):
            sent |= self._own
        try:
            return self._pools.pool(url).request(
                method,
                url,
                body=body,
                headers=sent,
                timeout=timeout,
                preload_content=False,
                redirect=False,
                retries=False,
            )
        except (HTTPError, OSError) as error:
            raise self._failed(url, error) from None
        except (ValueError, UnicodeError):
            raise InvalidOption(f'a header of the request to "{url}" cannot be sent') from None

    def _take(
        self, url: str, response: BaseHTTPResponse, body: IO[bytes], most: int, deadline: float
    ) -> Answer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.status == HTTPStatus.NOT_MODIFIED:
            return Answer(url, headers, 0, unchanged=True)
        if not 200 <= response.status < 300:
            raise self._refused(url, response, headers)
        size = self._write(url, response, body, most, deadline)
        return Answer(url, headers, size)

    def _write(
        self, url: str, response: BaseHTTPResponse, body: IO[bytes], most: int, deadline: float
    ) -> int:
        from urllib3.exceptions import HTTPError

        body.seek(0)
        body.truncate()
        size = 0
        try:
            while chunk := response.read1(CHUNK, decode_content=False):
                size += len(chunk)
                if size > most:
                    raise too_large(url, self._values["max.size"])
                if time.monotonic() > deadline:
                    raise ConnectionLost(
                        f'"{url}" has not ended after {self._values["request.timeout"]:g} s and {size} bytes',
                        hint="give it more time with 'request.timeout'",
                    )
                body.write(chunk)
        except (HTTPError, OSError) as error:
            raise self._failed(url, error) from None
        return size

    @property
    def _pools(self) -> Pools:
        if not hasattr(self._own_thread, "pools"):
            self._own_thread.pools = Pools(self._values["ssl.ca"])
        pools: Pools = self._own_thread.pools
        return pools

    def _failed(self, url: str, error: Exception) -> Error:
        reason = str(error).rpartition(": ")[2] or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return ConfigurationIssue(
                f'the certificate of "{_host(url)}" is not trusted: {reason}',
                hint="name the file of its authority: WITH ('ssl.ca' = '/path/ca.pem')",
            )
        return ConnectionLost(f'"{url}" does not answer: {reason}', hint="check the address and the network")

    def _refused(
        self,
        url: str,
        response: BaseHTTPResponse,
        headers: Mapping[str, str],
        *,
        sent: bool = False,
        keyed: bool = False,
    ) -> Error:
        """Returns the error for a response; ``sent`` says that the request had rows, which it may be about."""
        status = response.status
        said = self._said(response)
        what = f'"{url}" answers {status} {response.reason or ""}'.rstrip() + (f": {said}" if said else "")
        busy = keyed and status == HTTPStatus.CONFLICT
        if sent and status in _OF_ROWS and not busy:
            return BadData(what)
        if status in (401, 403, 407):
            return AccessRefused(what, hint="check 'bearer.token', 'header.…' and what the login may do")
        if status in (404, 410):
            return AddressMissing(what, hint="check the address")
        if status in _PASSING or busy:
            lost = ConnectionLost(what, hint="try again later, or for longer with 'retry.timeout'")
            lost.after = retry_after(headers.get("retry-after"), time.time())
            return lost
        if 400 <= status < 500:
            return ConfigurationIssue(what, hint="check the address and the options of the request")
        return SourceError(what)

    def _said(self, response: BaseHTTPResponse) -> str:
        """Returns the beginning of an error's body as one line, without tags and secrets."""
        from urllib3.exceptions import HTTPError

        try:
            text = response.read1(4096, decode_content=True).decode(errors="replace")
        except (HTTPError, OSError):
            return ""
        for secret in self._own.values():
            for part in (secret, secret.partition(" ")[2]):
                text = text.replace(part, "***") if len(part) > 3 else text
        line = " ".join(_TAGS.sub(" ", text).split())
        return line if len(line) <= SAID else line[:SAID] + "…"


def _drain(response: BaseHTTPResponse, deadline: float) -> bool:
    """Reads what is left of a response; returns whether it ended in time, so that its connection can be used again."""
    from urllib3.exceptions import HTTPError

    left = MOST_DRAINED
    try:
        while chunk := response.read1(CHUNK, decode_content=False):
            left -= len(chunk)
            if left < 0 or time.monotonic() > deadline:
                return False
    except (HTTPError, OSError):
        return False
    return True


def joined(url: str, target: str) -> str:
    """Returns the address that a link in the response of another one means; the link itself if it is invalid."""
    try:
        return urljoin(url, target)
    except ValueError:
        return target


def too_large(url: str, most: int) -> BadData:
    return BadData(
        f'the answer of "{url}" is larger than {most} bytes', hint="allow more with 'max.size' = '1GB'"
    )


def retry_after(text: str | None, now: float) -> float:
    """Returns the seconds that a Retry-After header requests: a number, or a date."""
    if text is None:
        return 0.0
    if text.strip().isdigit():
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - now, 0.0)
    except (TypeError, ValueError):
        return 0.0


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _port(parts: Any) -> int | None:
    return parts.port or _PORTS.get(parts.scheme)


def _host(url: str) -> str:
    """Returns host and port; the port of the scheme is left out."""
    parts = urlsplit(url)
    port = parts.port
    return f"{parts.hostname}:{port}" if port and port != _PORTS.get(parts.scheme) else f"{parts.hostname}"
