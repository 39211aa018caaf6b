"""String functions."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import Unrenderable, text, typed
from millpond.sql.render.duckdb.regex import plain_text, replacement, translate
from millpond.sql.typing.coercion import BIGINT, INT, STRING, is_list
from millpond.sql.typing.functions import integer_value


def literal(node: exp.Expr | None, what: str) -> str:
    """A string that is written out."""
    if isinstance(node, exp.Literal) and node.is_string:
        return node.name
    raise Unrenderable(f"{what} that is not written out")


def number(node: exp.Expr | None, what: str) -> int:
    """An integer that is written out."""
    found = integer_value(node)
    if found is None:
        raise Unrenderable(f"{what} that is not written out")
    return found


def call(name: str, *keys: str) -> Entry:
    """A function of strings that means the same in both; ``keys`` are its operands in order."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        arguments = ", ".join(r.to(node.args[key], STRING) for key in keys or ("this",))
        return typed(f"{name}({arguments})", r.type(node))

    return entry


def named_call(name: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        arguments = ", ".join(r.to(e, STRING) for e in node.expressions)
        return typed(f"{name}({arguments})", r.type(node))

    return entry


def upper(r: Expressions, node: exp.Expr) -> str:
    return f"upper(replace({r.to(node.this, STRING)}, 'ß', 'SS'))"


_TRIMS = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


def trim(r: Expressions, node: exp.Expr) -> str:
    name = _TRIMS[str(node.args.get("position") or "").upper()]
    characters = node.args.get("expression")
    chosen = r.to(characters, STRING) if characters is not None else "' '"
    return f"{name}({r.to(node.this, STRING)}, {chosen})"


def pad(r: Expressions, node: exp.Expr) -> str:
    width, fill = number(node.expression, "a width"), node.args.get("fill_pattern")
    filler = literal(fill, "a filler") if fill is not None else " "
    if not filler:
        raise Unrenderable("an empty filler")
    name = "lpad" if node.args.get("is_left") else "rpad"
    return f"{name}({r.to(node.this, STRING)}, {max(width, 0)}, {text(filler)})"


def concat_ws(r: Expressions, node: exp.Expr) -> str:
    separator, *items = node.expressions
    if not items or any(is_list(r.type(e)) for e in items):
        raise Unrenderable("CONCAT_WS of arrays")
    values = ", ".join(r.to(e, STRING) for e in items)
    return f"concat_ws({r.to(separator, STRING)}, {values})"


def replace(r: Expressions, node: exp.Expr) -> str:
    new = node.args.get("replacement")
    by = r.to(new, STRING) if new is not None else "''"
    return f"replace({r.to(node.this, STRING)}, {r.to(node.expression, STRING)}, {by})"


def substring(r: Expressions, node: exp.Expr) -> str:
    """Position 0 is 1, negative ones count from the end; a start before the text takes from the length."""
    if r.type(node) != STRING:
        raise Unrenderable("SUBSTRING of BINARY")
    value, length = r.to(node.this, STRING), node.args.get("length")
    count = r.to(length, BIGINT) if length is not None else None
    start = integer_value(node.args.get("start"))
    if start is not None and start >= 0:
        tail = f", greatest({count}, 0)" if count is not None else ""
        return f"substring({value}, {max(start, 1)}{tail})"
    place = r.to(node.args["start"], BIGINT)
    first = (
        f"CASE WHEN {place} > 0 THEN {place} - 1 WHEN {place} < 0 THEN length({value}) + {place} ELSE 0 END"
    )
    if count is None:
        return f"substring({value}, greatest({first}, 0) + 1)"
    return f"substring({value}, greatest({first}, 0) + 1, greatest({count} + least({first}, 0), 0))"


def ends(name: str) -> Entry:
    """LEFT, RIGHT: nothing for a count below one."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        return f"{name}({r.to(node.this, STRING)}, greatest({r.to(node.expression, BIGINT)}, 0))"

    return entry


def position(r: Expressions, node: exp.Expr) -> str:
    """INSTR, LOCATE, POSITION."""
    if node.args.get("occurrence"):
        raise Unrenderable("INSTR of an occurrence")
    value, part = r.to(node.this, STRING), r.to(node.args["substr"], STRING)
    start = node.args.get("position")
    first = 1 if start is None else number(start, "a position")
    if first < 1:
        raise Unrenderable("LOCATE from a position below one")
    if first == 1:
        return typed(
            f"CASE WHEN {part} = '' AND {value} IS NOT NULL THEN 1 ELSE instr({value}, {part}) END", INT
        )
    found = f"instr(substring({value}, {first}), {part})"
    return typed(f"CASE WHEN {found} = 0 THEN 0 ELSE {found} + {first - 1} END", INT)


def initcap(r: Expressions, node: exp.Expr) -> str:
    words = f"string_split(lower({r.to(node.this, STRING)}), ' ')"
    return f"array_to_string(list_transform({words}, lambda w: upper(left(w, 1)) || substring(w, 2)), ' ')"


def repeat(r: Expressions, node: exp.Expr) -> str:
    return f"repeat({r.to(node.this, STRING)}, greatest({r.to(node.args['times'], BIGINT)}, 0))"


def reverse(r: Expressions, node: exp.Expr) -> str:
    """By code points; DuckDB's own keeps marks with their letters."""
    if is_list(r.type(node)):
        return f"list_reverse({r.sql(node.this)})"
    return f"array_to_string(list_reverse(regexp_extract_all({r.to(node.this, STRING)}, '(?s).')), '')"


def split(r: Expressions, node: exp.Expr) -> str:
    separator = plain_text(literal(node.expression, "a pattern"))
    if not separator or node.args.get("limit") is not None:
        raise Unrenderable("SPLIT by a pattern")
    return f"string_split({r.to(node.this, STRING)}, {text(separator)})"


def split_part(r: Expressions, node: exp.Expr) -> str:
    part, delimiter = (
        number(node.args["part_index"], "a part"),
        literal(node.args["delimiter"], "a delimiter"),
    )
    if part == 0 or not delimiter:
        raise Unrenderable("SPLIT_PART of part 0")
    return f"split_part({r.to(node.this, STRING)}, {text(delimiter)}, {part})"


def substring_index(r: Expressions, node: exp.Expr) -> str:
    delimiter, count = literal(node.args["delimiter"], "a delimiter"), number(node.args["count"], "a count")
    if len(delimiter) != 1 or count == 0:
        raise Unrenderable("SUBSTRING_INDEX by more than one character, or of no part")
    parts = f"string_split({r.to(node.this, STRING)}, {text(delimiter)})"
    chosen = f"{parts}[1:{count}]" if count > 0 else f"{parts}[{count}:]"
    return typed(f"array_to_string({chosen}, {text(delimiter)})", STRING)


def like(r: Expressions, node: exp.Expr) -> str:
    """LIKE, ILIKE; the escape is a backslash if none is given, as in Spark."""
    escape = "\\"
    if isinstance(node, exp.Escape):
        escape, node = literal(node.expression, "an escape"), node.this
    pattern = literal(node.expression, "a pattern")
    _check_pattern(pattern, escape)
    value, sought = r.to(node.this, STRING), text(pattern)
    if isinstance(node, exp.ILike):
        value, sought = f"lower({value})", f"lower({sought})"
    word = "NOT LIKE" if node.args.get("negate") else "LIKE"
    return f"({value} {word} {sought} ESCAPE {text(escape)})"


def _check_pattern(pattern: str, escape: str) -> None:
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise Unrenderable("a LIKE pattern that escapes an ordinary character")
        at += 1


def matches(r: Expressions, node: exp.Expr) -> str:
    pattern, _ = translate(literal(node.expression, "a pattern"), finds=True)
    found = f"regexp_matches({r.to(node.this, STRING)}, {text(pattern)})"
    return f"(NOT {found})" if node.args.get("negate") else found


def extract(r: Expressions, node: exp.Expr) -> str:
    if any(node.args.get(k) is not None for k in ("position", "occurrence", "parameters")):
        raise Unrenderable("REGEXP_EXTRACT with more arguments")
    pattern, groups = translate(literal(node.expression, "a pattern"))
    group = number(node.args.get("group"), "a group")
    if not 0 <= group <= groups:
        raise Unrenderable("a group that is not in the pattern")
    return f"regexp_extract({r.to(node.this, STRING)}, {text(pattern)}, {group})"


def regexp_replace(r: Expressions, node: exp.Expr) -> str:
    if any(node.args.get(k) is not None for k in ("position", "occurrence", "modifiers")):
        raise Unrenderable("REGEXP_REPLACE with more arguments")
    pattern, groups = translate(literal(node.expression, "a pattern"))
    new = replacement(literal(node.args.get("replacement"), "a replacement"), groups)
    return f"regexp_replace({r.to(node.this, STRING)}, {text(pattern)}, {text(new)}, 'g')"


def ascii_code(r: Expressions, node: exp.Expr) -> str:
    value = r.to(node.this, STRING)
    return typed(f"CASE WHEN {value} = '' THEN 0 ELSE unicode({value}) END", INT)


def sha2(r: Expressions, node: exp.Expr) -> str:
    if integer_value(node.args.get("length")) not in (0, 256):
        raise Unrenderable("SHA2 of another length than 256")
    return f"sha256({r.to(node.this, STRING)})"


ENTRIES: dict[type[exp.Expr], Entry] = {
    exp.Upper: upper,
    exp.Lower: call("lower"),
    exp.Trim: trim,
    exp.Pad: pad,
    exp.ConcatWs: concat_ws,
    exp.Replace: replace,
    exp.Substring: substring,
    exp.Left: ends("left"),
    exp.Right: ends("right"),
    exp.StrPosition: position,
    exp.Initcap: initcap,
    exp.Repeat: repeat,
    exp.Space: lambda r, node: f"repeat(' ', greatest({r.to(node.this, BIGINT)}, 0))",
    exp.Reverse: reverse,
    exp.Length: call("length"),
    exp.BitLength: call("bit_length"),
    exp.StartsWith: call("starts_with", "this", "expression"),
    exp.EndsWith: call("suffix", "this", "expression"),
    exp.Contains: call("contains", "this", "expression"),
    exp.Ascii: ascii_code,
    exp.MD5: call("md5"),
    exp.SHA: call("sha1"),
    exp.SHA2: sha2,
    exp.Translate: call("translate", "this", "from_", "to"),
    exp.RegexpSplit: split,
    exp.SplitPart: split_part,
    exp.SubstringIndex: substring_index,
    exp.Like: like,
    exp.ILike: like,
    exp.Escape: like,
    exp.RegexpLike: matches,
    exp.RegexpExtract: extract,
    exp.RegexpReplace: regexp_replace,
}

NAMED: dict[str, Entry] = {"OCTET_LENGTH": named_call("strlen")}
