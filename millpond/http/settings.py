"""Declares the settings of the server with their defaults: where it listens, who may do what, and how much."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

from millpond.errors import InvalidOption, UnknownName, did_you_mean
from millpond.sql.limits import CLIENTS, TextLimits
from millpond.sql.uris import TOPICS

DEFAULT_PORT = 8080


class Role(IntEnum):
    """Names what a client may do; each role may also do what the ones before it may."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


TOKENS = {
    "MILLPOND_TOKEN_READ": Role.READ,
    "MILLPOND_TOKEN_WRITE": Role.WRITE,
    "MILLPOND_TOKEN_ADMIN": Role.ADMIN,
}
"""The environment variables that contain the token of a role."""
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits what one client, and all of them, may use."""

    body: int = 16 * 1024 * 1024
    """Bytes of a request's body."""
    statement_body: int = 2 * 1024 * 1024
    """Bytes of a body with statements and their parameters."""
    length: int = CLIENTS.length
    """Characters of a text of statements."""
    statements: int = CLIENTS.statements
    """Statements of a text."""
    words: int = CLIENTS.words
    """Words, numbers, texts and signs of a statement."""
    depth: int = CLIENTS.depth
    """Levels of an expression: brackets, calls, chained operators. AND and OR do not count."""
    inputs: int = CLIENTS.inputs
    """Tables and subqueries that a statement reads."""
    values: int = 25_000
    """Values of all parameters, those in lists included."""
    connections: int = 2_000
    """Open connections; never so many that the process has fewer than 256 open files left."""
    head: int = 64 * 1024
    """Bytes of the head of a request: its path and headers."""
    head_seconds: float = 30.0
    """Until the head of a request has arrived."""
    url: int = 16 * 1024
    """Bytes of a path with its query."""
    body_seconds: float = 30.0
    """Until a body has arrived."""
    seconds: float = 30.0
    """Until a statement or query has finished."""
    threads: int = 8
    """Statements and queries that start in parallel; the next one starts when one has finished, or after 0.25 s."""
    waiting: int = 64
    """Requests that run or wait; further ones are refused with 503."""
    answer_seconds: float = 600.0
    """How long a client may read nothing of a response that waits for it."""
    answer_rows: int = 1_000_000
    """Rows of a response."""
    answer_bytes: int = 256 * 1024 * 1024
    """Bytes of a response, as Arrow."""
    followers: int = 1_000
    """Clients that follow changes."""
    follower_bytes: int = 4 * 1024 * 1024
    """Bytes of events that wait for a slow client; with more it is disconnected."""
    page: int = 1_000
    """Rows of a page by default."""
    largest_page: int = 100_000
    """Maximum rows of a page."""
    first_rows: int = 10_000
    """Rows in the first event of a client that follows changes (``rows=true``)."""
    history_commits: int = 10_000
    """Commits of a table that are stored for clients that reconnect."""
    history_rows: int = 100_000
    """Rows of these commits."""
    history_seconds: float = 300.0
    """How long a table is watched after its last client has left."""
    idempotency_seconds: float = 24 * 3600.0
    """How long the response to an Idempotency-Key is stored."""

    def of_texts(self) -> TextLimits:
        """Returns the limits for a text of statements."""
        return TextLimits(self.length, self.words, self.depth, self.inputs, self.statements)

    @staticmethod
    def of(values: Mapping[str, Any]) -> Limits:
        """Returns the defaults, replaced by these values."""
        known = [f.name for f in fields(Limits)]
        for name in values:
            if name not in known:
                hint = did_you_mean(name, known, f"known: {', '.join(known)}")
                raise UnknownName(f'there is no limit "{name}"', hint=hint)
        return replace(Limits(), **values)


@dataclass(frozen=True, slots=True)
class Settings:
    """Contains the settings of one server. ``tokens`` map to roles; without any, everyone who reaches the server is an
    admin.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tokens: Mapping[str, Role] = field(default_factory=dict, repr=False)
    allow: tuple[str, ...] = ()
    """Prefixes of the URIs that a statement of a client may name."""
    origins: tuple[str, ...] = ()
    """Origins of other servers whose pages may send requests (CORS)."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.tokens and not is_loopback(self.host):
            names = ", ".join(TOKENS)
            raise InvalidOption(
                f'the HTTP server is not opened on "{self.host}" without a token: anybody could reach it',
                hint=f"set one of {names} in the environment, or listen on 127.0.0.1",
            )
        for token in self.tokens:
            if len(token) < SHORTEST_TOKEN:
                raise InvalidOption(
                    f"a token of the HTTP server is shorter than {SHORTEST_TOKEN} characters",
                    hint="make one with: openssl rand -hex 32",
                )
        for prefix in self.allow:
            if "://" not in prefix:
                raise InvalidOption(
                    f'"{prefix}" is no beginning of a URI', hint=f"allow file:///data/, {TOPICS}, …"
                )


def tokens_of(environment: Mapping[str, str] = os.environ) -> dict[str, Role]:
    """Returns the tokens that are in the environment."""
    found: dict[str, Role] = {}
    for name, role in TOKENS.items():
        token = environment.get(name, "")
        if token:
            found[token] = max(role, found.get(token, Role.NONE))
    return found


def address_of(text: str) -> tuple[str, int]:
    """Returns host and port of ``8080``, ``127.0.0.1:8080`` or ``[::1]:8080``."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise InvalidOption(
            f'"{text}" is no address to listen on', hint="8080, or 127.0.0.1:8080; port 0 takes a free one"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
