"""Renders string functions."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import TITLE, Unrenderable, once, text, typed
from millpond.sql.typing.coercion import BINARY, INT, STRING, is_list
from millpond.sql.typing.functions import integer_value


def literal(node: exp.Expr | None, what: str) -> str:
    """Returns the value of a string literal."""
    if isinstance(node, exp.Literal) and node.is_string:
        return node.name
    raise Unrenderable(f"{what} that is not written out")


def number(node: exp.Expr | None, what: str) -> int:
    """Returns the value of an integer literal."""
    found = integer_value(node)
    if found is None or not -_REST <= found <= _REST:
        raise Unrenderable(f"{what} that is not written out")
    return found


def call(template: str) -> Entry:
    """Returns an entry for a function of strings; ``{0}``, ``{1}`` are its arguments."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        return typed(template.format(*r.given(node)), r.type(node))

    return entry


def of_string(template: str) -> Entry:
    """Returns an entry for a function that DuckDB has for strings, but not for BINARY."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        if any(r.type(e) == BINARY for e in node.expressions):
            raise Unrenderable(f"{node.name.upper()} of BINARY")
        return typed(template.format(*r.given(node)), r.type(node))

    return entry


def cased(name: str, function: str, special: str) -> Entry:
    """Returns the entry for UPPER and LOWER: letters that become several are converted in Python."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        (value,) = r.given(node)
        return once(
            value,
            lambda v: f"(CASE WHEN regexp_matches({v}, {special}) THEN {function}({v}) ELSE {name}({v}) END)",
        )

    return entry


def initcap(r: Expressions, node: exp.Expr) -> str:
    (value,) = r.given(node)
    plain = (
        "array_to_string(list_transform(string_split(lower({v}), ' '), "
        "lambda w: upper(left(w, 1)) || substring(w, 2)), ' ')"
    )
    return once(
        value,
        lambda v: f"(CASE WHEN strlen({v}) > length({v}) THEN {TITLE}({v}) ELSE {plain.format(v=v)} END)",
    )


_TRIMS = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def trim(r: Expressions, node: exp.Expr) -> str:
    """Renders TRIM with its keywords."""
    name = _TRIMS[str(node.args.get("position") or "").upper()]
    return _trimmed(name, r.to(node.this, STRING), r, node.args.get("expression"))


def _trimmed(name: str, value: str, r: Expressions, characters: exp.Expr | None) -> str:
    return f"{name}({value}, {r.to(characters, STRING) if characters is not None else _BLANK})"


_BLANK = "' '"


def trimmed(name: str, *, text_first: bool) -> Entry:
    """Returns the entry for LTRIM and RTRIM, with the characters before the text; BTRIM with the text first."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        given = r.given(node)
        value, characters = (given[0], _BLANK) if len(given) == 1 else given if text_first else given[::-1]
        return f"{name}({value}, {characters})"

    return entry


def pad(name: str) -> Entry:
    """Returns the entry for LPAD and RPAD; an empty filler adds nothing."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        if r.type(node) != STRING:
            raise Unrenderable(f"{node.name.upper()} of BINARY")
        fill = node.expressions[2] if len(node.expressions) > 2 else None
        filler = literal(fill, "a filler") if fill is not None else " "
        if not filler:
            raise Unrenderable("an empty filler")
        value, width = r.to(node.expressions[0], STRING), r.to(node.expressions[1], INT)
        return f"{name}({value}, {_not_below_zero(width)}, {text(filler)})"

    return entry


def _not_below_zero(count: str) -> str:
    """Renders a count of at least 0; NULL remains NULL, unlike with GREATEST."""
    if count.startswith("CAST(") and count.endswith(" AS INTEGER)") and count[5:-12].isdigit():
        return count
    return once(count, lambda n: f"(CASE WHEN {n} < 0 THEN 0 ELSE {n} END)")


def concat_ws(r: Expressions, node: exp.Expr) -> str:
    separator, *items = node.expressions
    if not items or any(is_list(r.type(e)) for e in items):
        raise Unrenderable("CONCAT_WS of arrays")
    values = ", ".join(r.to(e, STRING) for e in items)
    return f"concat_ws({r.to(separator, STRING)}, {values})"


def replace(r: Expressions, node: exp.Expr) -> str:
    value, old, *new = r.given(node)
    return f"replace({value}, {old}, {new[0] if new else _NOTHING})"


_NOTHING = "''"


def substring(r: Expressions, node: exp.Expr) -> str:
    """Renders SUBSTRING. Position 0 is 1, negative positions count from the end; a start before the text reduces the
    length.
    """
    if r.type(node) != STRING:
        raise Unrenderable("SUBSTRING of BINARY")
    items = node.expressions
    value, start = r.to(items[0], STRING), integer_value(items[1])
    most = integer_value(items[2]) if len(items) > 2 else _REST
    if start is not None and start >= 0 and most is not None:
        return f"substring({value}, {max(start, 1)}{f', {max(most, 0)}' if len(items) > 2 else ''})"
    count = r.to(items[2], INT) if len(items) > 2 else str(_REST)
    return once(value, lambda v: _part(v, r.to(items[1], INT), count))


_REST = 2**31 - 1
"""The length that means all the rest of a text."""


