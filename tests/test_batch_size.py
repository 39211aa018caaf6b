from __future__ import annotations

from millpond.engine.sizes import FEWEST_ROWS, MOST_ROWS, TARGET, BatchSize


def test_a_slow_batch_makes_the_next_ones_smaller_and_quick_full_ones_larger() -> None:
    size = BatchSize()
    size.note(MOST_ROWS, TARGET * 4)
    assert size.rows == MOST_ROWS // 4
    size.note(size.rows // 2, TARGET / 10)
    assert size.rows == MOST_ROWS // 4, "it was not full: it says nothing about larger ones"
    size.note(size.rows, TARGET / 10)
    assert size.rows == MOST_ROWS // 2
    for _ in range(30):
        size.note(size.rows, TARGET * 100)
    assert size.rows == FEWEST_ROWS
    for _ in range(30):
        size.note(size.rows, 0.0)
    assert size.rows == MOST_ROWS
    size.note(None, 100.0)
    assert size.rows == MOST_ROWS
