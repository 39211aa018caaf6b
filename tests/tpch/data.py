"""TPC-H: its tables, its queries, and batches of changed orders and line items."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond import App
from millpond.engine import jars
from millpond.query.transaction import Transaction

_HERE = Path(__file__).parent
TABLES = (_HERE / "tables.sql").read_text()
QUERIES = {path.stem: path.read_text() for path in sorted((_HERE / "queries").glob("*.sql"))}
NAMES = ("region", "nation", "part", "supplier", "partsupp", "customer", "orders", "lineitem")
_HELD_BACK = 20
"""One of so many orders is not there at the beginning."""


def generated(scale: str) -> dict[str, pa.Table]:
    """Returns the rows of all tables; they are generated once, and kept in the folder for what tests download."""
    place = jars.cache() / "tpch" / scale
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=place.parent))
        program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
        command = [program, "parquet", "--scale-factor", scale, "--output-dir", made]
        subprocess.run(command, check=True, capture_output=True)
        try:
            made.rename(place)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return {name: _with_strings(pq.read_table(place / f"{name}.parquet")) for name in NAMES}


def _with_strings(rows: pa.Table) -> pa.Table:
    """Returns the rows with texts of the usual type, which every function of Arrow has."""
    fields = [f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f for f in rows.schema]
    return rows.cast(pa.schema(fields))


class Orders:
    """Changes orders and their line items. Those that are not in the tables are held back, to be inserted."""

    def __init__(self, scale: str, random: Random):
        self._random = random
        self._tables = generated(scale)
        keys = self._tables["orders"]["o_orderkey"]
        places = range(0, len(keys), _HELD_BACK)
        self._held_back = keys.take(pa.array(places)).to_pylist()
        self._there = sorted(set(keys.to_pylist()) - set(self._held_back))

    def load(self, app: App) -> None:
        """Fills all tables, without the orders that are held back."""
        for name, rows in self._tables.items():
            column = {"orders": "o_orderkey", "lineitem": "l_orderkey"}.get(name)
            if column is not None:
                rows = rows.filter(pc.invert(pc.is_in(rows[column], pa.array(self._held_back, pa.int64()))))
            app.table(name).bulk_insert(rows.select(list(app.table(name).schema.names)))

    def insert(self, tx: Transaction, rows: int) -> None:
        """Inserts orders with their line items, about so many rows."""
        keys = self._chosen(self._held_back, rows)
        for name, column in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            found = self._of(name, column, keys)
            tx.table(name).bulk_insert(found.select(list(tx.table(name).schema.names)))
        self._there += keys

    def delete(self, tx: Transaction, rows: int) -> None:
        """Deletes orders and their line items by order key, about so many rows."""
        keys = self._chosen(self._there, rows)
        tx.table("orders").bulk_delete(self._of("orders", "o_orderkey", keys).select(["o_orderkey"]))
        lines = self._of("lineitem", "l_orderkey", keys).select(["l_orderkey", "l_linenumber"])
        tx.table("lineitem").bulk_delete(lines)
        self._held_back += keys

    def update(self, tx: Transaction, rows: int) -> None:
        """Updates so many rows: customers, dates, status and prices of orders; parts, suppliers, dates, quantities and
        discounts of line items.
        """
        keys = self._chosen(list(self._there), rows)
        orders, lines = self._of("orders", "o_orderkey", keys), self._of("lineitem", "l_orderkey", keys)
        few = max(1, rows // 5)
        self._updated(tx, "orders", orders.slice(0, few), "o_custkey o_orderdate o_orderstatus o_totalprice")
        if rows > 1:
            columns = "l_partkey l_suppkey l_shipdate l_receiptdate l_quantity l_discount l_returnflag"
            self._updated(tx, "lineitem", lines.slice(0, rows - few), columns)

    def stock(self, tx: Transaction, rows: int) -> None:
        """Updates so many rows of partsupp: how much there is of a part, and what it costs."""
        every = self._tables["partsupp"]
        some = every.take(pa.array(self._random.sample(range(len(every)), rows)))
        self._updated(tx, "partsupp", some, "ps_availqty ps_supplycost")

    def _updated(self, tx: Transaction, table: str, rows: pa.Table, columns: str) -> None:
        """Gives each of some columns the values of other rows of the table."""
        every = self._tables[table]
        for name in columns.split():
            places = pa.array([self._random.randrange(len(every)) for _ in range(len(rows))])
            at = rows.column_names.index(name)
            rows = rows.set_column(at, name, every[name].take(places))
        tx.table(table).bulk_insert(rows.select(list(tx.table(table).schema.names)))

    def _chosen(self, keys: list[int], rows: int) -> list[int]:
        """Takes keys out of a list: an order has four line items."""
        self._random.shuffle(keys)
        found = keys[: max(1, rows // 5)]
        del keys[: len(found)]
        return found

    def _of(self, table: str, column: str, keys: list[int]) -> pa.Table:
        rows = self._tables[table]
        return rows.filter(pc.is_in(rows[column], pa.array(keys, pa.int64())))
