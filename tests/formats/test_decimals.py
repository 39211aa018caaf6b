"""Decimals from text: exactly the numbers that were written, or refused; compared with Python's decimals."""

from __future__ import annotations

from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.formats.decimals import decimals_of, is_number
from millpond.formats.text import guess
from millpond.types import NUMBER

TYPES = [NUMBER, pa.decimal128(38, 0), pa.decimal128(10, 2), pa.decimal128(5, 5), pa.decimal128(38, 38)]
digits = st.text("0123456789", min_size=1, max_size=24)
numbers = st.builds(
    lambda sign, whole, fraction, power: sign + whole + fraction + power,
    st.sampled_from(["", "-", "+"]),
    digits,
    st.one_of(st.just(""), st.just("."), digits.map("." .__add__)),
    st.one_of(st.just(""), st.integers(-45, 45).map("e{}".format), st.integers(-45, 45).map("E{:+}".format)),
)  # fmt: skip


def exact(text: str, dtype: pa.DataType) -> Decimal | None:
    """The number, if the type holds it with all its digits."""
    number = Decimal(text)
    scaled = number.scaleb(dtype.scale, context=Context(prec=400)) if number else Decimal(0)
    whole = scaled == scaled.to_integral_value()
    return number if whole and abs(scaled) < 10**dtype.precision else None


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(st.none(), numbers), max_size=8), st.sampled_from(TYPES))
@example(["1.5E2", "-0.0", "1e5", "1E-7", "0E-8", "1.50e1", None], NUMBER)
def test_a_column_is_exactly_what_was_written(texts: list[str | None], dtype: pa.DataType) -> None:
    wanted = [None if t is None else exact(t, dtype) for t in texts]
    fits = all(w is not None or t is None for w, t in zip(wanted, texts, strict=True))
    array = pa.array(texts, pa.string())
    if not fits:
        with pytest.raises(pa.ArrowInvalid):
            decimals_of(array, dtype)
        return
    assert decimals_of(array, dtype).to_pylist() == wanted
    # A slice of more has the same numbers, whatever lies beside it.
    more = pa.array(["x", *texts, "1e9"], pa.string()).slice(1, len(texts))
    assert decimals_of(more, dtype).to_pylist() == wanted


@settings(deadline=None, max_examples=300)
@given(numbers)
def test_numbers_that_are_held_are_decimals(text: str) -> None:
    held = exact(text, NUMBER) is not None
    assert is_number(text) == held
    if not text.lstrip("+-").isdigit():
        assert guess(pa.array([text])) == (NUMBER if held else pa.float64())


@pytest.mark.parametrize(
    "text", ["", "x", "1e", "e5", "1e5x", "NaN", "Infinity", "1e12345", "1,5", "0x1F", "1 2", "--1", "."]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    for others in ([], ["1.5"], ["1e2"]):
        with pytest.raises(pa.ArrowInvalid):
            decimals_of(pa.array([*others, text]), NUMBER)


@pytest.mark.parametrize(
    ("texts", "dtype"),
    [
        (["1", "2.5"], NUMBER),
        (["1", "2"], pa.int64()),
        (["1", "12345678901234567890"], pa.decimal128(38, 0)),
        (["0.5", "12345678901234567890"], pa.float64()),
        (["0.5", "NaN"], pa.float64()),
        (["0.5", "-Infinity"], pa.float64()),
        (["0.5", "1e-20"], pa.float64()),
        (["0.5", "1e30"], pa.float64()),
        (["0.5", "1e3"], NUMBER),
        (["0.5", "9223372036854775807"], NUMBER),
        (["0.5", "n/a"], pa.string()),
        (["1" * 39], pa.string()),
    ],
)  # fmt: skip
def test_the_type_that_texts_look_like(texts: list[str], dtype: pa.DataType) -> None:
    assert guess(pa.array(texts)) == dtype
