"""Lines of one form are read as the reader that parses each value reads them, or not at all."""

import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import BadData
from millpond.formats.jsonblock import BlockReader, Records
from millpond.formats.jsonflat import read_flat
from millpond.formats.jsonl import JsonLines
from millpond.formats.jsontypes import discover_records
from millpond.formats.jsonvalues import DECODER
from millpond.types import NUMBER, TIMESTAMP, Column, Schema

TYPES = {
    "id": pa.int64(),
    "small": pa.int8(),
    "price": pa.decimal128(10, 2),
    "v": NUMBER,
    "ratio": pa.float64(),
    "part": pa.float32(),
    "ok": pa.bool_(),
    "name": pa.string(),
    "day": pa.date32(),
    "at": TIMESTAMP,
}
SCHEMA = Schema(tuple(Column(name, dtype) for name, dtype in TYPES.items()))
_INTEGERS = (
    "0",
    "-0",
    "7",
    "-1",
    "127",
    "128",
    "9223372036854775807",
    "9223372036854775808",
    "00",
    "01",
    "+1",
)
_NUMBERS = (
    "0.5",
    "-0.5",
    "12.25",
    "1.500",
    "99999999.99",
    "100000000.00",
    "0.001",
    "1e2",
    "1E-3",
    ".5",
    "5.",
    "-",
)
_LONG = (
    "1234567890123456789.5",
    "12345678901234567890.5",
    "0.12345678901234567891",
    "1.2.3",
    "NaN",
    "- 1",
    "0x1F",
)
_TEXTS = (
    '"a"',
    '""',
    '"a, b: {c}"',
    '": x"',
    '"ü"',
    '"1"',
    '"null"',
    '"2024-02-29"',
    '"2024-01-01T10:00:00Z"',
    '"a"b"',
)
_WORDS = ("true", "false", "null", "nul", "nulls", "falsy", "True")
_LIKELY = {
    pa.int64(): ("1", "-20", "300"),
    pa.int8(): ("1", "-2", "3"),
    pa.decimal128(10, 2): ("1", "2.50", "-0.25"),
    NUMBER: ("1", "2.50", "-0.125", "1234567890123456789.5"),
    pa.float64(): ("1", "2.5", "-0.1"),
    pa.float32(): ("1", "2.5", "-0.1"),
    pa.bool_(): ("true", "false"),
    pa.string(): ('"a"', '""', '"a, b: c"', '"ü"'),
    pa.date32(): ('"2024-02-29"', '"1999-12-31"'),
    TIMESTAMP: ('"2024-01-01T10:00:00Z"', '"2024-01-01 10:00:00"'),
}


def _oracle(lines: bytes, schema: Schema) -> pa.RecordBatch | None:
    """Parses each line and each value; None if one of them cannot be read."""
    reader = BlockReader(schema, declared=True)
    try:
        rows = [DECODER.decode(line.decode()) for line in lines.split(b"\n")[:-1]]
        if not all(isinstance(row, dict) for row in rows):
            return None
        return reader.read_values(Records(rows, str))
    except (ValueError, BadData):
        return None


def _agrees(lines: bytes, schema: Schema = SCHEMA) -> bool:
    """Returns whether the lines were read; what is read must be right."""
    found = read_flat(lines, schema.arrow())
    if found is not None:
        expected = _oracle(lines, schema)
        assert expected is not None, lines
        assert found.rows.equals(expected), lines
        found.rows.validate(full=True)
    return found is not None


def _line(chance: random.Random, names: list[str], odd: float, form: tuple[str, str, str]) -> str:
    fields = []
    for name in names:
        likely = _LIKELY[TYPES[name]] if name in TYPES else ("1",)
        values = (
            (*_INTEGERS, *_NUMBERS, *_LONG, *_TEXTS, *_WORDS) if chance.random() < odd else (*likely, "null")
        )
        fields.append(f'"{name}":{form[1]}{chance.choice(values)}')
    return "{" + form[0] + f",{form[2]}".join(fields) + form[0] + "}\n"


