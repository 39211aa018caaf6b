"""One suite over every backend, by the contract of millpond/tables/base.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millpond.errors import UnknownName
from millpond.tables import find_backend
from millpond.testing.contracts import TableContract, TablePlace
from tests.contract.places import EVERY, Places


class TestTables(TableContract):
    """The suite that ships, over every backend there is."""

    @pytest.fixture(params=EVERY)
    def new_place(self, request: pytest.FixtureRequest, places: Places) -> Callable[[], TablePlace]:
        return lambda: places.new(request.param)


def test_backends_are_found_by_name() -> None:
    assert find_backend("memory") is find_backend("inMemory") is find_backend("INMEMORY")
    with pytest.raises(UnknownName, match='"memroy"') as caught:
        find_backend("memroy")
    assert "memory" in (caught.value.hint or "")
