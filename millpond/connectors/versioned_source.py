"""Declares sources whose earlier versions can be read."""

from __future__ import annotations

from abc import abstractmethod

import pyarrow as pa

from millpond.connectors.source import Source


class Versioned(Source):
    """Declares that versions can be listed; the options ``version`` and ``timestamp`` choose one."""

    @abstractmethod
    def history(self) -> pa.Table:
        """Returns the versions that are known, the newest first."""
