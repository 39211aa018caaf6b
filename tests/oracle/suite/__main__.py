"""Runs the files that are named, or all, and writes down how many of their answers are equal: ``same.txt``."""

from __future__ import annotations

import sys
from collections import Counter

from millpond.engine.session import get_session
from tests.oracle.suite import files, share
from tests.oracle.suite.oracle import Theirs
from tests.oracle.suite.ours import outcomes

theirs = Theirs(get_session(master="local[2]"))
for name in sys.argv[1:] or files.names():
    made = Counter(one.how for one in outcomes(theirs.run(name)))
    print(name, dict(made), flush=True)
    share.write({name: made})
