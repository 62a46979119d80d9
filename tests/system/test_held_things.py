"""What a dead process held can be used again, even while the daemon is down; calls wait for a stopped holder."""

import concurrent.futures
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_directory import find_checkpoints
from shmreplay.checkpoints.checkpoint_file import verify
from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.writers.writer import Writer
from tests.support.children import Child, Fork, fork, look_for_ever, stop_in_a_hold
from tests.support.daemons import DaemonProcess
from tests.support.tables import COLUMNS, check, numbers, step, steps
from tests.support.waiting import WAIT_S, eventually

__all__ = ["fork"]


class Scene:
    """A table of this process, and a daemon that is killed once every child is attached."""

    def __init__(self, daemon: DaemonProcess, client: sr.Client) -> None:
        self.daemon = daemon
        self.client = client

    def table(self, max_size: int = 100, **options: Any) -> TableHandle:
        options = {"max_streams": 4, "max_sessions": 16, **options}
        self.client.create_tables([sr.Table("replay", COLUMNS, max_size, **options)])
        return self.client.table("replay")

    def queue(self, max_size: int, **options: Any) -> TableHandle:
        options = {"max_streams": 4, "max_sessions": 16, **options}
        self.client.create_tables([sr.Table.queue("replay", COLUMNS, max_size, **options)])
        return self.client.table("replay")


@pytest.fixture
def scene(daemon: DaemonProcess, client: sr.Client) -> Iterator[Scene]:
    scene = Scene(daemon, client)
    yield scene
    assert check(client.table("replay")) == []


def died_with_the_daemon_down(scene: Scene, child: Child) -> None:
    """The child has said what it holds: the daemon dies first, so that it hears of nothing."""
    child.receive()
    scene.daemon.kill()
    child.kill()


def take_all_chunks(table: TableHandle) -> list[Writer]:
    """Writers that hold every chunk there is, of one step each, in their histories."""
    writers = []
    for _ in range(2):
        writers.append(table.writer(history=20))
        try:
            for number in range(20):
                writers[-1].append(step(number), timeout_s=0.0)
        except sr.RateLimitTimeout:
            break
    assert table._arena.stats()["free_chunks"] == 0
    return writers


@pytest.mark.crash
def test_streams_of_dead_processes_can_be_opened_again(scene: Scene, fork: Fork) -> None:
    table = scene.table(max_streams=3)

    def hoard(pipe: Any) -> None:
        writers = [table.writer(history=2) for _ in range(3)]
        for number, writer in enumerate(writers):
            writer.append(step(number))
        pipe.send()
        pipe.recv()

    died_with_the_daemon_down(scene, fork(hoard))
    table.insert(step(7))
    assert numbers(table.sample(1)).tolist() == [7]


@pytest.mark.crash
def test_chunks_and_half_written_steps_of_dead_processes_can_be_used_again(scene: Scene, fork: Fork) -> None:
    table = scene.queue(1, chunk_steps=1, capacity_steps=1)

    def hoard(pipe: Any) -> None:
        half = table.writer(history=1)
        half.append({"n": 77}, partial=True)  # a step that is never finished
        writers = take_all_chunks(table)
        pipe.send(len(writers))
        pipe.recv()

    died_with_the_daemon_down(scene, fork(hoard))
    assert table._arena.stats()["free_chunks"] == 0
    for number in range(5):
        table.insert(step(number), timeout_s=WAIT_S)
        assert numbers(table.sample(1, timeout_s=WAIT_S)).tolist() == [number]


@pytest.mark.crash
def test_chunks_that_a_dead_reader_looked_at_come_back_and_until_then_are_all_that_is_withheld(
    scene: Scene, fork: Fork
) -> None:
    table = scene.table(4, sampler=sr.selectors.Fifo(), chunk_steps=1, capacity_steps=4)
    table.insert_batch(steps(range(4)))

    def look(pipe: Any) -> None:
        with table.view(1) as items:
            pipe.send(int(items[0].data["n"]))
            pipe.recv()

    child = fork(look)
    seen = child.receive()
    child.stop()
    for number in range(10, 60):
        table.insert(step(number), timeout_s=WAIT_S)  # the stopped reader's chunk is missing, no other
    assert sorted(numbers(table.sample(50)).tolist())[0] > seen
    scene.daemon.kill()
    child.kill()
    writers = take_all_chunks(table)
    with pytest.raises(sr.RateLimitTimeout):  # who waits for a chunk takes back what the dead had
        writers[-1].append(step(1), timeout_s=1.5)
    assert table._arena.stats()["retired_chunks"] == 0
    for writer in writers:
        writer.close()


