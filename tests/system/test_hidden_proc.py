"""A /proc that hides the processes of other users (hidepid=2): a process is not taken for dead because it is hidden."""

import grp
import os
import pathlib
import signal
import tempfile
from collections.abc import Iterator

import numpy as np
import pytest

from tests.daemon.arenas.test_access import NOBODY
from tests.support.daemons import DaemonProcess, Run, new_daemon, table
from tests.support.namespaces import HIDDEN_PROC, in_own_mounts, needs_hidden_proc
from tests.support.waiting import eventually
from tests.system.test_deaths import ATTACH, pids

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="acting as another user takes root"),
    needs_hidden_proc,
]
STEP = {"x": np.zeros(3, np.float32), "n": np.int64(1)}
MAKE_STEP = "import numpy as np; step = {'x': np.zeros(3, np.float32), 'n': np.int64(1)}"


@pytest.fixture
def daemon(nothing_left_by_this_test: None) -> Iterator[DaemonProcess]:
    """One that is not started yet, with its socket where root and user nobody may make one, and nobody else."""
    with tempfile.TemporaryDirectory(prefix="shmreplay-test-", dir="/run") as folder:
        os.chown(folder, NOBODY, -1)
        os.chmod(folder, 0o755)
        daemon = new_daemon(pathlib.Path(folder, "daemon.sock"))
        yield daemon
        daemon.clean_up()


# As a user that sees only itself: opens a writer on each line that comes, and says what came of it.
WRITE = f"""
import os, sys
import shmreplay as sr
sr.Client, sr.TableHandle, sr.Writer, __import__("numpy.random")  # imported while this user may read them
{MAKE_STEP}
path, root_pid, group = sys.argv[1:]
os.setgroups([int(group)])
os.setgid(65534)
os.setuid(65534)
assert not os.path.exists("/proc/" + root_pid)
client = sr.connect(path)
table = client.table("replay")
print("attached", flush=True)
for _ in sys.stdin:
    try:
        with table.writer() as writer:
            writer.append(step)
        print("a stream", flush=True)
    except sr.ShmReplayError as error:
        print(error, flush=True)
"""

# The daemon of a user that sees only itself; the pid stays that of the process that was started.
DAEMON = f"""
import os, sys
if not os.environ.get("SHMREPLAY_TEST_HIDDEN"):
    os.environ["SHMREPLAY_TEST_HIDDEN"] = "1"
    wrapper = {in_own_mounts(HIDDEN_PROC)!r}
    os.execvp(wrapper[0], [*wrapper, sys.executable, "-c", sys.orig_argv[2], *sys.argv[1:]])
import encodings.ascii, gettext, locale, shutil
from shmreplay.daemon.main import main
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
assert not os.path.exists("/proc/1")
sys.exit(main())
"""


def test_what_an_invisible_process_holds_is_taken_back_only_after_its_death(
    daemon: DaemonProcess, run_script: Run
) -> None:
    group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, NOBODY))
    daemon.start("--group", group.gr_name)
    with daemon.connect() as client:
        client.create_tables([table(max_streams=2)])
        own = client.table("replay").writer(history=2)
        own.append(STEP)
        other = run_script(ATTACH, daemon.socket)
        other.line()
        other.say(f"{MAKE_STEP}; writer = client.table('replay').writer(); writer.append(step)")
        assert other.line() == "done"
        hidden = run_script(
            WRITE, daemon.socket, str(os.getpid()), str(group.gr_gid), wrapper=in_own_mounts(HIDDEN_PROC)
        )
        assert hidden.line() == "attached"
        daemon.kill()  # nobody else takes anything back
        hidden.say()
        assert "all streams of the arena are open" in hidden.line()
        os.kill(other.pid, signal.SIGKILL)
        other.finish()
        hidden.say()
        assert hidden.line() == "a stream"
        own.append(STEP)
        own.create_item(length=2)
        own.close()
        assert len(client.table("replay")) == 1
        daemon.start("--group", group.gr_name)


def test_a_daemon_that_does_not_see_its_clients_keeps_the_living_and_takes_back_the_dead(
    daemon: DaemonProcess, run_script: Run
) -> None:
    daemon.start(source=DAEMON)
    with daemon.connect() as client:
        client.create_tables([table()])
        scripts = [run_script(ATTACH, daemon.socket) for _ in range(2)]
        for script in scripts:
            script.line()
        handle = client.table("replay")
        assert pids(client) == sorted([os.getpid(), *(script.pid for script in scripts)])
        os.kill(scripts[0].pid, signal.SIGKILL)
        eventually(lambda: pids(client) == sorted([os.getpid(), scripts[1].pid]))
        daemon.kill()
        os.kill(scripts[1].pid, signal.SIGKILL)
        scripts[1].finish()
        daemon.start(source=DAEMON)
        assert pids(client) == [os.getpid()]
        handle.insert(STEP)
        assert len(handle) == 1
