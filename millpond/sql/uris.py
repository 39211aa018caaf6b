"""Finds where unquoted URIs in SQL text end, and hides them from the tokenizer.

A URI continues up to white space, ``;``, an unbalanced bracket, or a comma that is neither inside brackets nor directly
followed by ``host:port``. A quoted part (``?query="SELECT a, b"``) and ``${…}`` are not split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SCHEME = r"[A-Za-z][A-Za-z0-9+.\-]*://"

TOPICS = "kafka://"
TOPIC_CALL = "kafka_topic"
"""The word of the language for a topic: ``kafka_topic('orders')`` is the URI ``kafka://orders``."""

_IS_URI = re.compile(SCHEME)
_BROKER = re.compile(r",[\w.\-]+:\d+")
_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = frozenset(")]}")


def is_uri(text: str) -> bool:
    """Returns whether a quoted name or string is a URI."""
    return _IS_URI.match(text) is not None


def is_topic(uri: str) -> bool:
    """Returns whether a URI names a topic."""
    return uri.startswith(TOPICS)


def end_of_uri(text: str, start: int) -> int:
    """Returns the offset after the URI that begins at ``start``."""
    at = text.index("://", start) + 3
    expected: list[str] = []
    while at < len(text):
        char = text[at]
        if char in "'\"":
            closing = text.find(char, at + 1)
            if closing < 0:
                return at
            at = closing
        elif text.startswith("${", at):
            closing = text.find("}", at)
            at = closing if closing > 0 else at
        elif char in _OPEN:
            expected.append(_OPEN[char])
        elif char in _CLOSE:
            if not expected or expected.pop() != char:
                return at
        elif char == ",":
            if not expected and not _BROKER.match(text, at):
                return at
        elif char in ";`" or char.isspace():
            return at
        at += 1
    return at


def mask_uris(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Returns the text with each URI replaced by a quoted name of the same length, so that offsets remain exact."""
    parts, last = [], 0
    for start, end in spans:
        parts += [text[last:start], "`", "u" * (end - start - 2), "`"]
        last = end
    parts.append(text[last:])
    return "".join(parts)
