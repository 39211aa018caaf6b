"""Reads options from WITH (…) and URIs: each is declared once, and read by its kind; unknown ones are errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from millpond.errors import CheckFailed, InvalidOption, Place, SqlError, UnknownName, did_you_mean

Kind = Literal["text", "bool", "int", "duration", "size", "duration or size", "choice", "secret"]


@dataclass(frozen=True, slots=True)
class Option:
    """Declares an option. ``default`` is a value of its kind: seconds for a duration, bytes for a size; ``choices`` are
    the values of a choice, and accepted in addition to a number. A name that ends in ``.*`` means all names that begin
    so: each that is set is a separate value.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    least: int | None = None
    """The smallest allowed number."""
    live: bool = False
    """Whether ALTER TABLE … SET changes it while the table is used."""
    free: bool = False
    """Whether a changed file may have another value: what is stored goes on."""
    others: Callable[[], Iterable[str]] | None = None
    """Further values of a choice, which other packages provide: looked up when a value is none of ``choices``."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Contains one ``'name' = 'value'`` of the text."""

    name: str
    value: str
    place: Place | None = field(default=None, compare=False)


_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_DURATION_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b)?\s*", re.IGNORECASE)
_SIZE_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def parse_duration(text: str) -> float:
    """Parses ``500ms``, ``30s``, ``5m``, ``2h``, ``7d`` or ``7 days`` to seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    unit = _DURATION_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError("a duration is a number and a unit: 500ms, 30s, 5m, 2h, 7d or '7 days'")
    return float(match[1]) * unit


def parse_size(text: str) -> int:
    """Parses ``64MB``, ``512kb``, ``1GB`` or ``1000`` to bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("a size is a number and a unit: 512KB, 64MB, 2GB")
    unit = (match[2] or "b").lower().replace("ib", "b")
    return int(float(match[1]) * _SIZE_UNITS[unit])


@dataclass(frozen=True, slots=True)
class Retention:
    """Says how much is kept: for how many seconds, or how many bytes."""

    seconds: float | None = None
    size: int | None = None


def parse_retention(text: str) -> Retention:
    """Parses a duration, or a size with its unit; both are greater than 0. Raises ValueError."""
    try:
        found = Retention(seconds=parse_duration(text))
    except ValueError:
        if not text.strip()[-1:].isalpha():
            raise ValueError(_KEPT) from None
        try:
            found = Retention(size=parse_size(text))
        except ValueError:
            raise ValueError(_KEPT) from None
    if not found.seconds and not found.size:
        raise ValueError("it is greater than 0")
    return found


_KEPT = "it is a time, such as 30m, 12h or 7d, or a size, such as 64MB or 10GB"


def _parse(option: Option, text: str) -> Any:
    match option.kind:
        case "bool":
            lowered = text.strip().lower()
            if lowered not in ("true", "false"):
                raise ValueError("it is 'true' or 'false'")
            return lowered == "true"
        case "int":
            word = text.strip().lower()
            if word in option.choices:
                return word
            try:
                number = int(text.replace("_", ""))
            except ValueError:
                words = "".join(f", or '{c}'" for c in option.choices)
                raise ValueError(f"it is a whole number{words}") from None
            if option.least is not None and number < option.least:
                raise ValueError(f"it is at least {option.least}")
            return number
        case "duration":
            return parse_duration(text)
        case "size":
            return parse_size(text)
        case "duration or size":
            return parse_retention(text)
        case "choice":
            if (known := _choice(option.choices, text)) is not None:
                return known
            others = tuple(option.others()) if option.others is not None else ()
            if (known := _choice(others, text)) is not None:
                return known
            raise ValueError("it is one of " + ", ".join(f"'{c}'" for c in (*option.choices, *others)))
        case _:
            return text


def _choice(choices: Iterable[str], text: str) -> str | None:
    return next((c for c in choices if c.lower() == text.strip().lower()), None)


def read_options(owner: str, declared: Sequence[Option], settings: Iterable[Setting]) -> dict[str, Any]:
    """Returns the value of every declared option, the default where nothing is set.

    ``owner`` names what the options belong to (``table "t"``) in errors. Names ignore case. An option that is not
    declared, is set twice or has a wrong value is an error; several raise CheckFailed.
    """
    values: dict[str, Any] = defaults(declared)
    seen: dict[str, str] = {}
    errors: list[SqlError] = []
    for setting in settings:
        option = find_option(declared, setting.name)
        if option is None:
            errors.append(unknown_option(owner, declared, setting))
            continue
        name = setting.name.lower() if _is_family(option) else option.name
        if (other := seen.get(name)) is not None:
            same = setting.name.lower() == other.lower()
            hint = None if same else f'"{other}" is another name of it: leave one of them out'
            message = f'option "{setting.name}" of {owner} is set twice'
            errors.append(InvalidOption(message, hint=hint, place=setting.place))
        seen[name] = setting.name
        try:
            values[name] = _parse(option, setting.value)
        except ValueError as e:
            shown = "***" if option.kind == "secret" else setting.value
            errors.append(
                InvalidOption(
                    f'option "{setting.name}" of {owner} cannot be "{shown}"',
                    hint=str(e),
                    place=setting.place,
                )
            )
    if len(errors) > 1:
        raise CheckFailed(errors)
    if errors:
        raise errors[0]
    return values


def find_option(declared: Sequence[Option], name: str) -> Option | None:
    lowered = name.lower()
    for option in declared:
        if lowered == option.name.lower() or lowered in (a.lower() for a in option.aliases):
            return option
    return next((o for o in declared if _is_family(o) and lowered.startswith(o.name[:-1].lower())), None)


def _is_family(option: Option) -> bool:
    return option.name.endswith(".*")


def defaults(declared: Iterable[Option]) -> dict[str, Any]:
    """Returns the value of every option when nothing is set."""
    return {o.name: o.default for o in declared if not _is_family(o)}


def unknown_option(owner: str, declared: Sequence[Option], setting: Setting) -> UnknownName:
    known = sorted(o.name for o in declared)
    listed = f"known options: {', '.join(known)}" if known else f"{owner} takes no options"
    near = did_you_mean(setting.name, known)
    return UnknownName(
        f'option "{setting.name}" is not known for {owner}',
        hint=f"{near} ({listed})" if near else listed,
        place=setting.place,
    )


def settings_of(options: Mapping[str, str]) -> tuple[Setting, ...]:
    """Returns settings from a plain mapping, for programs and tests."""
    return tuple(Setting(k, v) for k, v in options.items())