def _part(value: str, place: str, count: str) -> str:
    first = (
        f"(CASE WHEN {place} > 0 THEN CAST({place} AS BIGINT) - 1 "
        f"WHEN {place} < 0 THEN length({value}) + CAST({place} AS BIGINT) ELSE {place} END)"
    )
    # What is before the text is subtracted from the count; NULL in any argument is NULL.
    return once(
        f"{{'a': {first}, 'b': {first} + CAST({count} AS BIGINT)}}",
        lambda p: (
            f"substring({value}, CASE WHEN {p}.a < 0 THEN 1 ELSE {p}.a + 1 END, "
            f"CASE WHEN {p}.b <= {p}.a OR {p}.b <= 0 THEN 0 WHEN {p}.a < 0 THEN {p}.b ELSE {p}.b - {p}.a END)"
        ),
    )


def ends(name: str) -> Entry:
    """Returns the entry for LEFT and RIGHT: empty for a count below one."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        if r.type(node) != STRING:
            raise Unrenderable(f"{name.upper()} of BINARY")
        value, count = node.expressions
        return f"{name}({r.to(value, STRING)}, {_not_below_zero(r.to(count, INT))})"

    return entry


def position(value_at: int, part_at: int) -> Entry:
    """Returns the entry for INSTR, LOCATE and POSITION."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        given = r.given(node)
        value, part = given[value_at], given[part_at]
        first = 1 if len(given) < 3 else number(node.expressions[2], "a position")
        if first < 1:
            raise Unrenderable("LOCATE from a position below one")
        if first == 1:
            return typed(
                f"CASE WHEN {part} = '' AND {value} IS NOT NULL THEN 1 ELSE instr({value}, {part}) END", INT
            )
        found = once(
            f"instr(substring({value}, {first}), {part})",
            lambda f: f"(CASE WHEN {f} = 0 THEN 0 ELSE {f} + {first - 1} END)",
        )
        return typed(f"CASE WHEN {part} = '' AND {value} IS NOT NULL THEN 1 ELSE {found} END", INT)

    return entry


def repeated(r: Expressions, node: exp.Expr) -> str:
    value, count = r.given(node)
    return f"repeat({value}, {_not_below_zero(count)})"


def spaces(r: Expressions, node: exp.Expr) -> str:
    (count,) = r.given(node)
    return f"repeat({_BLANK}, {_not_below_zero(count)})"


def reverse(r: Expressions, node: exp.Expr) -> str:
    """Reverses by code points; DuckDB's own function keeps marks with their letters."""
    (argument,) = node.expressions
    if is_list(r.type(node)):
        return f"list_reverse({r.sql(argument)})"
    return f"array_to_string(list_reverse(regexp_extract_all({r.to(argument, STRING)}, '(?s).')), '')"


def split_part(r: Expressions, node: exp.Expr) -> str:
    value, _, _ = r.given(node)
    delimiter, part = literal(node.expressions[1], "a delimiter"), number(node.expressions[2], "a part")
    if part == 0 or not delimiter:
        raise Unrenderable("SPLIT_PART of part 0")
    return f"split_part({value}, {text(delimiter)}, {part})"


def substring_index(r: Expressions, node: exp.Expr) -> str:
    value, _, _ = r.given(node)
    delimiter, count = literal(node.expressions[1], "a delimiter"), number(node.expressions[2], "a count")
    if len(delimiter) != 1 or count == 0:
        raise Unrenderable("SUBSTRING_INDEX by more than one character, or of no part")
    parts = f"string_split({value}, {text(delimiter)})"
    chosen = f"{parts}[1:{count}]" if count > 0 else f"{parts}[{count}:]"
    return typed(f"array_to_string({chosen}, {text(delimiter)})", STRING)


def ascii_code(r: Expressions, node: exp.Expr) -> str:
    (value,) = r.given(node)
    return typed(f"CASE WHEN {value} = '' THEN 0 ELSE unicode({value}) END", INT)


def digest(name: str) -> Entry:
    """Returns the entry for MD5 and SHA1: DuckDB accepts strings and bytes."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        (argument,) = node.expressions
        if r.type(argument) not in (STRING, BINARY):
            raise Unrenderable(f"{name.upper()} of this type")
        return f"{name}({r.sql(argument)})"

    return entry


def sha2(r: Expressions, node: exp.Expr) -> str:
    value, bits = node.expressions
    if integer_value(bits) not in (0, 256) or r.type(value) not in (STRING, BINARY):
        raise Unrenderable("SHA2 of another length than 256")
    return f"sha256({r.sql(value)})"


def found(name: str) -> Entry:
    """Returns the entry for CONTAINS, STARTSWITH and ENDSWITH."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        if any(r.type(e) == BINARY for e in node.expressions):
            raise Unrenderable(f"{node.name.upper()} of BINARY")
        return f"{name}({', '.join(r.to(e, STRING) for e in node.expressions)})"

    return entry


def translate(r: Expressions, node: exp.Expr) -> str:
    """Renders TRANSLATE. A character that maps to code 0 is removed, as in Spark."""
    value, old, new = r.given(node)
    if "\0" in literal(node.expressions[2], "a replacement"):
        raise Unrenderable("TRANSLATE to a character of code 0")
    return typed(f"translate({value}, {old}, {new})", STRING)
