"""LastSeen: which of N streams go on with the bytes that were kept."""

import numpy as np

from shmreplay.clients.transitions.last_seen import LastSeen


def differing(seen: LastSeen, *arrays: np.ndarray) -> list[bool]:
    found = seen.differs(arrays)
    return [] if found is None else found.tolist()


def test_it_says_which_rows_differ_in_any_array() -> None:
    seen = LastSeen(3)
    one, two = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(3)
    assert differing(seen, one, two) == []  # nothing was kept yet
    seen.keep([one, two])
    assert differing(seen, one.copy(), two.copy()) == []
    one[1, 0] += 1
    two[2] = 7
    assert differing(seen, one, two) == [False, True, True]


def test_it_compares_bytes_so_that_nan_equals_itself() -> None:
    seen = LastSeen(2)
    array = np.array([[np.nan], [0.0]])
    seen.keep([array])
    assert differing(seen, array) == []
    assert differing(seen, np.array([[np.nan], [-0.0]])) == [False, True]


def test_a_mask_keeps_only_its_rows() -> None:
    seen = LastSeen(2)
    seen.keep([np.array([[1, 2], [3, 4]])], np.array([True, False]))
    assert seen.rows[0].tolist() == [[1, 2], [0, 0]]
    seen.keep([np.array([[5, 6], [7, 8]])], np.array([False, True]))
    assert seen.rows[0].tolist() == [[1, 2], [7, 8]]