@pytest.mark.crash
def test_a_dead_reader_costs_the_table_no_item_also_while_the_daemon_is_down(scene: Scene, fork: Fork) -> None:
    table = scene.table(8, chunk_steps=1, capacity_steps=8)
    table.insert_batch(steps(range(8)))

    def look_until_chunks_run_out(pipe: Any) -> None:
        views = []
        while table.info().evicted_for_room == 0:
            views.append(table.view(8))
            table.insert_batch(steps(range(8)))
        pipe.send()
        pipe.recv()

    died_with_the_daemon_down(scene, fork(look_until_chunks_run_out))
    before = table.info().evicted_for_room
    for number in range(50):
        table.insert(step(number))
    assert table.info().evicted_for_room == before
    assert len(table) == 8


@pytest.mark.crash
def test_a_sleep_of_the_dead_keeps_no_wake_from_the_living(scene: Scene, fork: Fork) -> None:
    table = scene.queue(4)

    def wait(pipe: Any) -> list[int]:
        pipe.send()
        return [int(n) for n in numbers(table.sample(1))]

    dead, living = fork(wait), fork(wait)
    for child in (dead, living):
        child.receive()
    eventually(lambda: table.info().blocked_samples == 2)
    scene.daemon.kill()
    dead.kill()
    table.insert(step(3))
    assert living.result() == [3]


# --- the lock --------------------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_a_stopped_holder_is_waited_for_and_the_log_says_which_pid_holds_the_lock_and_since_when(
    scene: Scene, fork: Fork, caplog: pytest.LogCaptureFixture
) -> None:
    table = scene.table(20_000)
    table.insert_batch(steps(np.arange(20_000)))
    child = fork(look_for_ever(table))
    child.receive()
    stop_in_a_hold(child, table)
    with caplog.at_level(logging.WARNING, "shmreplay"), concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(table.insert, step(5))
        eventually(lambda: f"process {child.pid}" in caplog.text)
        with pytest.raises(sr.ShmReplayError, match=f"{child.pid}"):
            table.insert(step(6), timeout_s=1.5)
        assert not call.done()
        child.go_on()
        assert call.result(WAIT_S) > 0
    assert "has held the arena's lock for 1 s without releasing it, and is stopped (state T)" in caplog.text
    child.kill()


