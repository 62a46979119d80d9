"""Fixtures for tests whose module has a fixture `server`, an `sr.Server`: a client of it, and commands that ask it."""

from collections.abc import Iterator

import pytest

import shmreplay as sr


@pytest.fixture(scope="module")
def client(server: sr.Server) -> Iterator[sr.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(autouse=True)
def at_the_server(server: sr.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without --address talk to the server."""
    monkeypatch.setenv("SHMREPLAY_SOCKET", server.address)
