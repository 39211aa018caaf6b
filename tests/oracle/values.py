"""Values at the ends of every type, as Spark SQL: literals, the rows of a relation, and texts that mean something."""

from __future__ import annotations

from itertools import count

BIG = "9" * 38
LONG = "x" * 70 + "é" * 30

VALUES: dict[str, tuple[str, ...]] = {
    "i8": ("0", "1", "-1", "127", "-128", "7", "NULL", "-3"),
    "i16": ("0", "1", "-1", "32767", "-32768", "300", "NULL", "-12"),
    "i32": ("0", "1", "-1", "2147483647", "-2147483648", "3", "NULL", "-7", "60", "100"),
    "c": ("0", "1", "-1", "2", "5", "NULL", "-4", "30"),
    "l": (
        *("0", "1", "-1", "9223372036854775807", "-9223372036854775808", "5", "NULL", "1700000000"),
        *("-62135596800", "253402300799", "9007199254740993"),
    ),
    "f": (
        *("0.0", "-0.0", "1.5", "float('nan')", "float('inf')", "float('-inf')", "NULL", "3.4e38", "0.1"),
        *("-2.5", "1.4e-45", "16777217"),
    ),
    "d": (
        *("0.0", "-0.0D", "0.5", "double('nan')", "double('inf')", "double('-inf')", "NULL", "2.675"),
        *("1.7976931348623157e308", "4.9e-324", "-1e15", "9223372036854775808", "0.1", "-3.5", "1e21"),
    ),
    "D10": ("0", "0.01", "-0.05", "99999999.99", "-99999999.99", "12.50", "NULL", "-7.25"),
    "D18": ("0", "0.0001", "-0.00005", "99999999999999.9999", "-99999999999999.9999", "5.6789", "NULL"),
    "D38": (
        *("0", "0.000000000000000001", "99999999999999999999.999999999999999999", "-1.5", "NULL"),
        *("-99999999999999999999.999999999999999999", "1234.567891234567891234"),
    ),
    "D380": ("0", "1", "-1", BIG, f"-{BIG}", "NULL", "42", "18446744073709551616"),
    "D3": ("0", "0.001", "-0.999", "0.999", "NULL", "0.5"),
    "D5": ("0", "1", "-99999", "99999", "NULL", "12"),
    "s": (
        *("''", "' '", "'a'", "'Hello World'", "'grüße 😀'", "NULL", "'12'", "' -7 '", "'1e3'", "'1.50'"),
        *("'NaN'", "'true'", "'2024-02-29'", "'2023-02-29'", "'2024-02-29 13:45:59.123'", "'a,b,,c'"),
        *("'2024-02-29T13:45:59+02:00'", "'a_b%c\\\\d'", "'tab\\tline\\n'", "'ßİıŉ'", "'e\\u0301'", "'ÀÉ'"),
        *("'{\"a\": 1, \"b\": [1, 2]}'", f"'{LONG}'", "'\\u0000x'", "'2147483648'", "'abcabc'", "'it''s \"q\"'"),
        *("'99999999999999999999'", "'-0'", "'0x1F'", "'10:15:30'", "'y'", "'+.5'", "'1d'", "'Infinity'"),
    ),
    "x": ("X''", "X'00'", "X'616263'", "X'FF80'", "NULL", "X'C3A9'"),
    "b": ("true", "false", "NULL"),
    "dt": (
        *("'0001-01-01'", "'9999-12-31'", "'1582-10-04'", "'1582-10-15'", "'1969-12-31'", "'1970-01-01'"),
        *("'2024-02-29'", "'2023-12-31'", "NULL", "'2000-03-01'", "'2024-12-30'", "'1900-02-28'"),
    ),
    "ts": (
        *("'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.999999'", "NULL"),
        *("'1970-01-01 00:00:00'", "'2024-02-29 13:45:59.123456'", "'1582-10-15 12:00:00'"),
        *("'2024-03-31 01:30:00'", "'1900-01-01 00:00:00.5'", "'2024-12-31 23:59:59'"),
    ),
    "tn": (
        *("'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.999999'", "NULL"),
        *("'1970-01-01 00:00:00'", "'2024-02-29 13:45:59.123456'", "'1999-12-31 00:00:00'"),
    ),
    "iv": (
        *("INTERVAL '0' DAY", "INTERVAL '1 02:03:04.567' DAY TO SECOND", "INTERVAL '-3' DAY", "NULL"),
        *("INTERVAL '25' HOUR", "INTERVAL '-0.000001' SECOND", "INTERVAL '106751990' DAY"),
    ),
    "ai": (
        *("array()", "array(1, 2, 2)", "array(3, null, 1)", "NULL", "array(-1, 0)", "array(2147483647, -7)"),
        *("array(null)",),
    ),
    "as": ("array()", "array('a', 'b')", "array('x', null, 'a')", "NULL", "array('', 'ü')", "array('a', 'a')"),
    "ad": (
        *("array()", "array(1.5D, double('nan'), null)", "NULL", "array(0.0D, -0.0D)", "array(3.0D, 4.0D)"),
        *("array(double('inf'))",),
    ),
    "aa": ("array()", "array(array(1), array(2, null))", "NULL", "array(array(), null)", "array(array(5, 5))"),
    "ae": ("array()", "array(struct('a', 1), struct('b', null))", "NULL", "array(struct('a', 1), struct('a', 2))"),
    "m": ("map()", "map('a', 1, 'b', null)", "map('x', -5)", "NULL", "map('', 0, 'k', 7)"),
    "mi": ("map()", "map(1, 'x')", "map(0, null, -1, 'é')", "NULL"),
    "r": (
        *("named_struct('p', 1, 'q', 'x')", "named_struct('p', null, 'q', '')", "NULL"),
        *("named_struct('p', -7, 'q', null)",),
    ),
}  # fmt: skip

