"""What no message of ours may have in it: words of what Millpond is made of."""

from __future__ import annotations

import re

WORDS = (
    r"Binder Error|Parser Error|Catalog Error|Conversion Error|Out of Range Error|Invalid Input Error"
    r"|Not implemented Error|Referenced table|Referenced column|syntax error at or near|Candidate functions"
    r"|SQLSTATE|INTERNAL|internal error|Traceback|duckdb|sqlglot|Py4J|\bjava\.|\borg\.apache|NoneType"
    r"|null_handling|\bUDF|__t\d|__q\d"
)
FOREIGN = re.compile(WORDS, re.IGNORECASE)
