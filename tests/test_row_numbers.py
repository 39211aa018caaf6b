"""Rows of a table without a key are found by their numbers: many at once as each alone."""

from __future__ import annotations

import random as randoms

import numpy as np
import pytest

from millpond.tables._numbers import RowNumbers


@pytest.mark.parametrize("seed", range(20))
def test_many_rows_are_found_as_each_alone(seed: int) -> None:
    random, known = randoms.Random(seed), RowNumbers()
    newest: dict[int, int] = {}
    for _ in range(random.randrange(1, 30)):
        numbers = {known.next + n for n in range(0, random.randrange(100), random.choice((1, 1, 3)))}
        numbers |= set(random.sample(range(known.next), min(known.next, random.randrange(40))))
        added = sorted(numbers) if random.random() < 0.5 else random.sample(sorted(numbers), len(numbers))
        newest |= {number: known.slots + at for at, number in enumerate(added)}
        known.add(len(added), np.array(added, dtype=np.int64))
        if random.random() < 0.2:  # a compaction leaves the newest slots of the rows that are there
            keep = np.zeros(known.slots, dtype=np.bool_)
            keep[[slot for slot in newest.values() if random.random() < 0.7]] = True
            places = np.cumsum(keep) - 1
            newest = {number: int(places[slot]) for number, slot in newest.items() if keep[slot]}
            known = known.kept(keep)
    asked = np.array([random.randrange(-2, known.next + 5) for _ in range(2_000)], dtype=np.int64)
    expected = [newest.get(int(number), -1) for number in asked]
    assert [int(known.newest(asked[at : at + 1])[0]) for at in range(len(asked))] == expected
    assert known.newest(asked).tolist() == expected