TYPES: dict[str, str] = {
    "i8": "TINYINT", "i16": "SMALLINT", "i32": "INT", "c": "INT", "l": "BIGINT", "f": "FLOAT", "d": "DOUBLE",
    "D10": "DECIMAL(10,2)", "D18": "DECIMAL(18,4)", "D38": "DECIMAL(38,18)", "D380": "DECIMAL(38,0)",
    "D3": "DECIMAL(3,3)", "D5": "DECIMAL(5,0)", "s": "STRING", "x": "BINARY", "b": "BOOLEAN", "dt": "DATE",
    "ts": "TIMESTAMP", "tn": "TIMESTAMP_NTZ", "iv": "INTERVAL DAY TO SECOND", "ai": "ARRAY<INT>",
    "as": "ARRAY<STRING>", "ad": "ARRAY<DOUBLE>", "aa": "ARRAY<ARRAY<INT>>",
    "ae": "ARRAY<STRUCT<k:STRING,v:INT>>", "m": "MAP<STRING,INT>", "mi": "MAP<INT,STRING>",
    "r": "STRUCT<p:INT,q:STRING>",
}  # fmt: skip
"""The types by the names that they have here."""

_INTEGERS, _DECIMALS = ("i32", "l", "i8", "i16"), ("D10", "D18", "D38", "D5", "D3", "D380")
_TIMES = ("dt", "ts", "tn")
KINDS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in TYPES},
    "i": _INTEGERS,
    "D": _DECIMALS,
    "n": (*_INTEGERS, *_DECIMALS, "d", "f"),
    "nv": (*_INTEGERS, *_DECIMALS, "d", "f", "iv"),
    "ib": (*_INTEGERS, "b"),
    "sx": ("s", "s", "x"),
    "isx": ("l", "s", "x"),
    "sa": ("s", "s", "as"),
    "t": _TIMES,
    "nt": ("D10", "i32", "dt", "ts"),
    "ss": ("s", "ts", "dt"),
    "a": ("ai", "as", "ai", "ad", "aa"),
    "am": ("ai", "as", "m"),
    "rm": ("r", "m", "ai"),
    "v": tuple(TYPES),
}  # fmt: skip
"""Kinds of values that a function takes or gives, and the types that they are of."""

