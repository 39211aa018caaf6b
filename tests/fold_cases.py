"""Running UPDATE, DELETE, MERGE and UPSERT, each with a model that applies one event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Event = dict[str, Any]


def minus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


def plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def equal(a: int | None, b: int | None) -> bool:
    return a is not None and a == b


def at_least(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a >= b


# each statement with its model: (rows, event, log) → rows

Model = Callable[[list[Row], Event, list[Row]], list[Row]]


def update(matches: Callable[[Row, Event], bool], change: Callable[[Row, Event], Row]) -> Model:
    def model(rows: list[Row], event: Event, log: list[Row]) -> list[Row]:
        made = []
        for row in rows:
            new = row
            if matches(row, event):
                new = row | change(row, event)
                log.append({"id": new["id"], "x": new["x"], "a": event["a"]})
            made.append(new)
        return made

    return model


def merge(on: Callable[[Row, Event], bool], *, keyed: bool = False) -> Model:
    def model(rows: list[Row], event: Event, log: list[Row]) -> list[Row]:
        if not any(on(r, event) for r in rows):
            kept = [r for r in rows if not keyed or r["id"] != event["id"]]
            return [*kept, {"id": event["id"], "x": event["a"], "y": 0}] if event["b"] != 1 else rows
        made = []
        for row in rows:
            if on(row, event) and equal(event["b"], 2):
                continue
            if on(row, event) and at_least(row["x"], event["a"]):
                row = row | {"x": minus(row["x"], event["a"]), "y": plus(row["y"], 1)}
            made.append(row)
        return made

    return model


MERGE = """MERGE INTO {t} t USING e ON {on}
WHEN MATCHED AND e.b = 2 THEN DELETE
WHEN MATCHED AND t.x >= e.a THEN UPDATE SET x = t.x - e.a, y = t.y + 1
WHEN NOT MATCHED AND COALESCE(e.b, 0) <> 1 THEN INSERT (id, x, y) VALUES (e.id, e.a, 0)"""

Z = {0: 1, 1: 2, 2: None}

CASES: dict[str, tuple[str, str, Model]] = {
    "sum": (
        "t",
        "UPDATE t SET x = x - e.a FROM e WHERE t.id = e.id",
        update(lambda r, e: equal(r["id"], e["id"]), lambda r, e: {"x": minus(r["x"], e["a"])}),
    ),
    "last": (
        "u",
        "UPDATE u SET x = e.a, y = e.b FROM e WHERE u.id = e.id",
        update(lambda r, e: equal(r["id"], e["id"]), lambda r, e: {"x": e["a"], "y": e["b"]}),
    ),
    "guarded": (
        "t",
        "UPDATE t SET x = x - e.a, y = x FROM e WHERE t.id = e.id AND t.x >= e.a RETURNING t.id, t.x, e.a INTO log",
        update(
            lambda r, e: equal(r["id"], e["id"]) and at_least(r["x"], e["a"]),
            lambda r, e: {"x": minus(r["x"], e["a"]), "y": r["x"]},
        ),
    ),
    "chained": (
        "u",
        "UPDATE u SET x = e.b FROM e WHERE u.x = e.a RETURNING u.id, u.x, e.a INTO log",
        update(lambda r, e: equal(r["x"], e["a"]), lambda r, e: {"x": e["b"]}),
    ),
    "everywhere": (
        "u",
        "UPDATE u SET y = y + 1, x = x + e.a FROM e WHERE u.x > e.b OR u.y = e.a",
        update(
            lambda r, e: (at_least(r["x"], e["b"]) and r["x"] != e["b"]) or equal(r["y"], e["a"]),
            lambda r, e: {"y": plus(r["y"], 1), "x": plus(r["x"], e["a"])},
        ),
    ),
    "joined": (
        "t",
        "UPDATE t SET x = x + o.z + (SELECT COUNT(*) FROM other p WHERE p.z <= e.a) FROM e JOIN other o ON o.id = e.id "
        "WHERE t.id = e.id AND t.id IN (SELECT id FROM other)",
        update(
            lambda r, e: equal(r["id"], e["id"]) and e["id"] in Z,
            lambda r, e: {"x": plus(plus(r["x"], Z[e["id"]]), sum(at_least(e["a"], z) for z in Z.values()))},
        ),
    ),
    "deleted": (
        "t",
        "DELETE FROM t USING e WHERE t.id = e.id AND t.x >= e.a RETURNING t.id, t.x, e.a INTO log",
        lambda rows, e, log: [
            r
            for r in rows
            if not (equal(r["id"], e["id"]) and at_least(r["x"], e["a"]))
            or log.append({"id": r["id"], "x": r["x"], "a": e["a"]})  # type: ignore[func-returns-value]
        ],
    ),
    "merge by key": (
        "t",
        MERGE.format(t="t", on="t.id = e.id"),
        merge(lambda r, e: equal(r["id"], e["id"])),
    ),
    "merge by key and more": (
        "t",
        MERGE.format(t="t", on="t.id = e.id AND t.y = e.b"),
        merge(lambda r, e: equal(r["id"], e["id"]) and equal(r["y"], e["b"]), keyed=True),
    ),
    "merge by another column": (
        "t",
        MERGE.format(t="t", on="t.x = e.a"),
        merge(lambda r, e: equal(r["x"], e["a"]), keyed=True),
    ),
    "merge by several rows": (
        "u",
        MERGE.format(t="u", on="t.id = e.id AND t.y >= 0"),
        merge(lambda r, e: equal(r["id"], e["id"]) and at_least(r["y"], 0)),
    ),
    "merge by anything": (
        "u",
        MERGE.format(t="u", on="t.x > e.a"),
        merge(lambda r, e: at_least(r["x"], e["a"]) and r["x"] != e["a"]),
    ),
    "upsert": (
        "u",
        "UPSERT INTO u SELECT id, a, b FROM e ON u.id = e.id",
        lambda rows, e, log: (
            [({"id": e["id"], "x": e["a"], "y": e["b"]} if equal(r["id"], e["id"]) else r) for r in rows]
            if any(equal(r["id"], e["id"]) for r in rows)
            else [*rows, {"id": e["id"], "x": e["a"], "y": e["b"]}]
        ),
    ),
}


def as_set(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return sorted(tuple(str(r[k]) for k in sorted(r)) for r in rows)
