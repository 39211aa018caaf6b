"""Tests what every function of SQL that another package offers promises.

class TestTier(FunctionContract):
    name = "tier"
    calls = (("120", "gold"), ("5", "plain"), ("NULL", None))
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from millpond import App
from millpond.errors import TypeMismatch
from millpond.records import to_rows
from millpond.sql.userfunctions import offered_function
from millpond.types import type_name


class FunctionContract:
    """Contains the tests. A subclass has the name of the function, and calls: the arguments as SQL, and the value."""

    name: ClassVar[str]
    calls: ClassVar[tuple[tuple[str, Any], ...]]

    def test_it_is_found_in_any_case_and_listed(self) -> None:
        with App() as app:
            listed = {row["name"] for row in app.sql("SHOW FUNCTIONS").rows()}
            assert self.name.lower() in listed
            for name in (self.name.lower(), self.name.upper()):
                app.sql(f"SELECT {name}({self.calls[0][0]}) AS v").rows()

    def test_calls_have_their_values(self) -> None:
        with App() as app:
            for arguments, value in self.calls:
                found = app.sql(f"SELECT {self.name}({arguments}) AS v").rows()
                assert found == [{"v": value}], arguments

    def test_a_column_of_calls_has_the_declared_type(self) -> None:
        known = offered_function(self.name.lower())
        assert known is not None
        texts = " UNION ALL ".join(
            f"SELECT {i} AS i, {self.name}({arguments}) AS v" for i, (arguments, _) in enumerate(self.calls)
        )
        with App() as app:
            app.sql(f"CREATE TABLE t (i INT PRIMARY KEY, v {type_name(known.returns)})")
            app.sql(f"INSERT INTO t {texts}")
            found = app.sql("SELECT v FROM t ORDER BY i").to_arrow()
        assert found.schema.field("v").type == known.returns
        assert [row["v"] for row in to_rows(found)] == [value for _, value in self.calls]

    def test_null_is_an_argument_like_any_other(self) -> None:
        known = offered_function(self.name.lower())
        assert known is not None
        nulls = ", ".join(f"CAST(NULL AS {type_name(dtype)})" for dtype in known.arguments)
        with App() as app:
            assert len(app.sql(f"SELECT {self.name}({nulls}) AS v").rows()) == 1

    def test_a_wrong_number_of_arguments_is_told(self) -> None:
        known = offered_function(self.name.lower())
        assert known is not None
        with App() as app, pytest.raises(TypeMismatch, match=self.name):
            app.sql(f"SELECT {self.name}({', '.join(['NULL'] * (len(known.arguments) + 1))}) AS v")
