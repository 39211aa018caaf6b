"""Arrays that are made without pyarrow's own function are those that it makes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from millpond.records.arrays import numpy_array

VALUES = {
    pa.int8(): some.integers(-(2**7), 2**7 - 1),
    pa.int32(): some.integers(-(2**31), 2**31 - 1),
    pa.int64(): some.integers(-(2**63), 2**63 - 1),
    pa.float64(): some.floats(),
    pa.string(): some.text(),
}


@pytest.mark.parametrize("dtype", VALUES, ids=str)
@settings(deadline=None, max_examples=50)
@given(data=some.data())
def test_as_pyarrow_makes_them(dtype: pa.DataType, data: some.DataObject) -> None:
    values = data.draw(some.lists(VALUES[dtype]) | some.lists(some.none() | VALUES[dtype]))
    found, expected = numpy_array(values, dtype), pa.array(values, dtype)
    assert found is not None
    found.validate(full=True)
    assert (found.type, found.null_count) == (dtype, expected.null_count)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(128, pa.int8()), (-(2**31) - 1, pa.int32()), (2**63, pa.int64()), ("\ud800", pa.string())],
)
def test_what_does_not_fit(value: object, dtype: pa.DataType) -> None:
    with pytest.raises((OverflowError, UnicodeError)):
        numpy_array([value], dtype)


def test_other_types_are_left_to_pyarrow() -> None:
    assert numpy_array([True], pa.bool_()) is None
    assert numpy_array([1.5, 2**53 + 1], pa.float64()) is None
