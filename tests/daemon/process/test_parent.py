"""A parent is told from every other process: by pid, start time, boot and namespaces."""

import os
import subprocess
from dataclasses import replace

import pytest

from shmreplay.daemon.process.parent import Parent


def test_a_parent_lives_until_it_ends(sleeper: "subprocess.Popen[bytes]") -> None:
    parent = Parent.of(sleeper.pid)
    assert parent.has_ended() is False
    sleeper.kill()
    sleeper.wait()
    assert parent.has_ended() is True


def test_another_process_with_its_pid_is_not_the_parent() -> None:
    me = Parent.of(os.getpid())
    assert replace(me, start_time=me.start_time - 1).has_ended() is True


def test_a_parent_of_another_boot_has_ended() -> None:
    assert replace(Parent.of(os.getpid()), boot_id="0" * 32).has_ended() is True


@pytest.mark.parametrize("field", ["pid_namespace", "time_namespace"])
def test_nothing_is_known_of_a_parent_in_another_namespace(field: str) -> None:
    me = Parent.of(os.getpid())
    assert replace(me, **{field: getattr(me, field) + 1}).has_ended() is None


def test_a_parent_is_read_from_its_line() -> None:
    me = Parent.of(os.getpid())
    assert Parent.from_line(me.line()) == me
    for line in ("", "parent", me.line()[:-1] + "x", me.line() + " 1", me.line().replace(" ", " -")):
        assert Parent.from_line(line) is None, line
