"""An app in Python: a function of ours in SQL, rows that a program sends, a table that follows, rows with types.

Run it with ``python examples/python/rates.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TypedDict

from millpond import App, Error, Result

SQL = """
CREATE STREAM payments (id BIGINT, country STRING, amount DECIMAL(12, 2));
CREATE TABLE rates (country STRING PRIMARY KEY, rate DECIMAL(6, 4));
CREATE TABLE taxed AS
  SELECT p.id, p.country, with_tax(p.amount, r.rate) AS amount
  FROM payments p JOIN rates r ON r.country = p.country;
"""


class Payment(TypedDict):
    id: int
    country: str
    amount: Decimal


def with_tax(amount: Decimal | None, rate: Decimal | None) -> float | None:
    """NULL comes as None."""
    return None if amount is None or rate is None else float(round(amount * (1 + rate), 2))


def payments(count: int) -> Iterator[Payment]:
    for number in range(count):
        yield {"id": number, "country": "DE" if number % 2 else "FR", "amount": Decimal(100 + number)}


def main() -> dict[str, float]:
    app = App()
    app.function(with_tax, arguments=["DECIMAL(12, 2)", "DECIMAL(6, 4)"])
    with app:
        app.sql(SQL)
        app.table("rates").bulk_insert(
            [{"country": "DE", "rate": Decimal("0.19")}, {"country": "FR", "rate": Decimal("0.20")}]
        )
        app.send("payments", list(payments(4)))
        app.drain()
        answer: Result = app.sql("SELECT country, SUM(amount) AS total FROM taxed GROUP BY country")
        try:
            app.send("payments", {"id": 9, "country": "IT", "amount": "much"})
        except Error as error:
            print(error.code, "-", error.message)
        return {row["country"]: row["total"] for row in answer}


if __name__ == "__main__":
    print(main())
