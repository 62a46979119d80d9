"""How many clients the limit of open files allows."""

from __future__ import annotations

import resource

import pytest

from shmreplay.daemon.config import open_files


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
