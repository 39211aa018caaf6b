"""What a record may hold for each type, and how rows are handed out."""

from __future__ import annotations

from collections import UserDict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from millpond import App
from millpond.errors import InvalidRecord, QueryFailed
from millpond.records import to_arrow, to_rows
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema

DEC = pa.decimal128(10, 2)
INTS = pa.list_(pa.field("element", pa.int32()))
POINT = pa.struct([pa.field("X", pa.int32()), pa.field("label", pa.string())])
PRICES = pa.map_(pa.string(), DEC)
EAST = timezone(timedelta(hours=2))
NOON = datetime(2024, 1, 1, 12)


def one(dtype: pa.DataType, value: Any) -> Any:
    """The value as it comes back, after a good value of another kind has forced the slow way too."""
    schema = Schema((Column("f", dtype),))
    fast = to_rows(to_arrow(schema, [{"f": value}], what='stream "s"'))[0]["f"]
    twice = to_rows(to_arrow(schema, [{"f": value}, {"f": None}, {"f": value}], what='stream "s"'))
    assert [r["f"] for r in twice] == [fast, None, fast]
    return fast


GOOD: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, True),
    (pa.bool_(), np.bool_(False), False),
    (pa.int8(), -128, -128),
    (pa.int32(), np.int64(5), 5),
    (pa.int64(), 2**63 - 1, 2**63 - 1),
    (pa.float64(), 1, 1.0),
    (pa.float64(), 0.1, 0.1),
    (pa.float64(), 2**53, float(2**53)),
    (pa.float64(), np.float32(0.5), 0.5),
    (pa.float64(), float("inf"), float("inf")),
    (pa.float32(), 0.1, float(np.float32(0.1))),
    (DEC, 5, Decimal("5.00")),
    (DEC, "1.5", Decimal("1.50")),
    (DEC, "-1.500", Decimal("-1.50")),
    (DEC, "1e3", Decimal("1000.00")),
    (DEC, ".5", Decimal("0.50")),
    (DEC, Decimal("99999999.99"), Decimal("99999999.99")),
    (DEC, Decimal("0E+30"), Decimal("0.00")),
    (pa.decimal128(38, 0), 10**38 - 1, Decimal(10**38 - 1)),
    (pa.decimal128(38, 38), "0." + "9" * 38, Decimal("0." + "9" * 38)),
    (pa.string(), "ž", "ž"),
    (pa.binary(), b"\x00", b"\x00"),
    (pa.binary(), bytearray(b"ab"), b"ab"),
    (pa.date32(), date(2024, 2, 29), date(2024, 2, 29)),
    (pa.date32(), "2024-02-29", date(2024, 2, 29)),
    (pa.date32(), datetime(2024, 2, 29), date(2024, 2, 29)),
    (pa.date32(), "2024-02-29T00:00:00", date(2024, 2, 29)),
    (TIMESTAMP, NOON, NOON.replace(tzinfo=UTC)),
    (TIMESTAMP, NOON.replace(tzinfo=EAST), datetime(2024, 1, 1, 10, tzinfo=UTC)),
    (TIMESTAMP, date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)),
    (TIMESTAMP, "2024-01-01T12:00:00Z", NOON.replace(tzinfo=UTC)),
    (TIMESTAMP, "2024-01-01 12:00:00.25+02:00", datetime(2024, 1, 1, 10, 0, 0, 250000, tzinfo=UTC)),
    (TIMESTAMP, "2024-01-01 12:00:00", NOON.replace(tzinfo=UTC)),
    (TIMESTAMP, "2024-01-01", datetime(2024, 1, 1, tzinfo=UTC)),
    (TIMESTAMP, "2024-01-01T12:00:00.123456000Z", NOON.replace(microsecond=123456, tzinfo=UTC)),
    (TIMESTAMP_NTZ, NOON, NOON),
    (TIMESTAMP_NTZ, "2024-01-01T12:00", NOON),
    (pa.duration("us"), timedelta(days=1, microseconds=1), timedelta(days=1, microseconds=1)),
    (INTS, [1, None, 3], [1, None, 3]),
    (INTS, (1,), [1]),
    (INTS, [], []),
    (POINT, {"x": 1, "LABEL": "a"}, {"X": 1, "label": "a"}),
    (POINT, {}, {"X": None, "label": None}),
    (PRICES, {"a": "1.10", "b": None}, {"a": Decimal("1.10"), "b": None}),
    (PRICES, {}, {}),
    (pa.list_(pa.field("element", POINT)), [{"X": 1}, None], [{"X": 1, "label": None}, None]),
]


