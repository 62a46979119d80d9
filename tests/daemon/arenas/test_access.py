"""Processes of its user, root or a group may use a daemon, none of another pid namespace. Refusals say what to do."""

import grp
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator

import pytest

import shmreplay as sr
from shmreplay.daemon.arenas.access import Access, Peer
from tests.support.daemons import DaemonProcess, Script, StartDaemon, table

NOBODY = 65534
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="acting as another user takes root")

# As uid and gids of its arguments, connects and says what came of it. Names of the package are imported at first use:
# that of `connect` comes before the change of user, for the interpreter may lie where only root can read.
CONNECT_AS = """
import os, sys
import shmreplay as sr
import shmreplay.clients.client  # while this user may read it
path, uid, *groups = sys.argv[1:]
os.setgroups([int(group) for group in groups])
os.setgid(65534)
os.setuid(int(uid))
try:
    with sr.connect(path, timeout_s=100) as client:
        print("tables", sorted(client.tables()))
        for name in client.tables():
            client._attach(name)
            print("attached", name)
        try:
            client.shutdown()
        except PermissionError as error:
            print("shutdown", error)
except Exception as error:
    print(type(error).__name__, error)
"""


# The same for subcommands, all of which are loaded before.
COMMANDS_AS_NOBODY = """
import gettext, locale, os, sys
import shmreplay.clients.cli.commands.pause, shmreplay.clients.cli.top
from shmreplay.clients.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print([main([*command, "--address", sys.argv[1]]) for command in (["top", "--once"], ["top"], ["pause", "x"])])
"""


# Changes the user after the imports, those of argparse too, for the same reason.
DAEMON_AS_NOBODY = """
import gettext, locale, os, shutil, sys
from shmreplay.daemon.main import main
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main())
"""


@pytest.fixture
def tmp_path() -> Iterator[pathlib.Path]:
    """A folder whose sockets other users reach. pytest shuts its own whenever another run of it starts."""
    with tempfile.TemporaryDirectory(prefix="shmreplay-test-") as place:
        os.chmod(place, 0o755)
        yield pathlib.Path(place)


@is_root
def test_another_user_is_told_at_the_socket_who_may_connect(
    daemon: DaemonProcess, run_script: Callable[..., Script]
) -> None:
    code, out, err = run_script(CONNECT_AS, daemon.socket, str(NOBODY)).finish()
    assert (code, err) == (0, "")
    assert out.startswith(f"PermissionError permission denied for {daemon.socket}")
    assert "open to user root alone (mode 0600)" in out
    assert "--group NAME" in out


@is_root
def test_another_user_is_told_at_the_terminal_too(daemon: DaemonProcess, run_script: Callable[..., Script]) -> None:
    code, out, err = run_script(COMMANDS_AS_NOBODY, daemon.socket).finish()
    assert (code, out.splitlines()[-1]) == (0, "[1, 1, 1]")
    refusals = err.splitlines()
    assert [line.partition(": ")[0] for line in refusals] == ["shmreplay top", "shmreplay top", "shmreplay pause"]
    assert all(f"permission denied for {daemon.socket}: " in line for line in refusals)


@is_root
def test_another_user_who_gets_through_to_the_socket_is_refused_by_credentials(
    daemon: DaemonProcess, run_script: Callable[..., Script]
) -> None:
    os.chmod(daemon.socket, 0o666)  # as a careless administrator might
    code, out, err = run_script(CONNECT_AS, daemon.socket, str(NOBODY)).finish()
    assert (code, err) == (0, "")
    assert "PermissionError permission denied for pid" in out
    assert f"uid {NOBODY}: this shmreplayd serves uid 0 and root; start shmreplayd with --group NAME" in out
    assert "refused pid" in daemon.log()


@is_root
def test_a_member_of_the_group_works_and_an_outsider_is_told_its_name(
    make_daemon: StartDaemon, run_script: Callable[..., Script]
) -> None:
    group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, NOBODY))
    daemon = make_daemon().start("--group", group.gr_name)
    with daemon.connect() as client:
        client.create_tables([table()])
    _, out, err = run_script(CONNECT_AS, daemon.socket, str(NOBODY), str(group.gr_gid)).finish()
    assert err == ""
    tables, attached, shutdown = out.splitlines()
    assert (tables, attached) == ("tables ['replay']", "attached replay")
    assert "only uid 0, which runs this shmreplayd, may shut it down" in shutdown
    _, out, err = run_script(CONNECT_AS, daemon.socket, str(NOBODY)).finish()
    assert err == ""
    assert f"group {group.gr_name} (mode 0660); join group {group.gr_name}" in out


