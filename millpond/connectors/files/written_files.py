"""Implements what sinks have in common that write files: on this machine, or to an object store."""

from __future__ import annotations

import io
import re
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from millpond.changes import Position
from millpond.connectors.files.layout import LAYOUT_OPTIONS, Layout, Part, layout_of
from millpond.connectors.files.manifest import Publisher, Storage
from millpond.connectors.files.task_files import TaskFiles, parts_of
from millpond.connectors.sink import DELIVERY, DividedSink
from millpond.errors import ConfigurationIssue, ConnectionLost, DataError, InvalidOption
from millpond.options import Option
from millpond.types import Schema


class WrittenFiles(DividedSink):
    """Writes rows to files. Each batch has files of its own, unless rows wait for ``file.interval``."""

    for_clients: ClassVar[bool] = False
    keyed: ClassVar[bool] = False
    everywhere: ClassVar[bool] = False
    """Whether every machine writes to the same place."""
    file_options: ClassVar[tuple[Option, ...]] = (
        *LAYOUT_OPTIONS,
        Option(
            "file.interval",
            "duration",
            "how long rows wait for a file, so that several batches share one; by default each batch has its own",
            0.0,
        ),
        DELIVERY,
    )

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        super().__init__(uri, values, schema)
        self.exact = self.is_exact(self.values)
        self.layout = self._layout(uri, self.values, schema)
        self._publisher: Publisher | None = None
        self._name = ""
        self._owner: str | None = None
        self._waiting = 0
        self._unsettled = False
        """Whether it is closed because waiting rows could not be published: nothing else is unknown then."""

    @classmethod
    def _layout(cls, uri: str, values: Mapping[str, Any], schema: Schema) -> Layout:
        return layout_of(uri, cls.path(uri), values, schema)

    @classmethod
    @abstractmethod
    def path(cls, uri: str) -> str:
        """Returns the path of a URI, of a directory or of a single file."""

    @abstractmethod
    def storage(self) -> Storage: ...

    @classmethod
    def is_exact(cls, values: Mapping[str, Any]) -> bool:
        return bool(values.get("delivery") != "at-least-once")

    @classmethod
    def check_statement(cls, uri: str, values: Mapping[str, Any], schema: Schema, *, running: bool) -> None:
        layout = cls._layout(uri, values, schema)
        if layout.single is not None and running:
            raise InvalidOption(
                f'"{uri}" names one file, and a running statement writes many',
                hint=f"name a directory, WITH ('format' = '{layout.form}')",
            )

    @property
    def guarantee(self) -> str:
        if self.exact:
            return "exactly once: files appear whole, and a manifest names them together with the position"
        return "at least once: files appear whole; a batch that a crash cuts off is written again"

    @property
    def writer(self) -> str:
        return f"the driver or, if Spark evaluates a batch, its executors, as {self.layout.form}"

    @property
    def writes_none(self) -> bool:
        return self.layout.single is not None

    def open(self, name: str) -> Position | None:
        if name != self._name:
            self.close()
            self._owner = None
        self._name = name
        publisher = self._opened()
        return publisher.now.position if self.exact else None

    def _opened(self) -> Publisher:
        """Opens it, again if it was opened before: then no other process may have done so since."""
        try:
            publisher = Publisher(self.storage(), self.layout.root, self._name, self._owner)
        except ConfigurationIssue:
            self._owner = None
            raise
        self._done(publisher)
        return publisher

    def _done(self, publisher: Publisher) -> None:
        """Notes that something has succeeded."""
        self._publisher, self._unsettled = publisher, False
        self._owner, self._waiting = publisher.now.owner, publisher.now.batches

    @property
    def is_open(self) -> bool:
        return self._publisher is not None

    def check(self, rows: pa.Table) -> None:
        self.layout.check(rows)

    def write(self, rows: pa.Table, position: Position | None) -> None:
        if rows.num_rows or self.writes_none:
            self._do(lambda publisher: self._write(publisher, rows, position))

    def task_writer(self, *, local: bool) -> TaskFiles | None:
        publisher = self._publisher
        waits = self.values["file.interval"] or self.layout.single is not None
        if publisher is None or waits or not (local or self.everywhere):
            return None
        return TaskFiles(self.layout, self.storage(), publisher.folder, publisher.now.owner)

    def publish(self, written: pa.Table, position: Position | None) -> None:
        self._do(lambda publisher: self._publish_written(publisher, written, position))

    def _do(self, work: Callable[[Publisher], None]) -> None:
        """Writes something. After an error the sink is closed, unless nothing was written."""
        publisher, self._publisher = self._publisher, None
        if publisher is None:
            raise ConnectionLost(f'"{self.uri}" is not open')
        try:
            work(publisher)
        except DataError:
            self._publisher = publisher  # nothing was written
            raise
        except ConfigurationIssue:
            self._owner = None  # whoever tries it after this error wants to take over
            raise
        self._done(publisher)

    def _write(self, publisher: Publisher, rows: pa.Table, position: Position | None) -> None:
        if self.values["file.interval"] and self.layout.single is None:
            self.layout.check(rows)
            publisher.keep(_packed(rows), position, time.time())
            if self._is_due(publisher):
                self._publish_waiting(publisher)
        else:
            if publisher.now.waiting:  # there was an interval
                self._publish_waiting(publisher)
            self._publish(publisher, rows, position)

    def _publish(self, publisher: Publisher, rows: pa.Table, position: Position | None) -> None:
        single = self.layout.single is not None
        publisher.publish(
            self.layout.files(rows),
            position,
            self._path_of(position),
            replaces=_is_again(publisher, position) or (single and self.values["overwrite"]),
            only=single,
        )

    def _publish_written(self, publisher: Publisher, written: pa.Table, position: Position | None) -> None:
        if publisher.now.waiting:  # there was an interval
            self._publish_waiting(publisher)
        again = _is_again(publisher, position)
        publisher.name(parts_of(written), position, self._path_of(position), replaces=again)

    def _path_of(self, position: Position | None) -> Callable[[Part, int], str]:
        """Returns the path of each file of a batch, by its run."""
        batch = _unique() if position is None else f"{position.batch:08d}"
        return lambda file, run: self.layout.path(file, self._names(batch, run))

    def _names(self, batch: str, run: int) -> dict[str, str]:
        """Returns the parts of a file's name."""
        app, _, query = self._name.partition("-")
        plain = re.sub(r"[:/\\]", "-", query) or "rows"
        return {
            "app": app[:8],
            # Readers leave out names that begin so.
            "query": f"q{plain}" if plain.startswith((".", "_")) else plain,
            "batch": f"{run}-{batch}" if run else batch,
        }

    # rows that wait

    @property
    def waiting(self) -> int | None:
        return self._waiting if self.values["file.interval"] or self._waiting else None

    def settle(self) -> None:
        self._settle(lambda publisher: self._is_due(publisher))

    def make_visible(self) -> None:
        self._settle(lambda publisher: True)

    def _settle(self, due: Callable[[Publisher], bool]) -> None:
        publisher = self._publisher
        if publisher is None:
            if not self._unsettled:
                return
            publisher = self._opened()
        if publisher.now.waiting and due(publisher):
            self._publisher, self._unsettled = None, True
            self._publish_waiting(publisher)
            self._done(publisher)

    def _is_due(self, publisher: Publisher) -> bool:
        now = publisher.now
        since = time.time() - now.since
        # A clock that was set back says nothing about the time that is over.
        return now.size >= self.layout.size or since < 0 or since >= self.values["file.interval"]

    def _publish_waiting(self, publisher: Publisher) -> None:
        rows = pa.concat_tables([_unpacked(data) for data in publisher.kept()], promote_options="default")
        first, last = publisher.now.first, publisher.now.position
        batch = _unique() if first is None or last is None else f"{first:08d}-{last.batch:08d}"
        publisher.publish(
            self.layout.files(rows),
            None,
            lambda file, run: self.layout.path(file, self._names(batch, run)),
            waited=True,
        )

    def forget(self, name: str) -> None:
        self.close()
        self._name, self._owner = name, None
        publisher = Publisher(self.storage(), self.layout.root, name)
        if publisher.now.waiting:
            self._publish_waiting(publisher)
        publisher.forget()

    def close(self) -> None:
        if self._unsettled:
            self._opened()
        publisher, self._publisher = self._publisher, None
        if publisher is None:
            return
        if publisher.now.waiting:
            self._unsettled = True
            self._publish_waiting(publisher)
        self._unsettled, self._waiting = False, 0
        if publisher.now.position is None:
            publisher.forget()


def _is_again(publisher: Publisher, position: Position | None) -> bool:
    """Returns whether the batch was published before."""
    known = publisher.now.position
    return position is not None and known is not None and known.batch >= position.batch


def _unique() -> str:
    """Returns a text in place of the number of a batch, for rows that belong to none."""
    return f"x{uuid.uuid4().hex[:12]}"


def _packed(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)
    return out.getvalue()


def _unpacked(data: bytes) -> pa.Table:
    """Returns the rows of several streams, one after the other."""
    reader, found = pa.BufferReader(data), []
    while reader.tell() < len(data):
        with pa.ipc.open_stream(reader) as stream:
            found.append(stream.read_all())
    return pa.concat_tables(found, promote_options="default")
