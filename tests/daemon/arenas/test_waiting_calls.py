"""How the daemon's log names processes that wait."""

import os
from typing import Any

from shmreplay.base.process_names import process_name
from shmreplay.daemon.arenas.waiting_calls import MAX_NAMED, describe_calls

NOBODY = 2**22 + 77  # above the kernel's largest pid


def wait(pid: int, since_s: float) -> dict[str, Any]:
    return {"pid": pid, "since_s": since_s}


def test_a_process_is_named_once_with_its_longest_wait() -> None:
    own = process_name(os.getpid())
    assert describe_calls([wait(os.getpid(), 11.2), wait(os.getpid(), 13.1)], "insert") == (
        f"2 calls have waited to insert, of process {os.getpid()} ({own!r}) for 13 s"
    )
    assert describe_calls([wait(NOBODY, 1.2)], "sample") == f"1 call has waited to sample, of process {NOBODY} for 1 s"


def test_the_longest_wait_comes_first_and_a_crowd_is_counted() -> None:
    waits = [wait(NOBODY + number, float(number)) for number in range(MAX_NAMED + 3)]
    named = describe_calls(waits, "sample").split(", ")[1:]
    assert named[0] == f"of process {NOBODY + MAX_NAMED + 2} for {MAX_NAMED + 2} s"
    assert named[-1] == "3 more processes"
    assert len(named) == MAX_NAMED + 1


def test_a_process_that_is_gone_or_another_by_now_has_no_name() -> None:
    assert process_name(NOBODY) == ""
    assert process_name(os.getpid(), 1) == ""  # another start time
