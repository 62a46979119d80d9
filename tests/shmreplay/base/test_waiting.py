"""What is said to others of calls that wait; what a caller is told is in test_blocking."""

from typing import Any

import pytest

from shmreplay.base import waiting
from tests.clients.handles.test_blocking import INFO

STATS = {"num_sessions": 3, "num_chunks": 10, "chunk_steps": 4, "used_chunks": 7, "retired_chunks": 2, "free_chunks": 1}
STATS |= {"num_blocks": 0, "free_blocks": 0, "block_bytes": 0}


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
    assert waiting.explain({**INFO, "size": 4}, "sample", {**STATS, "num_sessions": 1}).endswith(
        "; 1 process is attached"
    )


@pytest.mark.parametrize("side", ["insert", "sample"])
def test_a_pause_and_a_stop_come_before_the_limiter(side: str) -> None:
    paused = text(side, paused_inserts=True, paused_samples=True)
    assert paused.startswith(f"{side}s are paused; `shmreplay resume TABLE`")
    assert text(side, paused_inserts=True, paused_samples=True, is_stopping=True) == waiting.STOPPING


def test_a_call_that_was_just_let_go_on_is_not_said_to_be_refused() -> None:
    """What is read without the lock may be a moment older than the one who sleeps."""
    assert text("insert", difference=-1.25).endswith("; it admits one more insert now, but not all that go in together")
    assert text("insert", size=4).endswith("; it admits one more insert now, but not all that go in together")
    assert text("sample", difference=0.0).endswith("difference 0; it admits one more sample now")


def test_an_insert_that_the_limiter_admits_waits_for_room_where_that_is_short() -> None:
    info = {**INFO, "difference": -1.25}
    assert waiting.explain(info, "insert", {**STATS, "free_chunks": 0}) == (
        "the arena has no room for more steps: of 10 chunks of 4 steps 7 are in use, 2 are still being read, 0 are "
        "free; 3 processes are attached"
    )
    blocks = {**STATS, "num_blocks": 500, "block_bytes": 64}
    assert waiting.explain(info, "insert", {**blocks, "free_blocks": 3}) == (
        "the arena has no room for more steps: of 10 chunks of 4 steps 7 are in use, 2 are still being read, 1 are "
        "free; of 500 blocks of 64 bytes in the heap 3 are free; 3 processes are attached"
    )
    assert "no room" not in waiting.explain(info, "insert", {**blocks, "free_blocks": 100})
    assert "no room" not in waiting.explain(INFO, "insert", {**STATS, "free_chunks": 0})  # the limiter it is
