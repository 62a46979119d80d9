"""What is said to others of calls that wait; what a caller is told is in test_blocking."""

from typing import Any

import pytest

from shmreplay import waiting
from tests.unit.test_blocking import INFO

STATS = {"num_sessions": 3}


def text(side: str, **changes: Any) -> str:
    return waiting.explain({**INFO, **changes}, side, STATS)


def test_a_blocked_insert_is_explained_with_the_numbers_and_who_is_attached() -> None:
    assert text("insert") == (
        "the rate limiter: 12 inserts, 2 deletes, 30 samples, at 2.5 samples per insert: difference 0; one more insert "
        "would make the difference 2.5, over max_diff 1.5, with the table beyond min_size_to_sample 5. A sample lets "
        "it go on (last one never), or set_rate_limiter(); 3 processes are attached"
    )


def test_a_blocked_sample_is_explained_with_the_numbers_and_who_is_attached() -> None:
    assert text("sample", difference=-1.0) == (
        "the rate limiter: 12 inserts, 2 deletes, 30 samples, at 2.5 samples per insert: difference -1; one more "
        "sample would make the difference -2, under min_diff -1.5. Inserts let it go on (last one 3 s ago); "
        "3 processes are attached"
    )
    assert text("sample", size=4).startswith("the table has 4 items, fewer than the 5 of min_size_to_sample")


def test_one_process_is_told_of_as_one() -> None:
    assert waiting.explain({**INFO, "size": 4}, "sample", {"num_sessions": 1}).endswith("; 1 process is attached")


@pytest.mark.parametrize("side", ["insert", "sample"])
def test_a_pause_and_a_stop_come_before_the_limiter(side: str) -> None:
    paused = text(side, paused_inserts=True, paused_samples=True)
    assert paused.startswith(f"{side}s are paused; table.resume()")
    assert text(side, paused_inserts=True, paused_samples=True, is_stopping=True) == waiting.STOPPING


def test_a_call_that_was_just_let_go_on_is_not_said_to_be_refused() -> None:
    """What is read without the lock may be a moment older than the one who sleeps."""
    assert text("insert", difference=-1.25).endswith("; it admits one more insert now, but not all that go in together")
    assert text("insert", size=4).endswith("; it admits one more insert now, but not all that go in together")
    assert text("sample", difference=0.0).endswith("difference 0; it admits one more sample now")
