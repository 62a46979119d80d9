"""The texts about blocked calls: table, numbers, bound, and which processes could end the wait."""

import logging
from typing import Any

import pytest

import shmreplay as sr
from shmreplay.clients.handles import blocking

NOBODY = 2**22 + 77  # above the kernel's largest pid

SIGNATURE = {"x": sr.ArraySpec((), "int64")}

INFO: dict[str, Any] = {
    "is_stopping": False,
    "paused_inserts": False,
    "paused_samples": False,
    "can_insert": False,
    "count_deletes": False,
    "inserts": 12,
    "deletes": 2,
    "samples": 30,
    "samples_per_insert": 2.5,
    "difference": 0.0,
    "min_diff": -1.5,
    "max_diff": 1.5,
    "min_size_to_sample": 5,
    "size": 10,
    "max_size": 40,
    "last_insert_s_ago": 3.4,
    "last_sample_s_ago": None,
    "blocked_inserts": 0,
    "blocked_samples": 0,
}


class Arena:
    """As much of an arena as the texts need."""

    num_tables = 2

    def __init__(
        self, num_sessions: int = 1, size: int = 10, reads: bool = False, free: int = 1, num_blocks: int = 0
    ) -> None:
        self._num_sessions = num_sessions
        self._size = size
        self._reads = reads
        self._free = free
        self._num_blocks = num_blocks

    def names_chunks(self) -> bool:
        return self._reads

    def table(self, index: int) -> "Table":
        return Table(size=self._size if index == 1 else 0)

    def sessions(self) -> list[dict[str, int]]:
        return [{}] * self._num_sessions

    def stats(self) -> dict[str, int]:
        chunks = {"num_chunks": 10, "chunk_steps": 4, "used_chunks": 7, "retired_chunks": 2, "free_chunks": self._free}
        return {**chunks, "num_blocks": self._num_blocks, "free_blocks": 3, "block_bytes": 64}


class Table:
    """As much of a native table as reports need."""

    def __init__(self, **changes: Any) -> None:
        self._info = {**INFO, **changes}

    def info(self) -> dict[str, Any]:
        return self._info

    @property
    def size(self) -> int:
        return int(self._info["size"])

    def can_insert(self, n: int) -> bool:
        assert n == 1
        return bool(self._info["can_insert"])


def insert_text(num_sessions: int = 1, **changes: Any) -> str:
    return blocking.explain_inserts(Arena(num_sessions), {**INFO, **changes})  # type: ignore[arg-type]


def sample_text(num_sessions: int = 1, **changes: Any) -> str:
    return blocking.explain_samples(Arena(num_sessions), {**INFO, **changes})  # type: ignore[arg-type]


def test_a_blocked_insert_gives_the_limiters_numbers() -> None:
    assert insert_text() == (
        "the rate limiter: inserts are as far ahead of samples as it allows; waiting for a sample, there was none yet, "
        "or for set_rate_limiter(); no other process is attached, so only another thread of this process could end the "
        "wait; one more insert would raise the difference from 0 to 2.5, above max_diff 1.5 (12 inserts, 2 deletes, 30 "
        "samples, at 2.5 samples per insert)"
    )


def test_a_blocked_sample_gives_the_limiters_numbers() -> None:
    assert sample_text(3, difference=-1.0) == (
        "the rate limiter: samples are as far ahead of inserts as it allows; waiting for an insert, the last was 3 s "
        "ago; 2 other processes are attached; one more sample would lower the difference from -1 to -2, below min_diff "
        "-1.5 (12 inserts, 2 deletes, 30 samples, at 2.5 samples per insert)"
    )


def test_a_sample_of_too_small_a_table_says_how_many_are_missing() -> None:
    assert sample_text(2, size=4) == (
        "the table has 4 items, and min_size_to_sample is 5; waiting for an insert, the last was 3 s ago; 1 other "
        "process is attached"
    )


def test_pauses_come_before_anything_else() -> None:
    assert insert_text(paused_inserts=True, can_insert=True).startswith("inserts are paused; `shmreplay resume TABLE`")
    assert sample_text(paused_samples=True, size=0).startswith("samples are paused; `shmreplay resume TABLE`")


