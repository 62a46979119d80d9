"""Calls of the daemon that wait for the lock of an arena, whose holder is stopped."""

import contextlib
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.protocol import Message
from tests.support.children import Child, Fork, look_for_ever, stop_in_a_hold
from tests.support.daemons import DaemonProcess, RawClient
from tests.support.tables import COLUMNS, steps
from tests.support.waiting import WAIT_S

Request = Callable[[sr.Client, float | None], object]

REQUESTS: dict[str, Request] = {
    "reset": lambda client, timeout_s: client.reset("replay", timeout_s),
    "pause": lambda client, timeout_s: client.pause("replay", timeout_s=timeout_s),
    "resume": lambda client, timeout_s: client.resume("replay", timeout_s),
    "set_rate_limiter": lambda client, timeout_s: client.set_rate_limiter(
        "replay", sr.rate_limiters.MinSize(1), timeout_s=timeout_s
    ),
    "drop_table": lambda client, timeout_s: client.drop_table("replay", timeout_s),
    "drop_tables": lambda client, timeout_s: client.drop_tables(["replay", "other"], timeout_s),
}
LATE = r"arena 'replay': process {} has kept the arena's lock for all of timeout_s={}; .* Continue it .SIGCONT."
UNTIMED: list[Message] = [
    {"command": "reset", "table": "replay"},
    {"command": "pause", "table": "replay", "inserts": True, "samples": True},
    {"command": "resume", "table": "replay"},
]


@pytest.fixture
def holder(client: sr.Client, fork: Fork) -> Child:
    """A process that is stopped while it has the lock of the arena of table `replay`. There is a table `other`, too."""
    make = [sr.Table(name, COLUMNS, 20_000, max_streams=4, max_sessions=16) for name in ("replay", "other")]
    client.create_tables(make)
    replay = client.table("replay")
    replay.insert_batch(steps(np.arange(20_000)))
    child = fork(look_for_ever(replay))
    child.receive()
    stop_in_a_hold(child, replay)
    return child


@pytest.fixture
def untimed(daemon: DaemonProcess, holder: Child) -> Iterator[list[RawClient]]:
    """Clients whose requests have no timeout, and wait in the arena of table `replay`."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(daemon.socket)) for _ in UNTIMED]
        for raw, request in zip(clients, UNTIMED, strict=True):
            raw.hello()
            raw.send(request)
        for raw in clients:
            assert "held by process" in raw.answer()["progress"]
        yield clients


def final_answer(raw: RawClient) -> Message:
    """What the daemon answers after all it had to say about the progress."""
    while "progress" in (answer := raw.answer()):
        pass
    return answer


@pytest.mark.crash
@pytest.mark.parametrize("name", sorted(REQUESTS))
@pytest.mark.one_quick
def test_a_timeout_is_kept_behind_requests_without_one_which_all_are_carried_out_in_the_end(
    client: sr.Client, holder: Child, untimed: list[RawClient], name: str
) -> None:
    for timeout_s in (0.2, 0):
        with pytest.raises(sr.ShmReplayError, match=LATE.format(holder.pid, timeout_s)):
            REQUESTS[name](client, timeout_s)
    client.reset("other", 0.2)  # another arena: nobody has its lock
    holder.go_on()
    assert [final_answer(raw) for raw in untimed] == [{"ok": True}] * len(UNTIMED)
    REQUESTS[name](client, WAIT_S)


@pytest.mark.crash
@pytest.mark.long
def test_who_attaches_with_a_timeout_keeps_it_too(
    daemon: DaemonProcess, holder: Child, untimed: list[RawClient], fork: Fork
) -> None:
    def attach(pipe: object) -> str:
        with daemon.connect() as late:
            late.lock_timeout_s = 0.2
            with pytest.raises(sr.ShmReplayError) as error:
                late.table("replay")
        return str(error.value)

    assert re.match(LATE.format(holder.pid, 0.2), fork(attach).result())