class TestLinesOfOneForm:
    @pytest.mark.parametrize("seed", range(4))
    def test_values_are_those_of_the_reader_by_value(self, seed: int) -> None:
        chance = random.Random(seed)
        read = 0
        for _ in range(300):
            names = chance.sample([*TYPES, "more"], chance.randint(1, 5))
            form = chance.choice((("", " ", " "), ("", "", ""), (" ", " ", "  ")))
            odd = chance.choice((0, 0, 0.1))
            lines = "".join(_line(chance, names, odd, form) for _ in range(chance.randint(1, 12)))
            read += _agrees(lines.encode())
        assert read > 60

    @pytest.mark.parametrize("seed", range(4))
    def test_a_changed_byte_is_never_read_as_something_else(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(500):
            names = chance.sample([*TYPES, "more"], chance.randint(1, 4))
            lines = bytearray("".join(_line(chance, names, 0, ("", " ", " ")) for _ in range(3)).encode())
            for _ in range(chance.randint(1, 2)):
                at, byte = chance.randrange(len(lines)), chance.choice(b'{}[],:" -+.eE019nultrfas\\\t\n\r')
                if chance.random() < 0.5:
                    lines[at] = byte
                else:
                    lines.insert(at, byte)
            text = bytes(lines)
            if b"\n" in text and text.isascii():
                _agrees(text)

    def test_each_single_value_is_the_one_of_the_reader_by_value(self) -> None:
        """Every odd value in a column of every type, alone and between ordinary ones."""
        for name, dtype in TYPES.items():
            likely = _LIKELY[dtype][0]
            for value in (*_INTEGERS, *_NUMBERS, *_LONG, *_TEXTS, *_WORDS):
                _agrees(f'{{"{name}": {value}}}\n'.encode())
                _agrees(f'{{"{name}": {likely}}}\n{{"{name}": {value}}}\n{{"{name}": {likely}}}\n'.encode())

    def test_what_it_is_made_for_is_read(self) -> None:
        lines = b'{"id": 1, "v": 0.5, "name": "a", "ok": true}\n{"id": 2, "v": 7, "name": null, "ok": null}\n'
        found = read_flat(lines, SCHEMA.arrow())
        assert found is not None
        assert found.rows.select(["id", "v", "name", "ok"]).to_pylist() == [
            {"id": 1, "v": Decimal("0.5"), "name": "a", "ok": True},
            {"id": 2, "v": Decimal(7), "name": None, "ok": None},
        ]

    @pytest.mark.parametrize(
        "lines",
        [
            b'{"id": 1, "name": "a"}\n{"name": "b", "id": 2}\n',
            b'{"id": 1, "name": "a"}\n{"id": 2}\n',
            b'{"id": 1, "id": 2}\n{"id": 1, "id": 2}\n',
            b'{"id": 1, "Name": "a"}\n{"id": 2, "Name": "b"}\n',
            b'{"id": 1, "name": "a\\n"}\n',
            b'{"id": 1, "name": {"x": 1}}\n',
            b'{"id": 1}\n\n{"id": 2}\n',
            b'{"id": 1}\r\n{"id": 2}\r\n',
            b'{"id": 1}\n{"id": 2}',
            b'{"id": 1, "id2": 2}\n{"id": 1, "idx": 2}\n',
            b"{}\n",
            b"\n",
        ],
    )
    def test_other_forms_are_left_to_other_readers(self, lines: bytes) -> None:
        assert read_flat(lines, SCHEMA.arrow()) is None

    def test_other_fields_are_named(self) -> None:
        found = read_flat(b'{"id": 1, "new": "x", "newer": 5}\n', SCHEMA.arrow())
        assert found is not None and found.others == {"new", "newer"}


class TestDiscoveredFromTheFirstLines:
    @pytest.mark.parametrize(
        "odd",
        [
            '{"id": 1, "v": 0.5, "name": "a"}',
            '{"id": 1.5, "v": 0.5, "name": "a"}',
            '{"id": 9223372036854775808, "v": 0.5, "name": "a"}',
            '{"id": 1, "v": 9999999999999999999, "name": "a"}',
            '{"id": 1, "v": 9999999999999999999999, "name": "a"}',
            '{"id": 1, "v": 1e300, "name": "a"}',
            '{"id": 1, "v": 0.5, "name": 5}',
            '{"id": 1, "v": "x", "name": "a"}',
            '{"id": 1, "v": 0.5, "name": "a", "more": true}',
            '{"id": 1, "v": 0.5, "NAME": "a"}',
            '{"id": 1, "v": 0.5, "Name": 1}',
            '{"name": null, "v": null}',
            '{"id": {"x": 1}}',
            "{}",
        ],
    )
    def test_types_are_those_of_all_lines_of_the_sample(self, tmp_path: Path, odd: str) -> None:
        lines = [f'{{"id": {i}, "v": {i / 2}, "name": "n{i}"}}' for i in range(200)]
        lines[180] = odd
        (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
        expected = discover_records(DECODER.decode(line) for line in lines)
        assert JsonLines().discover(str(tmp_path / "a.jsonl")) == expected


class TestWideNumbers:
    def test_a_number_with_too_many_digits_does_not_become_another(self) -> None:
        """Nested, so that Arrow's reader reads them."""
        schema = Schema((Column("s", pa.struct([pa.field("v", NUMBER)])),))
        reader = BlockReader(schema, declared=True)
        for digits in range(1, 60):
            for text in ("9" * digits, "-" + "9" * digits + ".5", "1e" + str(digits), "0." + "1" * digits):
                lines = f'{{"s": {{"v": {text}}}}}\n'.encode()
                found = reader.read_native(lines)
                if found is not None:
                    assert found.to_pylist() == [{"s": {"v": Decimal(text)}}]
