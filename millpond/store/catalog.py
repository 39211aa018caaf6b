"""Stores the catalog in the journal: each statement that declares something, with the columns that it had."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa

from millpond.alterations import Alterations, ColumnChange, dump_change, load_change
from millpond.journal.catalog import Entry
from millpond.journal.revision import Revision
from millpond.options import Option, find_option
from millpond.sql.catalog import Relation, RelationKind
from millpond.sql.checked import Checked, CheckedCreate, CheckedTable, CheckedTableAs
from millpond.sql.options import limits_of, retention_of, ttl_of
from millpond.sql.parse import Parsed
from millpond.sql.statements import CreateStream, CreateTable, CreateView
from millpond.sql.variable_values import fingerprint_of
from millpond.sql.windowing import has_window
from millpond.tables.registry import find_backend
from millpond.types import Column, Schema


@dataclass(slots=True)
class Saved:
    """Contains a statement that is restored at a restart; each kind has a type of its own."""

    kind: str = field(init=False)
    name: str
    text: str
    identity: str
    of_file: bool = field(default=False, kw_only=True)
    """Whether it is a statement of the app's file: if the file has it no longer, it is dropped."""
    dropping: bool = field(default=False, kw_only=True)
    """Whether an upgrade drops it: it is removed at the next start, when the statements of the file have run."""
    replaced: tuple[str, ...] = field(default=(), kw_only=True)
    """The identities of the statements that it has replaced: a file may still have them."""

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.name.lower()}"

    def entry(self) -> Entry:
        """Returns the entry for the journal. Those of all kinds have the same fields."""
        data: dict[str, Any] = {
            "identity": self.identity,
            "schema": None,
            "options": {},
            "running": False,
            "has_uri": False,
            "live": False,
            "guessed": False,
            "widths": {},
        }
        marks: dict[str, Any] = {name: True for name in ("of_file", "dropping") if getattr(self, name)}
        if self.replaced:
            marks["replaced"] = list(self.replaced)
        return Entry(self.name, self.kind, self.text, data | self.own_fields() | marks)

    def own_fields(self) -> dict[str, Any]:
        """Returns the fields that this kind has a value for."""
        return {}

    @staticmethod
    def of(entry: Entry) -> SavedQuery | SavedIndex | SavedRelation:
        data = entry.data
        marks: dict[str, Any] = {name: data.get(name, False) for name in ("of_file", "dropping")}
        marks["replaced"] = tuple(data.get("replaced", ()))
        if entry.kind == "query":
            return SavedQuery(entry.name, entry.text, data["identity"], data.get("widths", {}), **marks)
        if entry.kind == "index":
            return SavedIndex(entry.name, entry.text, data["identity"], **marks)
        return SavedRelation(
            entry.kind,
            entry.name,
            entry.text,
            data["identity"],
            load_schema(data["schema"]),
            data["options"],
            running=data["running"],
            connected=data["has_uri"],
            live=data.get("live", False),
            guessed=data.get("guessed", False),
            widths=data.get("widths", {}),
            altered=Alterations.load(data.get("altered", ())),
            altered_by=tuple(data.get("altered_by", ())),
            pending=load_change(data["pending"]) if "pending" in data else None,
            pending_by=tuple(data.get("pending_by", ())),
            pending_with=Revision.load(data["pending_with"]) if "pending_with" in data else None,
            first_name=data.get("first_name"),
            changed=data.get("changed", False),
            following=tuple(data["following"]) if "following" in data else None,
            shadowed=data.get("shadowed", False),
            fingerprint=data.get("seal"),
            anchor=data.get("anchor"),
            cascaded={name: tuple(found) for name, found in data.get("cascaded", {}).items()},
            **marks,
        )


@dataclass(slots=True)
class SavedQuery(Saved):
    """Contains a running statement. ``widths`` says how many of the discovered columns of each stream it knows: new
    ones come last.
    """

    kind: str = field(default="query", init=False)
    widths: Mapping[str, int]

    def own_fields(self) -> dict[str, Any]:
        return {"widths": dict(self.widths)}


@dataclass(slots=True)
class SavedIndex(Saved):
    """Contains CREATE INDEX."""

    kind: str = field(default="index", init=False)