def test_a_wait_for_a_side_that_is_paused_says_so() -> None:
    samples, inserts = ("but samples are paused; `shmreplay resume", "but inserts are paused; `shmreplay resume")
    assert samples in insert_text(paused_samples=True)
    assert inserts in sample_text(paused_inserts=True)
    info = {**INFO, "difference": -1.25, "max_diff": 1.5}
    assert samples in blocking.explain_items(Arena(), {**info, "paused_samples": True})  # type: ignore[arg-type]
    assert inserts in blocking.explain_looks(Arena(), {**info, "paused_inserts": True})  # type: ignore[arg-type]
    assert "samples are paused; `shmreplay resume" in insert_text(2, can_insert=True, paused_samples=True)


def test_items_that_go_in_together_wait_though_one_would_be_admitted() -> None:
    """No sum that is not over the bound is said to be."""
    info = {**INFO, "difference": -1.25, "max_diff": 1.5}
    assert blocking.explain_items(Arena(), info).startswith(  # type: ignore[arg-type]  # as much of one as is needed
        "the rate limiter: there is room for one more item, but not for all that must go in together; waiting for a "
        "sample, there was none yet, or for set_rate_limiter(); "
    )
    full = blocking.explain_items(Arena(), INFO)  # type: ignore[arg-type]
    assert "one more insert would raise the difference from 0 to 2.5, above max_diff 1.5" in full


def test_an_insert_that_the_limiter_admits_waits_for_room() -> None:
    assert insert_text(2, can_insert=True) == (
        "the arena has no room for more steps: of 10 chunks of 4 steps, 7 are referred to by items or open writers, 2 "
        "are still being read, 1 are free. The table evicts no items for room: sample or delete some, or create it "
        "with a larger capacity_steps or more max_streams; 1 other process is attached"
    )


def test_chunks_that_open_writers_alone_hold_are_called_theirs() -> None:
    info = {**INFO, "can_insert": True}
    assert blocking.explain_room(Arena(2, size=0), info) == (  # type: ignore[arg-type]
        "the arena has no room for more steps: of 10 chunks of 4 steps, 7 are held by open writers, none by items, 2 "
        "are still being read, 1 are free. Close a writer, or create the table with a larger capacity_steps or more "
        "max_streams; 1 other process is attached"
    )


def test_a_heap_that_is_full_is_told_with_the_bytes_to_plan_by() -> None:
    info = {**INFO, "can_insert": True}
    text = blocking.explain_room(Arena(2, num_blocks=500), info)  # type: ignore[arg-type]
    assert "1 are free; of 500 blocks of 64 bytes in the heap, 3 are free. The table evicts no items" in text
    assert "with a larger capacity_steps, mean_bytes of the columns in the heap, or more max_streams; 1 other" in text


def test_a_process_that_still_reads_what_it_wants_to_write_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    own = (
        "2 are still being read (some by this process itself: a view keeps its chunks until it is released), 0 are free"
    )
    arena = Arena(3, reads=True, free=0)
    assert own in blocking.explain_chunks(arena)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "shmreplay"):
        for second in (1, 2):
            blocking.report_wait(arena, Table(blocked_samples=1), "replay", "blocked", 0, second)  # type: ignore[arg-type]
            blocking.report_wait(Arena(3, reads=True), Table(), "replay", "blocked", 0, second)  # type: ignore[arg-type]
    [record] = caplog.records
    assert record.getMessage().startswith("table 'replay': blocked for 1 s: the rate limiter: ")
    assert own in record.getMessage()


def test_a_bound_that_is_none_is_called_none() -> None:
    assert "below min_diff none" in sample_text(min_diff=-1.7e308)
    assert "above max_diff none" in insert_text(max_diff=1.7e308)


def test_a_look_at_an_empty_table_says_so() -> None:
    assert blocking.explain_looks(Arena(1), {**INFO, "last_insert_s_ago": None}) == (  # type: ignore[arg-type]
        "the table is empty; waiting for an insert, there was none yet; no other process is attached, so only another "
        "thread of this process could end the wait"
    )


