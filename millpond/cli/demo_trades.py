"""Generates the trades of the demo, which are the same each time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

PIECE = 10_000
"""How many are sent at once."""
_SYMBOLS = ("ACME", "BOLT", "CRAN", "GRID", "VOLT", "TIDE", "LOAM", "OATS", "MILL", "RAIL")
_CLOSES = (13140, 8795, 22910, 4160, 6725, 50550, 1005, 2680, 1895, 7430)


def make_trades(first: int, count: int) -> list[dict[str, Any]]:
    """Makes so many trades, from one number on: the n-th depends on n alone."""
    opening = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
    rows = []
    for n in range(first, first + count):
        dice = (n * 2_654_435_761) & 0xFFFFFFFF
        which = (dice >> 7) % len(_SYMBOLS)
        rows.append(
            {
                "trade_id": n,
                "user_id": 101 + (dice >> 11) % 9,  # 109 is nobody
                "symbol": _SYMBOLS[which],
                "quantity": 1 + (dice >> 5) % 400,
                "price": Decimal(_CLOSES[which] * (950 + (dice >> 16) % 101) // 1000).scaleb(-2),
                "traded_at": opening + timedelta(milliseconds=50 * n),
            }
        )
    return rows
