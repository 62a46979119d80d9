"""How many clients the limit of open files allows, and what tables leave to them."""

from __future__ import annotations

import errno
import resource

import pytest

import shmreplay as sr
from shmreplay.daemon.config import open_files
from tests.support.daemons import StartDaemon, table


@pytest.mark.parametrize(
    ("hard", "clients", "taken"),
    [(1024, 448, 1024), (130, 8, 130), (resource.RLIM_INFINITY, 524224, open_files.UNLIMITED_FDS)],
)
def test_all_that_may_be_had_is_counted_and_taken(
    monkeypatch: pytest.MonkeyPatch, hard: int, clients: int, taken: int
) -> None:
    limits = [(128, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, wanted: limits.append(wanted))
    assert open_files.possible_clients() == clients
    assert limits == [(128, hard)], "to look at a configuration changes nothing"
    open_files.raise_limit()
    assert limits[-1] == (taken, hard)
    open_files.raise_limit()
    assert len(limits) == 2


@pytest.mark.long
def test_tables_leave_descriptors_for_clients_and_the_error_says_who_lacks_them(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80)))
    with daemon.connect() as client:
        names = (f"t{index}" for index in range(80))
        with pytest.raises(sr.ShmReplayError) as error:  # noqa: PT012  # one of them, whichever
            for name in names:
                client.create_tables([table(name)])
        assert "needs 2 file descriptors of shmreplayd: " in str(error.value)
        assert "of its 80 are in use, and 20 are kept for connections; raise LimitNOFILE=" in str(error.value)
        assert len(client.table("t0")) == 0
        with daemon.connect() as other:
            assert 10 < len(other.tables()) < 40
    assert daemon.stop() == 0


def test_an_error_about_descriptors_names_the_daemon() -> None:
    blamed = open_files.blame_daemon(OSError(errno.EMFILE, "Too many open files"))
    assert str(blamed).startswith(
        "shmreplayd has no file descriptors left ([Errno 24] Too many open files); raise Limit"
    )
    other = OSError(errno.EIO, "no")
    assert open_files.blame_daemon(other) is other
