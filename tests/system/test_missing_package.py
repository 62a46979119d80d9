"""An environment without ml_dtypes, the daemon's or another process': errors say whose it is, and nothing is lost."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import shmreplay as sr
from tests.support.daemons import DaemonProcess, StartDaemon
from tests.support.waiting import WAIT_S

ml_dtypes = pytest.importorskip("ml_dtypes")

PLAIN = sr.Table("plain", {"x": sr.ArraySpec((), "float32")}, 10)
SMALL = sr.Table("small", {"x": sr.ArraySpec((), "bfloat16")}, 10)
NEEDS = (
    "dtype 'bfloat16' is not known to numpy; bfloat16 and its like need the package ml_dtypes, which the environment "
)


@pytest.fixture
def without(tmp_path: pathlib.Path) -> dict[str, str]:
    """The variables of an environment that lacks the package."""
    folder = tmp_path / "lacks"
    folder.mkdir()
    (folder / "ml_dtypes.py").write_text("raise ImportError\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def shell(daemon: DaemonProcess, without: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    """A command at a terminal that lacks the package."""
    command = [sys.executable, "-m", "shmreplay.clients.cli.main", *words, "--socket", daemon.socket]
    return subprocess.run(command, env=without, capture_output=True, text=True, check=False, timeout=WAIT_S)


def test_the_terminal_shows_what_it_can(daemon: DaemonProcess, without: dict[str, str]) -> None:
    with daemon.connect() as client:
        client.create_tables([PLAIN, SMALL])
        client.table("small").insert({"x": ml_dtypes.bfloat16(1)})
    done = shell(daemon, without, "tables")
    assert done.returncode == 0
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:]] == [["plain", "10", "0"], ["small", "?", "1"]]
    assert done.stderr.startswith(f"table 'small' has columns that are not known here: {NEEDS}of process ")
    assert done.stderr.endswith(f" does not have: if it is no misspelling, install it for {sys.executable}\n")
    entries = json.loads(shell(daemon, without, "tables", "--json").stdout)
    assert (entries["small"]["spec"], entries["small"]["size"], entries["plain"]["size"]) == (None, 1, 0)
    assert shell(daemon, without, "pause", "small").stdout == "small: inserts and samples are paused\n"
    done = shell(daemon, without, "check", "--all", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["plain"]["problems"]) == (1, [])
    assert found["small"]["error"].startswith(NEEDS)
    assert shell(daemon, without, "drop", "small", "--yes").stdout == "dropped: small\n"


def test_a_daemon_without_it_says_that_it_is_the_daemons_environment(
    make_daemon: StartDaemon, without: dict[str, str]
) -> None:
    daemon = make_daemon()
    daemon.start(env=without)
    with daemon.connect() as client:
        with pytest.raises(TypeError) as raised:
            client.create_tables([PLAIN, SMALL])
        assert str(raised.value).startswith(f"{NEEDS}of process {daemon.pid} (")
        assert client.tables() == {}


def test_such_a_daemon_leaves_what_it_does_not_know_to_another(
    make_daemon: StartDaemon, without: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """Neither arena nor checkpoint counts as damaged, so --discard and an older checkpoint do not come into it."""
    checkpoints = ("--checkpoint-dir", str(tmp_path / "checkpoints"))
    daemon = make_daemon()
    daemon.start(*checkpoints)
    with daemon.connect() as client:
        client.create_tables([PLAIN, SMALL])
        client.table("small").insert({"x": ml_dtypes.bfloat16(3)})
        path = client.checkpoint()
    daemon.kill()
    daemon.start("--discard", "--keep-tables", *checkpoints, env=without)
    assert "arena 'small' is not taken over, and stays as it is: dtype 'bfloat16'" in daemon.log()
    with daemon.connect() as client:
        assert list(client.tables()) == ["plain"]
        with pytest.raises(sr.CheckpointFailed, match=r"cannot be restored by this daemon: dtype 'bfloat16'") as raised:
            client.restore(path)
        assert not isinstance(raised.value, sr.DamagedCheckpoint)
    daemon.stop()
    daemon.start()
    with daemon.connect() as client:
        assert client.table("small").sample(1).data["x"].astype(np.float32).tolist() == [3.0]
