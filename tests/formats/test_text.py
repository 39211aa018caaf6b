from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.formats.merge import settle
from millpond.formats.text import Misfit, convert, guess
from millpond.types import TIMESTAMP

WIDE = Context(prec=500, traps=[InvalidOperation])


def fits(text: str, precision: int, scale: int) -> Decimal | None:
    """The value if DECIMAL(precision, scale) holds it exactly."""
    value = Decimal(text)
    scaled = value.scaleb(scale, WIDE)
    exact = scaled == scaled.to_integral_value(context=WIDE) and abs(scaled) < Decimal(10) ** precision
    return value if exact else None


numbers = st.from_regex(r"[+-]?[0-9]{1,45}(\.[0-9]{0,45})?(e-?[0-9]{1,2})?", fullmatch=True)


@settings(deadline=None)
@given(numbers, st.integers(1, 38), st.integers(0, 38))
def test_a_decimal_is_exact_or_a_misfit(text: str, precision: int, scale: int) -> None:
    dtype = pa.decimal128(precision, min(scale, precision))
    expected = fits(text, precision, dtype.scale)
    try:
        found = convert(pa.array(["0", text]), dtype)
    except Misfit as e:
        # Arrow refuses a few values that would fit: those with many zeros after the point.
        assert e.index == 1
        assert expected is None or len(text) > 20
    else:
        found.validate(full=True)
        assert found[1].as_py() == expected


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(-(2**80), 2**80)), min_size=1))
def test_whole_numbers_are_exact_or_a_misfit(values: list[int | None]) -> None:
    texts = pa.array([None if v is None else str(v) for v in values], pa.string())
    bad = [i for i, v in enumerate(values) if v is not None and not -(2**63) <= v < 2**63]
    if bad:
        with pytest.raises(Misfit) as e:
            convert(texts, pa.int64())
        assert e.value.index == bad[0]
    else:
        assert convert(texts, pa.int64()).to_pylist() == values
    assert convert(texts, pa.decimal128(38, 0)).to_pylist() == values


@settings(deadline=None)
@given(st.datetimes())
def test_timestamps_in_every_notation(value: object) -> None:
    text = str(value)
    forms = [text, text.replace(" ", "T"), text + "Z", text + "+00:00", text + "+0000", f" {text} "]
    assert len(set(convert(pa.array(forms), TIMESTAMP).to_pylist())) == 1
    assert guess(pa.array(forms)) == TIMESTAMP


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.text())))
def test_what_is_guessed_can_be_converted(texts: list[str | None]) -> None:
    column = pa.array(texts, pa.string())
    assert len(convert(column, settle(guess(column)))) == len(texts)