@pytest.mark.parametrize(("dtype", "value", "expected"), GOOD, ids=lambda v: str(v)[:40])
def test_values_that_fit(dtype: pa.DataType, value: Any, expected: Any) -> None:
    found = one(dtype, value)
    assert found == expected and type(found) is type(expected)
    if isinstance(expected, Decimal):
        assert str(found) == str(expected)


BAD: list[tuple[pa.DataType, Any, str]] = [
    (pa.bool_(), 1, "true or false"),
    (pa.int32(), 1.0, "an int"),
    (pa.int32(), True, "an int"),
    (pa.int32(), "1", "an int"),
    (pa.int32(), 2**31, "out of the range of INT"),
    (pa.int64(), 2**70, "out of the range of BIGINT"),
    (pa.float64(), "1.5", "an int or a float"),
    (pa.float64(), True, "an int or a float"),
    (pa.float64(), Decimal("1.5"), "an int or a float"),
    (pa.float64(), 2**53 + 1, "lose digits"),
    (pa.float64(), 10**400, "lose digits"),
    (pa.float32(), 1e300, "out of the range of FLOAT"),
    (DEC, 1.5, "an int, a Decimal or a decimal string"),
    (DEC, True, "an int, a Decimal or a decimal string"),
    (DEC, "1.555", "lose digits"),
    (DEC, Decimal("0.001"), "lose digits"),
    (DEC, 10**8, "out of the range"),
    (DEC, Decimal("123456789.00"), "out of the range"),
    (DEC, Decimal("NaN"), "not a number"),
    (DEC, "Infinity", "not a decimal number"),
    (DEC, "1_000", "not a decimal number"),
    (DEC, " 1", "not a decimal number"),
    (DEC, "", "not a decimal number"),
    (pa.string(), 1, "a str"),
    (pa.string(), b"a", "a str"),
    (pa.string(), "\ud800", "not valid Unicode"),
    (pa.binary(), "a", "bytes"),
    (pa.date32(), "2024-02-30", "not an ISO date"),
    (pa.date32(), "tomorrow", "not an ISO date"),
    (pa.date32(), NOON, "lose its time of day"),
    (pa.date32(), 19000, "a date or ISO text"),
    (TIMESTAMP, "yesterday", "not an ISO date"),
    (TIMESTAMP, 1700000000, "a datetime or ISO text"),
    (TIMESTAMP, "2024-01-01T12:00:00.1234567Z", "lose digits"),
    (TIMESTAMP, datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))), "out of range"),
    (TIMESTAMP_NTZ, NOON.replace(tzinfo=UTC), "time zone"),
    (TIMESTAMP_NTZ, "2024-01-01T12:00:00Z", "time zone"),
    (pa.duration("us"), 5, "a timedelta"),
    (INTS, "abc", "a list"),
    (INTS, {"a": 1}, "a list"),
    (INTS, [1, "2"], "an int"),
    (POINT, [1], "a dict"),
    (POINT, {"lable": "a"}, "not a field"),
    (POINT, {"x": 1, "X": 2}, "given twice"),
    (PRICES, [("a", 1)], "a dict"),
    (PRICES, {None: 1}, "cannot be NULL"),
    (PRICES, {"a": 1.5}, "decimal string"),
]


@pytest.mark.parametrize(("dtype", "value", "reason"), BAD, ids=lambda v: str(v)[:40])
def test_values_that_do_not_fit_are_refused_by_row_and_field(
    dtype: pa.DataType, value: Any, reason: str
) -> None:
    schema = Schema((Column("n", pa.int32()), Column("F", dtype)))
    records = [{"n": 1, "F": None}, {"n": 2, "F": None}, {"n": 3, "F": value}, {"n": 4, "F": None}]
    with pytest.raises(InvalidRecord, match=reason) as caught:
        to_arrow(schema, records, what='table "t"')
    assert caught.value.row == 2
    assert (caught.value.field or "").startswith("F")
    assert 'row 2 for table "t"' in caught.value.message


