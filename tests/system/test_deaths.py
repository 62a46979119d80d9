"""Sessions of client processes: kept while the kernel says they live, taken back when it says they died."""

import os
import re
import signal
from typing import Any

import pytest

import shmreplay as sr
from tests.support.daemons import DaemonProcess, Run, table, wait_for_end
from tests.support.waiting import eventually

ATTACH = """
import os, sys
import shmreplay as sr
client = sr.connect(sys.argv[1])
client._attach("replay")
print(os.getpid(), flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


def sessions(client: sr.Client, arena: str = "replay") -> list[dict[str, Any]]:
    found = client.stats()["arenas"][arena]["sessions"]
    return sorted(found, key=lambda entry: int(entry["session"]))


def pids(client: sr.Client) -> list[int]:
    return sorted(entry["pid"] for entry in sessions(client))


@pytest.fixture
def replay(client: sr.Client) -> sr.Client:
    """A client of a daemon that has the table `replay`."""
    client.create_tables([table()])
    return client


def test_a_session_carries_pid_and_start_time_by_the_kernels_word(replay: sr.Client) -> None:
    replay._attach("replay")
    with open("/proc/self/stat", encoding="ascii") as file:
        start_time = int(file.read().rpartition(")")[2].split()[19])
    assert [(entry["pid"], entry["start_time"]) for entry in sessions(replay)] == [(os.getpid(), start_time)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.one_quick
def test_sessions_of_processes_that_die_are_taken_back(
    daemon: DaemonProcess, replay: sr.Client, run_script: Run, number: int
) -> None:
    scripts = [run_script(ATTACH, daemon.socket) for _ in range(3)]
    for script in scripts:
        script.line()
    assert pids(replay) == sorted(script.pid for script in scripts)
    for script in scripts[:2]:
        os.kill(script.pid, number)
    eventually(lambda: pids(replay) == [scripts[2].pid])
    assert replay.stats()["daemon"]["deaths"] == 2
    told = [line for line in daemon.log().splitlines() if "ended while attached" in line]
    assert len(told) == 2
    for script in scripts[:2]:
        text = rf" INFO process {script.pid} \('.+'\) ended while attached; taking back its writers, leases and chunks"
        assert sum(re.search(text + r" in 'replay'$", line) is not None for line in told) == 1


@pytest.mark.long
def test_a_process_that_closed_its_client_ends_without_a_word(
    daemon: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    script = run_script(ATTACH, daemon.socket)
    script.line()
    script.say("client.close()")
    script.line()
    watched = replay.stats()["daemon"]["processes"]
    os.kill(script.pid, signal.SIGKILL)
    eventually(lambda: bool(replay.stats()["daemon"]["processes"] == watched - 1))
    assert replay.stats()["daemon"]["deaths"] == 0
    assert "has ended" not in daemon.log()


def test_a_death_is_noticed_in_every_arena(daemon: DaemonProcess, replay: sr.Client, run_script: Run) -> None:
    replay.create_tables([table("other")])
    script = run_script(ATTACH, daemon.socket)
    script.line()
    script.say('client._attach("other")')
    script.line()
    assert [len(sessions(replay, name)) for name in ("replay", "other")] == [1, 1]
    os.kill(script.pid, signal.SIGKILL)
    eventually(lambda: [len(sessions(replay, name)) for name in ("replay", "other")] == [0, 0])
    assert f"process {script.pid} (" in daemon.log()
    assert "leases and chunks in 'other', 'replay'\n" in daemon.log()


@pytest.mark.long
def test_a_closed_socket_is_not_death(daemon: DaemonProcess, replay: sr.Client, run_script: Run) -> None:
    script = run_script(ATTACH, daemon.socket)
    script.line()
    before = sessions(replay)
    script.say("client.connection.close()")
    script.line()
    eventually(lambda: bool(replay.stats()["daemon"]["clients"] == 1))
    assert sessions(replay) == before
    script.say('client._attach("replay", refresh=True)')
    script.line()
    assert sessions(replay) == before


@pytest.mark.long
def test_a_stopped_process_is_not_dead(daemon: DaemonProcess, replay: sr.Client, run_script: Run) -> None:
    stopped, killed = (run_script(ATTACH, daemon.socket) for _ in range(2))
    for script in (stopped, killed):
        script.line()
    os.kill(stopped.pid, signal.SIGSTOP)
    os.kill(killed.pid, signal.SIGKILL)
    eventually(lambda: pids(replay) == [stopped.pid])
    daemon.kill()
    daemon.start()
    assert pids(replay) == [stopped.pid]
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.say('client._attach("replay", refresh=True)')
    assert stopped.line() == "done"
    assert pids(replay) == [stopped.pid]


@pytest.mark.parametrize("is_zombie", [True, False])
@pytest.mark.one_quick
def test_a_restarted_daemon_keeps_the_living_and_takes_back_the_dead(
    daemon: DaemonProcess, replay: sr.Client, run_script: Run, is_zombie: bool
) -> None:
    living, dead = (run_script(ATTACH, daemon.socket) for _ in range(2))
    for script in (living, dead):
        script.line()
    before = [entry for entry in sessions(replay) if entry["pid"] == living.pid]
    daemon.kill()
    os.kill(dead.pid, signal.SIGKILL)
    if is_zombie:
        wait_for_end(dead.pid)
    else:
        dead.finish()
    daemon.start()
    eventually(lambda: pids(replay) == [living.pid])
    told = f"process {dead.pid} ('" if is_zombie else f"processes that have ended meanwhile: {dead.pid}\n"
    assert told in daemon.log()
    living.say('client._attach("replay", refresh=True)')  # over a new connection, to the same session
    assert living.line() == "done"
    assert sessions(replay) == before
    os.kill(living.pid, signal.SIGKILL)  # watched from its adoption on
    eventually(lambda: pids(replay) == [])


def test_clients_of_one_process_share_a_session_and_the_last_one_gives_it_back(
    daemon: DaemonProcess, replay: sr.Client
) -> None:
    first, second = daemon.connect(), daemon.connect()
    attachments = [first._attach("replay"), second._attach("replay"), first._attach("replay")]
    assert len({id(attachment.arena) for attachment in attachments}) == 1
    assert pids(replay) == [os.getpid()]
    first.close()
    assert pids(replay) == [os.getpid()]
    second.close()
    assert pids(replay) == []


def test_a_forked_child_has_a_session_of_its_own_and_its_death_is_its_own(
    daemon: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    script = run_script(
        """
