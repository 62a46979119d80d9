"""What keys do beside the screen: each action has a result, and the next one is let in."""

import threading

import pytest

from shmreplay.clients.cli.top.table_actions import TableActions
from shmreplay.clients.client import Client
from shmreplay.errors import ShmReplayError


class Doing:
    """TableActions, and how to wait for one's end."""

    def __init__(self) -> None:
        self._is_done = threading.Event()
        self.actions = TableActions("/nowhere/control.sock", 1.0, self._is_done.set)

    def result(self) -> tuple[str, bool] | None:
        assert self._is_done.wait(100)
        self._is_done.clear()
        return self.actions.take()


def raises(error: Exception) -> str:
    raise error


def test_what_a_deed_returns_or_refuses_is_its_result_once() -> None:
    doing = Doing()
    doing.actions.do("pause a", lambda _: "a: paused")
    assert doing.result() == ("a: paused", False)
    assert doing.actions.take() is None
    doing.actions.do("pause b", lambda _: raises(ShmReplayError("there is no table 'b'")))
    assert doing.result() == ("there is no table 'b'", True)


def test_a_fault_of_a_deed_is_told_and_the_next_one_is_let_in() -> None:
    doing = Doing()
    doing.actions.do("drop a", lambda _: raises(KeyError("size")))
    assert doing.result() == ("drop a: unexpected KeyError('size'); please report it", True)
    doing.actions.do("drop b", lambda _: "b was dropped")
    assert doing.result() == ("b was dropped", False)


def test_a_deed_is_refused_while_the_one_before_is_at_work() -> None:
    doing, go_on = Doing(), threading.Event()

    def slow(client: Client) -> str:
        assert go_on.wait(100)
        return "done"

    doing.actions.do("drain a", slow)
    with pytest.raises(ShmReplayError, match=r"^still at work: drain a$"):
        doing.actions.do("drop a", lambda _: "")
    go_on.set()
    assert doing.result() == ("done", False)