def test_a_fault_inside_a_nested_value_is_named_by_its_path() -> None:
    deep = pa.list_(pa.field("element", pa.struct([pa.field("prices", PRICES)])))
    schema = Schema((Column("a", deep),))
    records: list[Any] = [
        {"a": [{"prices": {"x": 1}}]},
        {"a": None},
        {"a": [None, {"prices": {"x": 1, "y": 0.5}}]},
    ]
    with pytest.raises(InvalidRecord) as caught:
        to_arrow(schema, records, what='table "t"')
    assert (caught.value.row, caught.value.field) == (2, "a[1].prices.y")


ITEMS = Schema(
    (Column("id", pa.int64()), Column("Name", pa.string()), Column("price", DEC, nullable=False)), ("id",)
)


def test_missing_fields_are_null_and_names_ignore_case() -> None:
    schema = Schema(ITEMS.columns[:2])
    rows = to_rows(to_arrow(schema, [{"ID": 1, "name": "a"}, {"id": 2}, {}, UserDict(NAME="b")], what="it"))
    assert rows == [
        {"id": 1, "Name": "a"},
        {"id": 2, "Name": None},
        {"id": None, "Name": None},
        {"id": None, "Name": "b"},
    ]


def test_no_records_are_an_empty_table() -> None:
    assert to_arrow(ITEMS, [], what="it").schema == ITEMS.arrow()


@pytest.mark.parametrize(
    ("records", "row", "field", "message"),
    [
        ([{"id": 1, "price": 1}, {"id": 2, "nmae": "x", "price": 1}], 1, "nmae", "not in"),
        ([{"id": 1, "Name": "x", "prize": 1}], 0, "prize", "not in"),
        ([{"id": 1, "price": 1}, {"price": 1}], 1, "id", "primary key"),
        ([{"id": 1, "price": None}], 0, "price", "NOT NULL"),
        ([{"id": 1, "ID": 2, "price": 1}], 0, "id", "given twice"),
        ([{"id": 1, "price": 1}, 7], 1, None, "not a dict"),
    ],
)
def test_records_that_do_not_fit(records: list[Any], row: int, field: str | None, message: str) -> None:
    with pytest.raises(InvalidRecord, match=message) as caught:
        to_arrow(ITEMS, records, what='table "t"')
    assert (caught.value.row, caught.value.field) == (row, field)


def test_an_unknown_field_gets_the_nearest_name() -> None:
    with pytest.raises(InvalidRecord) as caught:
        to_arrow(ITEMS, [{"nmae": "x"}], what='table "t"')
    assert caught.value.hint == 'did you mean "Name"?'


def test_arrow_data_is_matched_by_name_and_cast_without_loss() -> None:
    given = pa.table(
        {
            "PRICE": pa.array(["1.5", "2"]),
            "ID": pa.array([1, 2], pa.uint8()),
            "name": pa.array(["a", None]).dictionary_encode(),
        }
    )
    table = to_arrow(ITEMS, given, what="it")
    assert table.schema == ITEMS.arrow()
    assert to_rows(table)[0] == {"id": 1, "Name": "a", "price": Decimal("1.50")}
    assert to_arrow(ITEMS, given.to_batches()[0], what="it").equals(table)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (pa.array([2**40]), pa.int32()),
        (pa.array([1.0]), pa.int32()),
        (pa.array(["1"]), pa.int32()),
        (pa.array([1.5]), DEC),
        (pa.array([Decimal("1.555")]), DEC),
        (pa.array([Decimal("1.5")]), pa.float64()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([1]), pa.string()),
        (pa.array([b"\xff"]), pa.string()),
        (pa.array([1], pa.timestamp("ns")), TIMESTAMP_NTZ),
        (pa.array([1], pa.timestamp("us", "UTC")), TIMESTAMP_NTZ),
        (pa.array([1], pa.timestamp("s")), pa.date32()),
        (pa.array([True]), pa.int32()),
        (pa.array([[1.5]]), INTS),
        (pa.array([{"Y": 1}]), POINT),
    ],
    ids=str,
)
def test_arrow_data_that_would_lose_something_is_refused(given: pa.Array, dtype: pa.DataType) -> None:
    with pytest.raises(InvalidRecord) as caught:
        to_arrow(Schema((Column("f", dtype),)), pa.table({"F": given}), what="it")
    assert (caught.value.field or "").startswith("f")


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        (
            pa.array([1], pa.timestamp("ms", "Europe/Paris")),
            TIMESTAMP,
            datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
        ),
        (pa.array([1000], pa.timestamp("ns")), TIMESTAMP, datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (pa.array([date(2024, 1, 1)]), TIMESTAMP_NTZ, datetime(2024, 1, 1)),
        (pa.array([7]), DEC, Decimal("7.00")),
        (pa.array([7]), pa.float64(), 7.0),
        (pa.array([{"LABEL": "a"}]), POINT, {"X": None, "label": "a"}),
        (pa.array([[1, None]], pa.large_list(pa.int64())), INTS, [1, None]),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), PRICES, {"a": Decimal("1.00")}),
        (pa.array([None]), POINT, None),
    ],
    ids=str,
)
def test_arrow_data_that_loses_nothing_is_cast(given: pa.Array, dtype: pa.DataType, expected: Any) -> None:
    assert to_rows(to_arrow(Schema((Column("f", dtype),)), pa.table({"f": given}), what="it")) == [
        {"f": expected}
    ]


