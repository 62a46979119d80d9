"""What observers are told about calls that wait. What the caller itself is told is tested in test_blocking."""

import re
from typing import Any

import pytest

from shmreplay.base import waiting
from tests.clients.handles.test_blocking import INFO

STATS = {"num_sessions": 3, "num_chunks": 10, "chunk_steps": 4, "used_chunks": 7, "retired_chunks": 2, "free_chunks": 1}
STATS |= {"num_blocks": 0, "free_blocks": 0, "block_bytes": 0}


def text(side: str, **changes: Any) -> str:
    return waiting.explain({**INFO, **changes}, side, STATS)


def test_a_blocked_insert_is_explained_with_numbers_and_attached_processes() -> None:
    assert text("insert") == (
        "the rate limiter: inserts are as far ahead of samples as it allows; waiting for a sample, there was none yet, "
        "or for set_rate_limiter(); 3 processes are attached; one more insert would raise the difference from 0 to "
        "2.5, above max_diff 1.5 (12 inserts, 2 deletes, 30 samples, at 2.5 samples per insert)"
    )


def test_a_blocked_sample_is_explained_with_numbers_and_attached_processes() -> None:
    assert text("sample", difference=-1.0) == (
        "the rate limiter: samples are as far ahead of inserts as it allows; waiting for an insert, the last was 3 s "
        "ago; 3 processes are attached; one more sample would lower the difference from -1 to -2, below min_diff -1.5 "
        "(12 inserts, 2 deletes, 30 samples, at 2.5 samples per insert)"
    )
    assert text("sample", size=4).startswith("the table has 4 items, and min_size_to_sample is 5; waiting for an")
    assert text("sample", size=1).startswith("the table has 1 item, and min_size_to_sample is 5; waiting for an")
    assert text("sample", size=0, min_size_to_sample=1).startswith("the table is empty; waiting for an insert")


def test_a_full_queue_is_called_full_with_the_last_sample() -> None:
    full = {"count_deletes": True, "samples_per_insert": 1.0, "min_diff": 0.0, "max_diff": 50.0, "difference": 50.0}
    assert text("insert", **full, last_sample_s_ago=0.2) == (
        "the queue is full (50 of 50); waiting for a sample, the last was 0 s ago; 3 processes are attached"
    )


def test_one_process_is_told_of_as_one() -> None:
    assert waiting.explain({**INFO, "size": 4}, "sample", {**STATS, "num_sessions": 1}).endswith(
        "; 1 process is attached"
    )


@pytest.mark.parametrize("side", ["insert", "sample"])
def test_a_pause_and_a_stop_come_before_the_limiter(side: str) -> None:
    paused = text(side, paused_inserts=True, paused_samples=True)
    assert paused.startswith(f"{side}s are paused; `shmreplay resume TABLE`")
    assert text(side, paused_inserts=True, paused_samples=True, is_stopping=True) == waiting.STOPPING


@pytest.mark.parametrize(
    ("side", "figures"),
    [
        ("insert", {}),
        ("insert", {"count_deletes": True, "max_diff": 0.0}),
        ("sample", {"difference": -1.0}),
        ("sample", {"size": 4}),
        ("sample", {"size": 0, "min_size_to_sample": 1}),
    ],
)
def test_who_waits_for_a_side_that_is_paused_is_told_so(side: str, figures: dict[str, Any]) -> None:
    other = {"insert": "samples", "sample": "inserts"}[side]
    assert "paused" not in text(side, **figures)
    assert re.search(
        rf"waiting for an? \w+, (there was none yet|the last was 3 s ago), but {other} are paused; `shmreplay resume "
        r"TABLE` or table\.resume\(\) ends the pause",
        text(side, **figures, **{f"paused_{other}": True}),
    )


def test_a_call_that_was_just_let_go_on_is_not_said_to_be_refused() -> None:
    """Figures read without the lock may be older than the wait of the call that sleeps."""
    together = "the rate limiter admits one more insert now, but not all items that must go in together (difference "
    assert text("insert", difference=-1.25).startswith(f"{together}-1.25; 12 inserts")
    assert text("insert", size=4).startswith(f"{together}0; 12 inserts")
    assert text("sample", difference=0.0).startswith("the rate limiter admits one more sample now (difference 0; 12 in")


def test_an_insert_that_the_limiter_admits_waits_for_room_where_that_is_short() -> None:
    info = {**INFO, "difference": -1.25}
    assert waiting.explain(info, "insert", {**STATS, "free_chunks": 0}) == (
        "the arena has no room for more steps: of 10 chunks of 4 steps, 7 are in use, 2 are still being read, 0 are "
        "free; 3 processes are attached"
    )
    blocks = {**STATS, "num_blocks": 500, "block_bytes": 64}
    assert waiting.explain(info, "insert", {**blocks, "free_blocks": 3}) == (
        "the arena has no room for more steps: of 10 chunks of 4 steps, 7 are in use, 2 are still being read, 1 are "
        "free; of 500 blocks of 64 bytes in the heap, 3 are free; 3 processes are attached"
    )
    assert "no room" not in waiting.explain(info, "insert", {**blocks, "free_blocks": 100})
    assert "no room" not in waiting.explain(INFO, "insert", {**STATS, "free_chunks": 0})  # the limiter it is
