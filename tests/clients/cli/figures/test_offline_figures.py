"""`shmreplay stats --offline`: figures of an instance whose daemon is dead."""

import gc
import hashlib
import json
import os
import pathlib

import numpy as np
import pytest

from shmreplay.base.json_values import json_value
from shmreplay.clients.cli.main import main
from tests.support.daemons import DaemonProcess, table

STEP = {"x": np.ones(3, np.float32), "n": 7}
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def killed(daemon: DaemonProcess) -> DaemonProcess:
    """A daemon that was killed, with two tables; of `replay` three items, and one sample."""
    with daemon.connect() as client:
        client.create_tables([table(), table("other")])
        handle = client.table("replay")
        for _ in range(3):
            handle.insert(STEP)
        handle.sample(1)
        daemon.kill()
    del handle
    gc.collect()  # what the handle had in the arena is given back now, and not while a test looks
    return daemon


def digests(daemon: DaemonProcess) -> dict[str, str]:
    """What is in each of its segments."""
    found = {}
    for name in daemon.segments():
        with open(daemon.store.path(name), "rb") as file:
            found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


def test_figures_are_read_from_shared_memory_and_nothing_changes_there(killed: DaemonProcess, capsys: Capture) -> None:
    before = digests(killed)
    assert main(["stats", "--offline", "--instance", killed.instance]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    lines = [line.split() for line in said.out.splitlines()]
    assert [line[0] for line in lines] == ["arena", "other", "replay", "table", "other", "replay"]
    assert (lines[2][-2:], lines[5][1:5]) == (["1", "healthy"], ["3", "1000", "3", "1"])
    assert main(["stats", "--offline", "--instance", killed.instance, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arenas"]["replay"]["tables"]["replay"]["inserts"] == 3
    assert found["arenas"]["replay"]["sessions"][0]["pid"] == os.getpid()
    assert digests(killed) == before


def test_beside_a_daemon_it_says_the_same(daemon: DaemonProcess, capsys: Capture) -> None:
    with daemon.connect() as client:
        client.create_tables([table()])
        client.table("replay").insert(STEP)
        assert main(["stats", "--offline", "--instance", daemon.instance, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["arenas"]["replay"]
        asked = json_value(client.stats())["arenas"]["replay"]
        for figures in (found, asked):
            figures["tables"]["replay"].pop("last_insert_s_ago")
        assert found["tables"] == asked["tables"]
        assert found["stats"] == asked["stats"]
    assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("kind", "spoil", "reason"),
    [
        ("index", "zeros", "its index has no header of shmreplay, or was never finished"),
        ("data", "truncate", "its data size is 4096, expected "),
        ("data", "unlink", "No such file or directory"),
    ],
)
@pytest.mark.one_quick
def test_an_arena_that_cannot_be_read_is_named_and_the_others_are_shown(
    killed: DaemonProcess, capsys: Capture, kind: str, spoil: str, reason: str
) -> None:
    path = killed.store.path(f"shmreplay.{killed.instance}.replay.{kind}")
    if spoil == "zeros":
        with open(path, "r+b") as file:
            file.write(bytes(4096))
    elif spoil == "truncate":
        os.truncate(path, 4096)
    else:
        os.unlink(path)
    assert main(["stats", "--offline", "--instance", killed.instance]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("shmreplay stats: arena 'replay': ")
    assert reason in said.err
    assert [line.split()[0] for line in said.out.splitlines()] == ["arena", "other", "table", "other"]


def test_an_instance_that_is_not_there_is_one_clear_line(capsys: Capture, tmp_path: pathlib.Path) -> None:
    ask = ["stats", "--offline", "--directory", str(tmp_path), "--instance", "none-of-these"]
    nothing = f"shmreplay stats: there is no arena of instance 'none-of-these' in {tmp_path}"
    assert main(ask) == 1
    assert capsys.readouterr().err == f"{nothing}\n"
    (tmp_path / "shmreplay.other.arena.index").touch()
    assert main(ask) == 1
    assert capsys.readouterr().err == f"{nothing}; there are files of instances other: give one as --instance\n"
    assert main(["stats", "--offline", "--instance", "a.b"]) == 1
    assert "instance name 'a.b': expected 1 to 64 of the characters" in capsys.readouterr().err
