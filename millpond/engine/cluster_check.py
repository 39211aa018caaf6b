"""Checks at the start of an app what its executors need: Python, its packages, and the store."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from millpond.engine.row_store import RowStore, folder_of
from millpond.errors import EngineError
from millpond.sql.userfunctions import all_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("millpond")
_PATIENCE = 60.0
"""Seconds to wait for an executor."""
_TAG = "millpond-check"
_WHERE = re.compile(r"\(([^\s()]+) executor (\w+)\)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_OTHER_PYTHON = re.compile(r"different version: ([\d.]+) than that in driver:? ([\d.]+)")
_HOW = "install the same version of Python on all workers, and name it in PYSPARK_PYTHON"


Found = tuple[str, tuple[str, ...], tuple[tuple[str, str], ...], bool]


class Seen(NamedTuple):
    """Contains what one task has found on its host."""

    host: str
    missing: tuple[str, ...]
    """Packages that Millpond needs there."""
    broken: tuple[tuple[str, str], ...]
    """Functions of the app that cannot be loaded there, with the reason."""
    store: bool
    """Whether the store can be seen."""


def check_executors(spark: SparkSession, store: RowStore | None) -> None:
    """Raises EngineError if executors lack what every batch needs. If there is none yet, it is left to the batches."""
    context = spark.sparkContext
    tasks = 2 * max(2, context.defaultParallelism)
    waiting = threading.Timer(_PATIENCE, lambda: context.cancelJobsWithTag(_TAG))
    context.addJobTag(_TAG)
    waiting.start()
    try:
        for seen in context.parallelize(range(tasks), tasks).mapPartitions(_look(store)).collect():
            _judge(Seen(*seen), store)
        if store is not None:
            spark.read.schema("x BIGINT").parquet(store.uri_of("check")).collect()
    except EngineError:
        raise
    except Exception as error:
        if not waiting.is_alive():
            log.warning(
                "no executor of %s has started in %d s: larger batches wait for one (the workers need 1 GB free)",
                context.master,
                _PATIENCE,
            )
            return
        raise explained(str(error), store) from error
    finally:
        waiting.cancel()
        context.removeJobTag(_TAG)


def _judge(seen: Seen, store: RowStore | None) -> None:
    if seen.missing:
        raise EngineError(
            f'executors on host "{seen.host}" lack the Python package {", ".join(seen.missing)}',
            hint="install it there for the Python that PYSPARK_PYTHON names",
        )
    for name, why in seen.broken:
        raise EngineError(
            f'function "{name}" cannot be loaded by executors on host "{seen.host}": {why}',
            hint="install what it imports on all workers, or define it in the program itself",
        )
    if not seen.store and store is not None:
        raise _unseen(store, seen.host)


def _unseen(store: RowStore, host: str) -> EngineError:
    return EngineError(
        f'the store "{store.uri}" cannot be seen by the executor on host "{host}"',
        hint="name a folder that is mounted under the same path on the driver and all workers; without --store"
        " the rows are sent with the work",
    )


def explained(text: str, store: RowStore | None) -> EngineError:
    """Returns what Spark's error of the first job means."""
    where = _WHERE.search(text)
    host = where[1] if where else "unknown"
    if (program := _NO_PROGRAM.search(text)) is not None:
        return EngineError(f'executors on host "{host}" cannot start Python: "{program[1]}"', hint=_HOW)
    if (versions := _OTHER_PYTHON.search(text)) is not None:
        return EngineError(
            f'executors on host "{host}" have Python {versions[1]}, the driver has {versions[2]}', hint=_HOW
        )
    if store is not None and ("FILE_NOT_EXIST" in text or "FileNotFound" in text or store.uri in text):
        return _unseen(store, host)
    return EngineError(
        f"the executors cannot run a first job: {text.strip().partition(chr(10))[0]}", hint="see spark.log"
    )


def _look(store: RowStore | None) -> Callable[[Iterable[int]], Iterator[Found]]:
    """Returns what each task does. It is sent by value: it must not need Millpond to be loaded."""
    from pyspark.cloudpickle import dumps

    functions = [(own.name, dumps(own.call)) for own in all_functions()]  # type: ignore[no-untyped-call]
    folder = None if store is None else folder_of(store.uri)
    path = None if folder is None else str(folder / "check" / "rows.parquet")

    def look(_: Iterable[int]) -> Iterator[Found]:
        import importlib
        import os
        import pickle
        import socket

        missing: list[str] = []
        try:
            for module in ("pyarrow", "millpond.engine.functions", "millpond.engine.reader"):
                importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing.append(str(error.name))
        broken: list[tuple[str, str]] = []
        for name, call in () if missing else functions:
            try:
                pickle.loads(call)
            except Exception as error:
                broken.append((name, str(error)))
        yield socket.gethostname(), tuple(missing), tuple(broken), path is None or os.path.exists(path)

    return look