import os, sys
import shmreplay as sr
client = sr.connect(sys.argv[1])
client._attach("replay")
child = os.fork()
if child == 0:
    client._attach("replay")
    print(os.getpid(), flush=True)
    os.read(0, 1)
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
client._attach("replay", refresh=True)
input()
""",
        daemon.socket,
    )
    child = int(script.line())
    assert pids(replay) == sorted([script.pid, child])
    parent_session = [entry for entry in sessions(replay) if entry["pid"] == script.pid]
    os.kill(child, signal.SIGKILL)
    assert script.line() == str(int(signal.SIGKILL))
    eventually(lambda: pids(replay) == [script.pid])
    assert sessions(replay) == parent_session


@pytest.mark.long
def test_closing_a_client_in_a_forked_child_leaves_the_parents_session(
    daemon: DaemonProcess, replay: sr.Client, run_script: Run
) -> None:
    script = run_script(
        """
import os, sys
import shmreplay as sr
client = sr.connect(sys.argv[1])
client._attach("replay")
child = os.fork()
if child == 0:
    client.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("parent", flush=True)
input()
""",
        daemon.socket,
    )
    script.line()
    assert pids(replay) == [script.pid]


@pytest.mark.long
def test_all_sessions_taken_is_an_error_and_a_death_makes_room(daemon: DaemonProcess, run_script: Run) -> None:
    with daemon.connect() as client:
        client.create_tables([table(max_sessions=1)])
        script = run_script(ATTACH, daemon.socket)
        script.line()
        with pytest.raises(sr.ShmReplayError, match="sessions"):
            client._attach("replay")
        os.kill(script.pid, signal.SIGKILL)
        eventually(lambda: not sessions(client))
        client._attach("replay")


@pytest.mark.long
def test_two_hundred_forked_clients_attach_at_once(daemon: DaemonProcess, replay: sr.Client, run_script: Run) -> None:
    script = run_script(
        """
import os, sys
import shmreplay as sr
client = sr.connect(sys.argv[1])
client._attach("replay")
children = []
done, finish = os.pipe(), os.pipe()
for _ in range(200):
    child = os.fork()
    if child == 0:
        os.close(finish[1])
        try:
            client._attach("replay")
        except BaseException:
            os.write(done[1], b"x")
            raise
        os.write(done[1], b".")
        os.read(finish[0], 1)
        os._exit(0)
    children.append(child)
for _ in children:
    assert os.read(done[0], 1) == b"."
print("attached", flush=True)
input()
os.close(finish[1])
assert {os.waitpid(child, 0)[1] for child in children} == {0}
print("ended", flush=True)
input()
""",
        daemon.socket,
    )
    assert script.line() == "attached"
    assert len(set(pids(replay))) == 201
    script.say()
    assert script.line() == "ended"
    eventually(lambda: pids(replay) == [script.pid])
