"""Shows the options that ALTER TABLE … SET has changed in the text that declared the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.errors import Error, Place
from millpond.options import Option, find_option, read_options
from millpond.plan.connectors import options_of_table
from millpond.sql import statements as st
from millpond.sql.nodes import seconds_text
from millpond.sql.parse import parse


def with_options_now(text: str, values: Mapping[str, Any]) -> str:
    """Returns the text of CREATE TABLE with the values that those of its options have which may change. All else in
    it stays as it was written.
    """
    try:
        statement = parse(text).require()[0]
    except Error:
        return text  # a variable of the environment is not set any more
    if not isinstance(statement, st.CreateTable):
        return text
    live = [o for o in options_of_table(values) if o.live and o.name in values]
    written = {o.name: s for s in statement.settings if (o := find_option(live, s.name)) is not None}
    then = read_options("the table", live, written.values())
    parts, new = [], []
    for option in live:
        now, setting = values[option.name], written.get(option.name)
        if now == then[option.name] or now is None:
            continue
        said = _said(setting.name if setting is not None else option.name, option, now)
        if setting is not None and setting.place is not None:
            parts.append((_offset(text, setting.place), setting.place.length, said))
        else:
            new.append(said)
    last = statement.settings[-1].place if statement.settings else None
    if new and last is not None:
        parts.append((_offset(text, last) + last.length, 0, "".join(f", {said}" for said in new)))
    elif new:
        parts.append((len(text), 0, f" WITH ({', '.join(new)})"))
    for at, length, said in sorted(parts, reverse=True):
        text = text[:at] + said + text[at + length :]
    return text


def _said(name: str, option: Option, value: Any) -> str:
    said = f"{seconds_text(value)}s" if option.kind == "duration" else str(value)
    return f"'{name}' = '{said}'"


def _offset(text: str, place: Place) -> int:
    """Returns where a place begins in its text."""
    at = 0
    for _ in range(place.line - 1):
        at = text.index("\n", at) + 1
    return at + place.column - 1