def reports(
    caplog: pytest.LogCaptureFixture, what: str, seconds: list[int], num_sessions: int, table: Table
) -> list[str]:
    """The log lines after each of these waiting times, in seconds."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "shmreplay"):
        for second in seconds:
            blocking.report_wait(Arena(num_sessions), table, "replay", what, NOBODY, second)  # type: ignore[arg-type]
    return [record.getMessage() for record in caplog.records]


def test_long_waits_are_logged_after_ten_seconds_and_then_every_minute(caplog: pytest.LogCaptureFixture) -> None:
    texts = reports(caplog, "blocked", list(range(1, 200)), 2, Table(blocked_samples=1))
    assert [text.partition(": blocked for ")[2].partition(" s: ")[0] for text in texts] == ["10", "60", "120", "180"]
    assert texts[0].startswith("table 'replay': blocked for 10 s: the rate limiter: samples are as far ahead")


def test_a_waiting_process_without_a_partner_is_told_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    [text] = reports(caplog, "blocked", [1, 2, 3], 1, Table(blocked_inserts=1))
    assert text.startswith("table 'replay': blocked for 1 s: the rate limiter")
    assert "so only another thread of this process could end the wait" in text


def test_a_report_names_the_side_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    [both] = reports(caplog, "blocked", [10], 2, Table(blocked_inserts=2, blocked_samples=1, size=0))
    assert "one more insert would raise" in both
    assert "the table has 0 items, and" in both
    [chunk] = reports(caplog, "blocked", [10], 2, Table(can_insert=True))
    assert chunk.startswith("table 'replay': blocked for 10 s: of 10 chunks of 4 steps, 7 are referred to")
    [look] = reports(caplog, "blocked", [10], 2, Table(size=0))
    assert look.startswith("table 'replay': blocked for 10 s: the table is empty;")


def test_a_lock_that_one_process_keeps_is_logged_with_its_pid(caplog: pytest.LogCaptureFixture) -> None:
    assert reports(caplog, "lock", [1, 2], 2, Table()) == [
        f"table 'replay': process {NOBODY} has held the arena's lock for {seconds} s without releasing it, and is "
        "not visible in /proc"
        for seconds in (1, 2)
    ]


def test_evictions_for_room_are_told_with_the_capacity_that_it_would_take(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "shmreplay"):
        blocking.report_eviction(Arena(), Table(), sr.Table("replay", SIGNATURE, 40))  # type: ignore[arg-type]
    [record] = caplog.records
    assert record.getMessage().startswith(
        "table 'replay': its steps do not fit: with 10 of 40 items, the oldest are already evicted for room. Its items "
    )
    assert (
        "Create it with capacity_steps=160 or so. This is logged once" in record.getMessage()
    )  # 40 steps hold 10 items


def test_evictions_for_want_of_blocks_are_told_with_the_bytes_to_plan_by(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "shmreplay"):
        blocking.report_eviction(Arena(num_blocks=500), Table(), sr.Table("replay", SIGNATURE, 40))  # type: ignore[arg-type]
    [record] = caplog.records
    text = record.getMessage()
    assert (
        "capacity_steps=160 or so, or with larger mean_bytes if the values of its heap columns are larger. This" in text
    )


@pytest.mark.parametrize(
    ("remover", "name"),
    [
        (sr.selectors.MinHeap(), "MinHeap"),
        (sr.selectors.MaxHeap(), "MaxHeap"),
        (sr.selectors.Prioritized(1.0), "Prioritized"),
    ],
)
def test_evictions_under_a_remover_by_priority_are_blamed_on_chunks_that_one_item_keeps(
    caplog: pytest.LogCaptureFixture, remover: sr.selectors.Selector, name: str
) -> None:
    spec = sr.Table("replay", SIGNATURE, 40, remover=remover)
    with caplog.at_level(logging.WARNING, "shmreplay"):
        blocking.report_eviction(Arena(), Table(), spec)  # type: ignore[arg-type]
    assert [record.getMessage() for record in caplog.records] == [
        f"table 'replay': its steps do not fit: with 10 of 40 items, the oldest are already evicted for room. Its "
        f"remover {name} evicts by priority, and a chunk of 4 steps is free only once all its items are evicted. If "
        "priorities never change, that takes up to 4 times the space; the plan assumed that they change, which takes "
        "2.08 times the space. Create it with capacity_steps=160 or so, or with chunk_steps=1, which avoids this. This "
        "is logged once; info().evicted_for_room counts these items"
    ]
