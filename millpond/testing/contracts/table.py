"""Tests what every table promises; the tests run over any backend.

A package that has a backend of its own runs them with pytest:

    class TestShelf(TableContract):
        @pytest.fixture
        def new_place(self, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], TablePlace]:
            return lambda: TablePlace("shelf", {"sync": "false"}, tmp_path_factory.mktemp("shelf"))
"""

from __future__ import annotations

from millpond.testing.contracts.alterations import AlterationsSuite
from millpond.testing.contracts.changes import ChangesSuite
from millpond.testing.contracts.reads import ReadsSuite


class TableContract(AlterationsSuite, ChangesSuite, ReadsSuite):
    """Contains the tests. A subclass has a fixture ``new_place``: each call makes a place that nothing has used yet."""
