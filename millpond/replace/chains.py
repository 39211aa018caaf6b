"""Builds a derived stream beside the old one, with the tables and streams that read it, and swaps all in one commit.

A position in a stream means nothing in another one. So what a query fills from the stream is built again from the new
one: each as a table or stream of its own, in an order in which each comes after those that it reads, and each reads the
new ones. Readers see the old ones until the swap, and after it the new ones, all of the same moment. Statements that
have read the stream and cannot be built again, since their rows have left for another table or a sink, are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millpond.alter.alter_table import Alters
from millpond.alter.column_users import User
from millpond.errors import Conflict, Error, InUse, NotSupported
from millpond.replace.meaning import means_the_same
from millpond.replace.queries import QueryWays, refuse_errors_into
from millpond.replace.shadow import Shadow, Shadows
from millpond.replace.swap import Exchange, Swaps
from millpond.replace.ways import Way
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import CheckedStreamAs, CheckedTableAs
from millpond.sql.identity import identity
from millpond.sql.parse import parse
from millpond.sql.printer import print_name
from millpond.sql.reserved_names import is_shadow, without_shadow
from millpond.store.catalog import SavedRelation, saved
from millpond.store.undo import Undo

Filled = CheckedTableAs | CheckedStreamAs


@dataclass(frozen=True)
class Link:
    """Contains what is built again: its entry, the text of the statement that it gets, and its entry with that, where
    another statement than its own has made it.
    """

    entry: SavedRelation
    text: str
    made: SavedRelation | None = None

    @property
    def query(self) -> str:
        return f"{self.entry.kind}:{self.entry.name}"

    @property
    def known(self) -> tuple[object, ...]:
        """Returns what must stay as it is while it is built."""
        return self.entry.text, self.entry.following, self.entry.fingerprint


@dataclass(frozen=True)
class _Built:
    link: Link
    checked: Filled
    shadow: Shadow


@dataclass(frozen=True, eq=False, repr=False)
class Chains:
    """Replaces derived streams together with what reads them."""

    alters: Alters
    shadows: Shadows
    swaps: Swaps
    ways: QueryWays

    def way_of(self, checked: CheckedStreamAs, before: Relation) -> Way:
        """Returns what becomes of a stream that a statement replaces. Raises an error if it cannot be replaced."""
        entry = self.alters.saved.relation(f"stream:{before.name}")
        assert entry is not None
        links = self.links([Link(entry, checked.statement.text)])
        way = self._ways(links)[0][1]
        return replace(way, with_it=tuple(link.entry.name for link in links[1:]))

    def links(self, roots: Sequence[Link]) -> list[Link]:
        """Returns what is built again with some streams, each after those that it reads. Raises an error if something
        reads them that cannot be built again.
        """
        found = {link.query: link for link in roots}
        queue = [link for link in roots if link.entry.kind == "stream"]
        while queue:
            before = self._before(queue.pop())
            for user in self._users(before):
                made = self._link(user, before) if user.name not in found else None
                if made is not None:
                    found[user.name] = made
                    queue += [made] if made.entry.kind == "stream" else []
        reads = {query: set[str]() for query in found}
        for link in found.values():
            for user in self._users(self._before(link)):
                if user.name in reads:
                    reads[user.name].add(link.query)
        return _in_order(found, reads)

    def _users(self, before: Relation) -> list[User]:
        """Returns the running statements that read one of them."""
        own = f"{before.kind}:{before.name}"
        return [u for u in self.alters.users.of(before) if u.pipeline and u.name != own]

    def _link(self, user: User, before: Relation) -> Link | None:
        """Returns what reads a stream as what is built again; None if it ends with the swap."""
        entry = user.entry
        if entry is None and all(s.ephemeral for s in self.alters.runner.statements(user.name)):
            return None
        if not isinstance(entry, SavedRelation):
            raise InUse(
                f'stream "{before.name}" is used by {user.shown}, which has read it up to its position',
                hint="drop it first, and create it again after the change",
            )
        if is_shadow(entry.name):
            table = print_name(without_shadow(entry.name))
            raise InUse(
                f'stream "{before.name}" is used by {user.shown}',
                hint=f"ALTER TABLE {table} SWAP WITH {print_name(entry.name)}, or DROP TABLE {print_name(entry.name)},"
                " first",
            )
        return Link(entry, entry.text if entry.following is None else entry.following[0])

    def replace(self, roots: Sequence[Link], undo: Undo) -> list[str]:
        """Builds streams, and what reads them, and puts all in the place of the old ones; returns their names."""
        links = self.links(roots)
        began = [(link, self._before(link), link.known) for link in links]
        built: list[_Built] = []
        for link in links:
            self._check_same(roots, began)
            before, overlay = self._before(link), self._overlay(built, self._ways(links))
            checked = self._checked(link, overlay)
            shadow = self.shadows.begin(checked, before, undo)
            built.append(_Built(link, checked, shadow))
            self.shadows.catch_up(shadow)
            self._check_built(built)
        self._check_same(roots, began)
        ways = self._ways(links)
        overlay = self._overlay(built, ways)
        for b in built:
            self._check_meaning(b, overlay)
        self.swaps.swap(self._exchanges(built, ways))
        return [link.entry.name for link in links]

    def _check_same(
        self, roots: Sequence[Link], began: Sequence[tuple[Link, Relation, tuple[object, ...]]]
    ) -> None:
        """Raises an error if one of the old ones is not what it was when this began, or others have come to read them:
        the lock is free while something catches up.
        """
        for link, before, known in began:
            entry = self.alters.saved.relation(link.query)
            if self._before(link) is not before or entry is not link.entry or link.known != known:
                raise Conflict(
                    f'{link.entry.kind} "{link.entry.name}" was changed while the new one was built: nothing is'
                    " replaced",
                    hint="run the statement again",
                )
        if [link.query for link in self.links(roots)] != [link.query for link, *_ in began]:
            raise Conflict(
                f'"{began[0][0].entry.name}" stays as it is: other statements have come to read it',
                hint="run the statement again",
            )

    def _check_built(self, built: Sequence[_Built]) -> None:
        """Raises an error if something that is built is gone, or somebody uses it: it loses its name by the swap."""
        own = {b.shadow.query for b in built}
        for b in built:
            self.shadows.check_there(b.shadow)
            users = [u for u in self.alters.users.of(b.shadow.relation) if u.name not in own]
            if users:
                raise InUse(
                    f'"{b.shadow.relation.name}", which is built for {b.shadow.old}, is used by'
                    f" {', '.join(u.shown for u in users)}, which would not find it any more",
                    hint="drop that first, and run the statement again",
                )

    def _overlay(self, built: Sequence[_Built], ways: Sequence[tuple[Filled, Way]]) -> Catalog:
        """Returns the catalog as it is now, but with what is built in the place of the old ones."""
        catalog = self.alters.catalog.copy()
        for b, (_, way) in zip(built, ways, strict=False):
            catalog.let(b.shadow.before.name, b.shadow.relation)
            catalog.add(*(view.relation for view in way.views))
        return catalog

    def _exchanges(self, built: Sequence[_Built], ways: Sequence[tuple[Filled, Way]]) -> list[Exchange]:
        found = []
        for b, (made, way) in zip(built, ways, strict=True):
            for index in self.alters.catalog.indexes(b.shadow.before.name):
                self.alters.store.backend(b.shadow.relation.name).create_index(index.columns)
            found.append(Exchange(b.shadow, self._entry(b.link, made), way.users, way.views))
        return found

    def _ways(self, links: Sequence[Link]) -> list[tuple[Filled, Way]]:
        """Returns the statements, checked as they are after the swap, and what uses each and is not built with it.
        Raises an error if that cannot follow.
        """
        catalog, queries = self.alters.catalog.copy(), [link.query for link in links]
        found: list[tuple[Filled, Way]] = []
        for link in links:
            made, before = self._checked(link, catalog), self._before(link)
            old = self.alters.users.checked(link.entry, self.alters.catalog)
            if found and made.query_options.get("start") == "latest":
                raise InUse(
                    f'stream "{links[0].entry.name}" is used by {link.entry.kind} "{link.entry.name}", which has begun'
                    " at the end of its stream: that is no place in another one",
                    hint="drop it first, and create it again after the change",
                )
            way = self._way(made, old, before, queries)
            catalog.add(made.relation, *(view.relation for view in way.views))
            found.append((made, way))
        return found

    def _entry(self, link: Link, made: Filled) -> SavedRelation:
        entry = saved(made, identity(made.statement))
        if link.made is not None:
            return replace(entry, of_file=link.made.of_file, replaced=link.made.replaced)
        changed = link.entry.following is not None
        return replace(entry, of_file=link.entry.of_file, replaced=() if changed else link.entry.replaced)

    def _before(self, link: Link) -> Relation:
        found = self.alters.catalog.find(link.entry.name)
        if found is None:
            raise Conflict(f'"{link.entry.name}" was dropped while the new one was built')
        return found

    def _checked(self, link: Link, catalog: Catalog) -> Filled:
        parsed = parse(link.text)
        checked = self.alters.checks.anew(parsed.require()[0], parsed.script.place, catalog)
        checked = self.alters.with_types(checked)
        assert isinstance(checked, CheckedTableAs | CheckedStreamAs)
        return checked

    def _check_meaning(self, b: _Built, overlay: Catalog) -> None:
        why = "something that its query reads was changed while it was built"
        try:
            same = means_the_same(b.checked, self._checked(b.link, overlay))
        except Error as error:
            why, same = error.message, False
        if not same:
            raise Conflict(f"{b.shadow.old} stays as it is: {why}", hint="run the statement again")

    def _way(self, checked: Filled, old: object, before: Relation, queries: Sequence[str]) -> Way:
        if isinstance(checked, CheckedTableAs):
            return self.ways.of_table(checked, old, before, queries)
        s = checked.statement
        drop = f"DROP STREAM {print_name(before.name)} first"
        inputs = (*checked.inputs, *(old.inputs if isinstance(old, CheckedStreamAs) else ()))
        if any(i.relation.captured for i in inputs) or checked.form is not None:
            raise NotSupported(
                f'the rows of stream "{before.name}" are the changes of a table: they cannot be made again',
                hint=drop,
                place=s.place,
            )
        refuse_errors_into(s, "stream", drop)
        self._refuse_cycle(checked, before, queries)
        users = [u for u in self.alters.users.of(before) if u.name not in queries and not u.pipeline]
        return self.ways.fitting("chained", users, before, checked)

    def _refuse_cycle(self, checked: CheckedStreamAs, before: Relation, queries: Sequence[str]) -> None:
        names = {
            query.partition(":")[2].lower() for query in queries[queries.index(f"stream:{before.name}") :]
        }
        through = sorted(n for n in checked.reads if n.lower() in names)
        if through:
            raise NotSupported(
                f'stream "{before.name}" would depend on itself, through "{through[0]}"',
                place=checked.statement.place,
            )


def _in_order(found: dict[str, Link], reads: dict[str, set[str]]) -> list[Link]:
    """Returns them in an order in which each comes after those that it reads."""
    ordered: dict[str, Link] = {}
    while len(ordered) < len(found):
        left = {query: reads[query] - ordered.keys() for query in found if query not in ordered}
        ready = [query for query, needed in left.items() if not needed]
        # Tables that are joined with each other have no order.
        ready = (
            ready or [q for q, needed in left.items() if not any(n.startswith("stream:") for n in needed)][:1]
        )
        if not ready:
            raise NotSupported("what is replaced would depend on itself")
        ordered |= {query: found[query] for query in ready}
    return list(ordered.values())