def test_equal_column_names_get_numbers() -> None:
    table = pa.Table.from_arrays([pa.array([i]) for i in range(4)], names=["id", "id", "id_1", "id"])
    assert to_rows(table) == [{"id": 0, "id_2": 1, "id_1": 2, "id_3": 3}]
    assert to_rows(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a'\"\n{}", "b"])) == [
        {"a'\"\n{}": 1, "b": 2}
    ]


def test_rows_of_chunks_slices_and_many_columns() -> None:
    table = pa.concat_tables(
        [pa.table({"a": [[i], None], "m": pa.array([[("k", i)], []], PRICES)}) for i in (1, 2)]
    )
    assert to_rows(table.slice(1, 2)) == [{"a": None, "m": {}}, {"a": [2], "m": {"k": Decimal("2.00")}}]
    wide = pa.table({f"c{i}": [i, None] for i in range(300)})
    assert to_rows(wide)[0] == {f"c{i}": i for i in range(300)}
    assert to_rows(pa.table({})) == []


@given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=3)
    )
)
def test_decimals_are_exact_or_refused(values: list[Decimal]) -> None:
    schema = Schema((Column("d", pa.decimal128(12, 3)),))
    for form in (list, lambda v: [str(x) for x in v]):
        given_values = form(values)
        records = [{"d": v} for v in given_values]
        if all(abs(v) < 10**9 for v in values):
            assert [r["d"] for r in to_rows(to_arrow(schema, records, what="it"))] == values
        else:
            with pytest.raises(InvalidRecord):
                to_arrow(schema, records, what="it")


def test_many_rows_there_and_back() -> None:
    schema = Schema(
        tuple(
            Column(n, t)
            for n, t in (
                ("id", pa.int64()),
                ("name", pa.string()),
                ("price", pa.float64()),
                ("qty", pa.int32()),
            )
        )
    )
    records = [{"id": i, "name": f"n{i}", "price": i / 2, "qty": i % 9} for i in range(200_000)]
    assert to_rows(to_arrow(schema, records, what="it")) == records


@pytest.mark.parametrize(
    "value",
    [
        "make_date(-1, 1, 1)",
        "timestamp_seconds(253402300800)",
        "make_timestamp_ntz(20000, 1, 1, 0, 0, 0)",
    ],
)
def test_times_that_python_has_not(spark: object, value: str) -> None:
    """They can be stored and taken as Arrow; as a value of Python they are an error in words."""
    with App() as app:
        kind = app.sql(f"SELECT typeof({value}) AS t").rows()[0]["t"]
        app.sql(f"CREATE TABLE t (id INT PRIMARY KEY, k INT, v {kind}); CREATE INDEX by_k ON t (k)")
        app.sql(f"INSERT INTO t SELECT 1, 1, {value}")
        table = app.table("t")
        for take in (
            lambda: app.sql(f"SELECT {value} AS v").rows(),
            lambda: app.sql(f"SELECT array({value}) AS v").rows(),
            lambda: app.sql("SELECT * FROM t WHERE id = 1").rows(),
            lambda: app.sql("SELECT v, id FROM t WHERE k = 1").rows(),
            lambda: app.sql("SELECT MAX(v) AS v FROM t").rows(),
            lambda: table.get_record(1),
            lambda: table.find(k=1),
            lambda: list(table.stream_all()),
        ):
            with pytest.raises(QueryFailed, match="years 1 to 9999") as raised:
                take()
            assert "to_arrow" in (raised.value.hint or "")
        assert app.sql("SELECT * FROM t").to_arrow().num_rows == 1