@is_root
def test_a_daemon_of_another_user_serves_root_and_its_segments_are_its_own(make_daemon: StartDaemon) -> None:
    with tempfile.TemporaryDirectory(prefix="shmreplay-test-", dir="/run") as place:  # root refuses /tmp
        os.chown(place, NOBODY, -1)
        daemon = make_daemon()
        daemon.socket = os.path.join(place, "daemon.sock")
        daemon.start(source=DAEMON_AS_NOBODY)
        with daemon.connect() as client:
            client.create_tables([table()])
            client._attach("replay")
        assert {os.stat(daemon.store.path(name)).st_uid for name in daemon.segments()} == {NOBODY}
        assert daemon.stop() == 0


def can_make_pid_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode == 0


CONNECT = """
import sys
import shmreplay as sr
try:
    sr.connect(sys.argv[1], timeout_s=100)
except PermissionError as error:
    print(error)
"""


@pytest.mark.skipif(not can_make_pid_namespaces(), reason="this user cannot make pid namespaces")
@pytest.mark.parametrize("proc", [(), ("--mount-proc",)])
def test_a_client_of_another_pid_namespace_is_refused_with_what_to_do(
    daemon: DaemonProcess, run_script: Callable[..., Script], proc: tuple[str, ...]
) -> None:
    wrapper = ("unshare", "--pid", "--fork", *proc)
    code, out, err = run_script(CONNECT, daemon.socket, wrapper=wrapper).finish()
    assert (code, err) == (0, "")
    assert "--pid=host" in out
    assert "shareProcessNamespace: true" in out


@pytest.mark.skipif(not can_make_pid_namespaces(), reason="this user cannot make pid namespaces")
def test_a_client_outside_of_the_daemons_pid_namespace_has_no_pid_there_and_is_refused(
    run_script: Callable[..., Script],
) -> None:
    inside = run_script(
        "import shmreplay as sr\nwith sr.Server() as server:\n    print(server.address, flush=True)\n    input()\n",
        wrapper=("unshare", "--pid", "--fork", "--mount-proc"),
    )
    address = inside.line()
    with pytest.raises(PermissionError, match=r"--pid=host.*shareProcessNamespace: true"):
        sr.connect(address)
    inside.say()
    assert inside.finish()[0] == 0


def test_credentials_are_checked_against_user_root_and_group() -> None:
    own = os.geteuid()
    alone, group = Access(), Access(1234, "rl")

    def peer(uid: int, *groups: int, pid: int = 1) -> Peer:
        return Peer(pid, uid, groups[0] if groups else 5, frozenset(groups))

    for access in (alone, group):
        access.check_credentials(peer(own))
        access.check_credentials(peer(0))
        with pytest.raises(PermissionError, match="--pid=host"):
            access.check_credentials(peer(own, pid=0))
    group.check_credentials(peer(4242, 7, 1234))
    with pytest.raises(PermissionError, match="start shmreplayd with --group NAME"):
        alone.check_credentials(peer(4242, 1234))
    with pytest.raises(PermissionError, match=r"members of group rl; join group rl \(usermod -aG rl USER"):
        group.check_credentials(peer(4242, 7))


def test_a_claimed_namespace_counts_only_where_proc_hides_the_real_one() -> None:
    access = Access()
    here = os.stat("/proc/self/ns/pid").st_ino
    me = Peer(os.getpid(), os.geteuid(), os.getegid(), frozenset())
    access.check_namespace(me, here + 1)
    gone = Peer(2**22 + 1, os.geteuid(), os.getegid(), frozenset())  # above any pid_max
    access.check_namespace(gone, None)
    access.check_namespace(gone, here)
    with pytest.raises(PermissionError, match="--pid=host"):
        access.check_namespace(gone, here + 1)