@dataclass(slots=True)
class SavedRelation(Saved):
    """Contains the statement that declares a stream, table or view, with its columns. ``connected`` says, for a stream
    with a connector, whether that is read; else the app stores the rows that came from it. ``widths`` is as in
    ``SavedQuery``. ``altered`` are the changes of columns since the statement, and ``altered_by`` the statements of the
    file that changed the table. ``pending`` is a change that the database of the table may have made or not, and
    ``pending_by`` its statement, if that is in the file. ``first_name`` is the name in the statement, if the table has
    got another.
    """

    kind: str
    schema: Schema
    options: Mapping[str, Any]
    running: bool = False
    connected: bool = False
    live: bool = False
    guessed: bool = False
    widths: Mapping[str, int] = field(default_factory=dict)
    altered: Alterations = field(default_factory=Alterations)
    altered_by: tuple[str, ...] = ()
    pending: ColumnChange | None = None
    pending_by: tuple[str, ...] = ()
    pending_with: Revision | None = None
    """What else changes in the catalog with the pending change."""
    first_name: str | None = None
    changed: bool = False
    """Whether the columns are others than those of the text."""
    following: tuple[str, str] | None = None
    """The text and the identity of the statement that it gets when what that fills is built."""
    shadowed: bool = False
    """Whether what is built stays beside it until a statement swaps both."""
    fingerprint: str | None = None
    """What tells the values of the variables in its query apart from others."""
    anchor: Mapping[str, Any] | None = None
    """What the table needs to find its rows again (``FlushedTable.anchor``)."""
    cascaded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The identities of the statements that went with each column that ALTER TABLE … CASCADE has dropped."""

    def own_fields(self) -> dict[str, Any]:
        changed: dict[str, Any] = {"altered": self.altered.dump()} if self.altered.changes else {}
        if self.altered_by:
            changed["altered_by"] = list(self.altered_by)
        if self.pending is not None:
            changed |= {"pending": dump_change(self.pending), "pending_by": list(self.pending_by)}
        if self.first_name is not None:
            changed["first_name"] = self.first_name
        if self.changed:
            changed["changed"] = True
        if self.following is not None:
            changed["following"] = list(self.following)
            changed |= {"shadowed": True} if self.shadowed else {}
        if self.fingerprint is not None:
            changed["seal"] = self.fingerprint
        if self.anchor is not None:
            changed["anchor"] = dict(self.anchor)
        if self.pending_with is not None:
            changed["pending_with"] = self.pending_with.dump()
        if self.cascaded:
            changed["cascaded"] = {name: list(found) for name, found in self.cascaded.items()}
        return changed | {
            "schema": dump_schema(self.schema),
            "options": dict(self.options),
            "running": self.running,
            "has_uri": self.connected,
            "live": self.live,
            "guessed": self.guessed,
            "widths": dict(self.widths),
        }


def table_options(checked: CheckedCreate) -> Mapping[str, Any]:
    """Returns the options of a table; none for a stream or view."""
    return checked.table_options if isinstance(checked, CheckedTable | CheckedTableAs) else {}


def saved(checked: CheckedCreate, identity: str) -> SavedRelation:
    relation = checked.relation
    return SavedRelation(
        relation.kind,
        relation.name,
        checked.statement.text,
        identity,
        relation.schema,
        without_secrets(table_options(checked)),
        running=relation.running,
        connected=relation.uri is not None,
        live=relation.live,
        guessed=relation.guessed,
        widths=widths_of(checked),
        fingerprint=fingerprint_of(checked.statement),
    )


def widths_of(checked: Checked) -> dict[str, int]:
    read = [i.relation for i in checked.inputs]
    return {r.name.lower(): sum(not c.hidden for c in r.schema) for r in read if r.running and r.guessed}


def options_of(entry: SavedRelation, parsed: Parsed) -> dict[str, Any]:
    """Returns the options of a saved table. Secrets are not saved: they come from its text and the environment."""
    statement = parsed.require()[0]
    settings = statement.settings if isinstance(statement, CreateTable) else ()
    found = dict(entry.options) | ({} if entry.anchor is None else {"anchor": entry.anchor})
    for setting in settings:
        option = find_option(_secrets(entry.options), setting.name)
        if option is not None:
            found[option.name] = setting.value
    return found


def without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a table as the journal stores them."""
    names = {o.name for o in _secrets(options)}
    return {name: value for name, value in options.items() if name not in names}


def _secrets(options: Mapping[str, Any]) -> list[Option]:
    declared = find_backend(str(options.get("extension") or "memory")).options
    return [o for o in declared if o.kind == "secret"]


def relation_of(entry: SavedRelation, parsed: Parsed) -> Relation:
    """Returns what a saved statement declares, with the columns it had; a view's query and a stream's URI come from its
    text.
    """
    statement = parsed.require()[0]
    uri = limits = retention = None
    if isinstance(statement, CreateStream):
        limits = limits_of(f'stream "{entry.name}"', statement.settings)
        named = (s.value for s in statement.settings if s.name.lower() == "connector")
        uri = next(named, None) if entry.connected else None
        if uri is None and (statement.query is None or not has_window(statement.query)):
            retention = retention_of(f'stream "{entry.name}"', statement.settings)
    return Relation(
        entry.name,
        cast(RelationKind, entry.kind),
        entry.schema,
        running=entry.running,
        uri=uri,
        query=statement.query if isinstance(statement, CreateView) and entry.kind == "view" else None,
        live=entry.live,
        guessed=entry.guessed,
        strict=entry.options.get("on.conflict") == "error",
        null_keys=bool(entry.options.get("null_keys")),
        watermark=statement.watermark if isinstance(statement, CreateStream) else None,
        limits=limits,
        retention=retention,
        ttl=ttl_of(entry.options) if entry.kind == "table" else None,
        text=entry.text if entry.kind == "view" else "",
    )


def dump_schema(schema: Schema) -> dict[str, Any]:
    arrow = schema.arrow().serialize().to_pybytes()
    defaults = {c.name: c.default for c in schema if c.default is not None}
    return {
        "arrow": base64.b64encode(arrow).decode(),
        "key": list(schema.key),
        "not_null": [c.name for c in schema if not c.nullable],
        "hidden": [c.name for c in schema if c.hidden],
        **({"defaults": defaults} if defaults else {}),
    }


def load_schema(data: dict[str, Any]) -> Schema:
    arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data["arrow"])))
    required, hidden, defaults = set(data["not_null"]), set(data.get("hidden", ())), data.get("defaults", {})
    columns = (
        Column(f.name, f.type, f.name not in required, f.name in hidden, defaults.get(f.name)) for f in arrow
    )
    return Schema(tuple(columns), tuple(data["key"]))