@pytest.mark.crash
@pytest.mark.parametrize("command", ["pause replay", "reset replay --yes", "drop replay --yes", "peek replay"])
@pytest.mark.one_quick
def test_a_command_gives_up_a_lock_that_is_held_and_nothing_of_it_is_done_later(
    scene: Scene, fork: Fork, command: str
) -> None:
    table = scene.table(20_000)
    table.insert_batch(steps(np.arange(20_000)))
    child = fork(look_for_ever(table))
    child.receive()
    stop_in_a_hold(child, table)
    options = ["--timeout", "1", "--address", scene.daemon.socket]
    ran = subprocess.run(
        [sys.executable, "-m", "shmreplay.clients.cli.main", *command.split(), *options],
        cwd="/", capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    child.kill()
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "lock" in ran.stderr, ran.stderr
    assert "Traceback" not in ran.stderr
    info = scene.client.table("replay").info()
    assert (info.size, info.paused_inserts) == (20_000, False)


@pytest.mark.crash
def test_the_lock_of_a_dead_holder_is_taken_by_the_next_client_and_the_next_daemon(scene: Scene, fork: Fork) -> None:
    table = scene.table(20_000)
    table.insert_batch(steps(np.arange(20_000)))
    before = table._arena.stats()["recoveries"]
    children = [fork(look_for_ever(table)) for _ in range(2)]
    for child in children:
        child.receive()
    stop_in_a_hold(children[0], table)
    children[0].kill()
    table.insert(step(20_001))
    assert table._arena.stats()["recoveries"] == before + 1
    stop_in_a_hold(children[1], table)
    scene.daemon.kill()
    children[1].kill()
    scene.daemon.start()
    eventually(
        lambda: {entry["pid"] for entry in scene.client.stats()["arenas"]["replay"]["sessions"]} == {os.getpid()}
    )
    assert len(table) == 20_000


@pytest.mark.crash
def test_a_daemon_starts_beside_a_stopped_holder_and_serves_the_other_arenas(scene: Scene, fork: Fork) -> None:
    table = scene.table(20_000)
    scene.client.create_tables([sr.Table("other", COLUMNS, 10, max_streams=4, max_sessions=8)])
    table.insert_batch(steps(np.arange(20_000)))
    child = fork(look_for_ever(table))
    child.receive()
    stop_in_a_hold(child, table)
    scene.daemon.kill()
    scene.daemon.start()
    other = scene.client.table("other")
    other.insert(step(1))
    assert sorted(scene.client.tables()) == ["other", "replay"]
    child.go_on()
    table.insert(step(2), timeout_s=WAIT_S)
    child.kill()


IMPATIENT_SAVER = """
import sys
from shmreplay.daemon import main
from shmreplay.daemon.checkpoints import arena_save
arena_save.LOCK_TIMEOUT_S = 2.5
sys.exit(main.main())
"""


@pytest.mark.crash
def test_a_checkpoint_has_the_other_arenas_where_a_stopped_process_holds_the_lock_of_one(
    scene: Scene, fork: Fork, tmp_path: pathlib.Path
) -> None:
    table = scene.table(20_000)
    scene.client.create_tables([sr.Table("other", COLUMNS, 100)])
    scene.client.table("other").insert_batch(steps(range(7)))
    table.insert_batch(steps(np.arange(20_000)))
    child = fork(look_for_ever(table))
    child.receive()
    scene.daemon.kill()
    scene.daemon.start("--checkpoint-dir", str(tmp_path), source=IMPATIENT_SAVER)
    stop_in_a_hold(child, table)
    with pytest.raises(sr.CheckpointFailed) as error:
        scene.client.checkpoint()
    [path] = find_checkpoints(str(tmp_path))
    assert str(error.value).startswith(
        f"checkpoint {path} was saved without arena 'replay', which has table 'replay': process {child.pid} holds the "
    )
    assert [saved["name"] for state in verify(path)["states"] for saved in state["tables"]] == ["other"]
    child.go_on()
    scene.client.checkpoint()
    newest = find_checkpoints(str(tmp_path))[0]
    assert sorted(saved["size"] for state in verify(newest)["states"] for saved in state["tables"]) == [7, 20_000]
    child.kill()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.crash
def test_a_checkpoint_says_which_stopped_process_it_waits_for_and_keeps_the_tables_at_the_stop(
    scene: Scene, fork: Fork, tmp_path: pathlib.Path
) -> None:
    table = scene.table(20_000)
    table.insert_batch(steps(np.arange(20_000)))
    child = fork(look_for_ever(table))
    child.receive()
    scene.daemon.kill()
    scene.daemon.start("--checkpoint-dir", str(tmp_path), "--checkpoint-at-stop", source=IMPATIENT_SAVER)
    stop_in_a_hold(child, table)
    told: list[str] = []
    reason = (
        f"no checkpoint was saved: arena 'replay', .*: process {child.pid} holds the arena.s lock .* continue it "
        ".SIGCONT., or"
    )
    with pytest.raises(sr.CheckpointFailed, match=reason):
        scene.client.checkpoint(on_progress=told.append)
    assert f"its lock is held by process {child.pid}" in told[-1]
    assert scene.daemon.stop() == 1
    child.go_on()
    child.kill()
    scene.daemon.start()
    assert len(table) == 20_000