POOLS: dict[str, tuple[str, ...]] = {
    "radix": ("10", "16", "2", "36", "-10", "1", "0"),
    "charset": ("'UTF-8'", "'utf-8'", "'UTF-16'", "'ISO-8859-1'", "'US-ASCII'", "'nothing'"),
    "places": ("0", "2", "-1", "'#,###.00'", "5"),
    "printf": ("'%s-%s'", "'%5d|%s'", "'%.2f %s'", "'%%'", "'%s'", "'%x'"),
    "regex": (
        *("'a'", "'[a-c]+'", "'(\\\\w+)\\\\s(\\\\w+)'", "'^$'", "'.'", "'\\\\d+'", "','", "'|'", "'('"),
        *("'(a)(b)?'", "'(?i)h'", "'\\\\bW'", "'o.*?l'", "'[^a]'", "''", "'a*'", "'ü|😀'", "'x{2,3}'", "'$'"),
    ),
    "replacement": ("''", "'$1'", "'<$0>'", "'\\\\$'", "'x'", "'$2$1'", "'\\\\\\\\'"),
    "like": (
        *("'%'", "''", "'a%'", "'_'", "'%o_W%'", "'a\\\\_b%'", "'%\\\\%%'", "'a\\\\b'", "'HELLO%'", "'%😀'"),
        *("'_ello %'",),
    ),
    "bits": ("0", "256", "224", "384", "512", "1", "NULL"),
    "binary": ("'hex'", "'utf-8'", "'base64'", "'HEX'", "'nothing'"),
    "number": ("'999'", "'9,999.99'", "'$99.9'", "'S999'", "'x'"),
    "mixed": ("'999'", "'000.00'", "'$99.99'", "'yyyy-MM-dd'", "'S9'", "'yyyy'"),
    "key": ("'abcdefghijklmnop'", "'short'"),
    "url": ("'https://u:p@example.org:80/a/b?x=1&y=2#f'", "'not a url'", "''", "NULL"),
    "part": ("'HOST'", "'QUERY'", "'PATH'", "'REF'", "'host'", "'PROTOCOL'"),
    "xml": ("'<a><b>1</b><b>x</b></a>'", "'<a/>'", "''", "NULL"),
    "xpath": ("'a/b'", "'a/b[1]/text()'", "'sum(a/b)'", "'a/c'"),
    "zone": ("'UTC'", "'America/New_York'", "'+05:30'", "'Asia/Kathmandu'", "'GMT+1'", "'nowhere'", "'Z'"),
    "format": (
        *("'yyyy-MM-dd'", "'yyyy-MM-dd HH:mm:ss'", "'dd/MM/yyyy'", "'HH:mm'", "'yyyy'", "'EEE d MMM y'"),
        *("'yyyy-MM-dd''T''HH:mm:ss.SSS'", "'D'", "'hh a'", "'YYYY'", "''", "'yy-M-d'", "'q'"),
    ),
    "field": (
        *("'YEAR'", "'month'", "'DAY'", "'hour'", "'MINUTE'", "'SECOND'", "'week'", "'DOW'", "'doy'", "'quarter'"),
        *("'YEAROFWEEK'", "'dayofweek_iso'", "'days'", "'seconds'", "'mins'", "'x'", "'EPOCH'"),
    ),
    "trunc": (
        *("'YEAR'", "'yy'", "'QUARTER'", "'mon'", "'WEEK'", "'DD'", "'HOUR'", "'minute'", "'SECOND'"),
        *("'MILLISECOND'", "'x'", "NULL", "'DAY'", "'month'"),
    ),
    "day": ("'MO'", "'Tuesday'", "'su'", "'wed'", "'x'", "''", "'MOx'"),
    "place": ("0", "1", "-1", "2", "-2", "5", "-5", "NULL", "'a'", "'k'", "2147483647"),
    "spot": ("0", "1", "-1", "2", "-2", "5", "-5", "NULL"),
    "near": ("DATE '2024-01-30'", "DATE '2024-03-01'", "TIMESTAMP '2024-02-01 12:00:00'", "CAST(NULL AS DATE)"),
    "step": ("INTERVAL '1' DAY", "INTERVAL '7' DAY", "INTERVAL '1' MONTH", "INTERVAL '0' DAY", "INTERVAL '-1' DAY"),
    "compare": ("(p, q) -> CASE WHEN p < q THEN 1 WHEN p > q THEN -1 ELSE 0 END",),
    "test": ("e -> e IS NULL", "e -> e > 1", "e -> e = 'a'", "(e, i) -> i > 0", "e -> NULL", "e -> true"),
    "one": ("e -> e", "e -> e + 1", "(e, i) -> i", "e -> upper(e)", "e -> NULL", "e -> struct(e, 1)"),
    "two": ("(p, q) -> p", "(p, q) -> struct(p, q)", "(p, q) -> concat(p, q)"),
    "fold": ("(acc, e) -> acc + e", "(acc, e) -> acc + e, acc -> acc * 2", "(acc, e) -> e"),
    "pair": ("(k, v) -> v > 0", "(k, v) -> k = 'a'", "(k, v) -> v IS NULL"),
    "triple": ("(k, p, q) -> coalesce(p, q)", "(k, p, q) -> k"),
    "key2": ("(k, v) -> concat(k, '!')", "(k, v) -> v"),
    "val2": ("(k, v) -> v + 1", "(k, v) -> k"),
    "json": (
        *("'{\"a\": 1, \"b\": [1, 2]}'", "'[1, 2]'", "'{\"a\": {\"c\": \"x\"}}'", "'null'", "'{bad'", "''", "NULL"),
        *("'{\"a\": 1.5, \"a\": 2}'", "'12'"),
    ),
    "path": ("'$.a'", "'$.b[0]'", "'$.a.c'", "'$'", "'a'", "'$[1]'", "'$.b[*]'"),
    "csv": ("'1,x'", "''", "'1'", "NULL", "'a,b'"),
    "schema": ("'a INT, b STRING'", "'a DOUBLE'", "'bad'"),
    "variant": ("parse_json('{\"a\": 1}')", "NULL"),
    "typename": ("'int'", "'string'"),
    "share": ("0.5", "0", "1", "0.25", "array(0.1, 0.9)", "2", "NULL"),
    "when": (
        *("'2024'", "'2024-2'", "'2024-2-9'", "'2024-02-29T'", "'2024-02-29 1:2:3'", "'T10:11'", "'10:11:12'"),
        *("' 2024-02-29 '", "'2024-02-29 10'", "'2024-02-29 10:11'", "'2024-02-29 10:11:12.1234567'", "'epoch'"),
        *("'2024-02-29 10:11:12Z'", "'2024-02-29T10:11:12.5+05:30'", "'2024-02-29 10:11:12 Europe/Paris'"),
        *("'2024-02-29 10:11:12 UTC+3'", "'2024-02-29 10:11:12 -8'", "'2024-02-29 10:11:12+1:00'"),
        *("'2024-13-01'", "'2023-02-29'", "'2024-02-30 00:00:00'", "'2024-02-29 24:00:00'", "'24-02-29'", "''"),
        *("'2024-02-29 10:60:00'", "'+2024-02-29'", "'-0001-01-01'", "'10000-01-01'", "'0000-01-01'", "'20240229'"),
        *("'2024/02/29'", "'2024-02-29 10:11:12.'", "'2024-02-29T10:11:12.123456789Z'", "'2024-02-29x'", "'today'"),
        *("'2024-02-29 x'", "'2024-02-29  10:11:12'", "'2024-02-29 10:11:12.5 PST'", "'2024-3-31T2:30'", "NULL"),
        *("'2024-02-29 10:11:12 +05:30:15'", "'2024-02-29 10:11:12 GMT'", "'2024-02-29T10:11:12+0530'"),
    ),
    "written": (
        *("'1_000'", "'1e5'", "'1E-2'", "'.5'", "'5.'", "'+7'", "'-'", "'0x10'", "'1e400'", "'-1e400'", "'1e-400'"),
        *("'  42\\t'", "'4 2'", "'1,000'", "'12.999'", "'-0.5'", "'127'", "'128'", "'-129'", "'NaN'", "'nan'"),
        *("'inf'", "'-Infinity'", "'+inf'", "'1f'", "'1d'", "'1L'", "'0b1'", "'٣'", "'1e'", "'99999999999.995'"),
        *("'t'", "'YES'", "' true '", "'0'", "'1'", "'off'", "'n'", "'truE'", "''", "NULL", "'2147483648'", "'1.'"),
        *("'9223372036854775808'", "'-9223372036854775808'", "'12345678901234567890123456789012345678901'"),
    ),
    "clock": ("TIME '10:11:12'", "TIME '23:59:59.999999'", "NULL", "TIME '00:00'"),
    "error": ("0.05", "0.01", "2"),
    "separator": ("','", "''", "NULL", "'; '"),
}  # fmt: skip
"""Texts, written out, that a function makes sense of; some that it does not."""

ROWS = 24
COLUMNS: dict[str, str] = {f"{name}_{n}": name for name in TYPES for n in (1, 2)}
"""The columns of the relation ``t``: two of each type. Beside them are ``k``, the number of the row, and
``g``, by which aggregates are grouped."""


def relation(rows: int = ROWS) -> str:
    """``t`` as a SELECT: each column goes through the values of its type in an order of its own."""
    strides = (s for s in count(1) if s % 2 and s % 3 and s % 5 and s % 7 and s % 11)
    columns: dict[str, list[str]] = {}
    for (name, kind), stride in zip(COLUMNS.items(), strides, strict=False):
        pool = VALUES[kind]
        columns[name] = [pool[(row * stride + stride // 7) % len(pool)] for row in range(rows)]
    body = ", ".join(f"({r}, {', '.join(values[r] for values in columns.values())})" for r in range(rows))
    casts = ", ".join(f"CAST({name} AS {TYPES[kind]}) AS {name}" for name, kind in COLUMNS.items())
    return f"SELECT k, k % 5 AS g, {casts} FROM VALUES {body} AS v(k, {', '.join(columns)})"
