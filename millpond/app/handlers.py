"""Declares the handler of a checked statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.checked import Checked
from millpond.store.undo import Undo

Handler = Callable[[Checked, Undo], Result]
Handlers = Mapping[type[st.Statement], Handler]
NOTHING = pa.table({})
