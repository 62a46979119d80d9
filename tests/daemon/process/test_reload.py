"""A real daemon with a configuration file: what it starts with, what a reload changes, what it leaves at the end."""

import json
import os
import pathlib
import signal

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.daemon.main import main
from tests.support.daemons import DaemonProcess, StartDaemon, table
from tests.support.waiting import eventually

TABLES = """
[tables.replay]
max_size = 1000
max_streams = 8
max_sessions = 512
columns = { x = { dtype = "float32", shape = [3] }, n = "int64" }
"""
ONE_MORE = """
[tables.other]
max_size = 7
max_streams = 8
columns = { x = "bool" }
"""
STEP = {"x": np.ones(3, np.float32), "n": 7}


class Configured:
    """A daemon that is told all by a file."""

    def __init__(self, daemon: DaemonProcess, path: pathlib.Path) -> None:
        self.daemon = daemon
        self.path = path

    def start(self, text: str, *flags: str) -> DaemonProcess:
        self.path.write_text(text, encoding="utf-8")
        return self.daemon.start("--config", str(self.path), *flags)

    def reload(self, text: str) -> str:
        """Sends SIGHUP and returns what the log says of it."""
        self.path.write_text(text, encoding="utf-8")
        before = len(self.daemon.log())
        self.daemon.signal(signal.SIGHUP)
        eventually(lambda: " reloaded" in self.daemon.log()[before:])
        return self.daemon.log()[before:]


@pytest.fixture
def configured(make_daemon: StartDaemon, tmp_path: pathlib.Path) -> Configured:
    return Configured(make_daemon(), tmp_path / "d.toml")


def test_tables_that_it_declares_are_there_when_the_first_client_is(configured: Configured) -> None:
    daemon = configured.start(TABLES + ONE_MORE)
    with daemon.connect() as client:
        assert {name: entry["spec"].max_size for name, entry in client.tables().items()} == {"replay": 1000, "other": 7}
        client.create_tables([table()])  # who declares the same finds it there
        assert client.table("replay").insert(STEP) > 0
    assert f"created the tables of {configured.path}: 'replay', 'other'" in daemon.log()


def test_a_table_that_is_there_with_other_specs_stays_and_the_log_has_the_difference(configured: Configured) -> None:
    daemon = configured.start(TABLES)
    daemon.kill()
    configured.start(TABLES.replace("1000", "2000") + ONE_MORE)
    assert f"ERROR {configured.path} does not match: table 'replay' exists with other specs: max_size: is 1000, "
    assert "asked for 2000" in daemon.log()
    with daemon.connect() as client:
        assert {name: entry["spec"].max_size for name, entry in client.tables().items()} == {"replay": 1000, "other": 7}


def test_what_there_is_no_room_for_keeps_it_from_starting(configured: Configured) -> None:
    huge = TABLES.replace("1000", "2_000_000_000")
    configured.path.write_text(huge + ONE_MORE, encoding="utf-8")
    assert "arena 'replay' (table 'replay') needs " in configured.daemon.fail("--config", str(configured.path))
    assert configured.daemon.left_behind() == []


@pytest.mark.parametrize("flags", [(), ("--check-config",)])
def test_what_cannot_be_is_a_line_each_and_code_2(
    configured: Configured, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    configured.path.write_text("[log]\nlevel = 'LOUD'\n[daemon]\ngruop = 'x'\n", encoding="utf-8")
    assert main(["--config", str(configured.path), *flags]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"shmreplayd: {configured.path}:2: log.level is 'LOUD'; expected one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'",
        f"shmreplayd: {configured.path}:4: daemon.gruop is not known; did you mean 'group'?",
    ]


def test_a_check_says_what_it_comes_to_and_starts_nothing(
    configured: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    socket = f"[daemon]\nsocket = '{configured.daemon.socket}'\n"
    configured.path.write_text(socket + TABLES, encoding="utf-8")
    assert main(["--config", str(configured.path), "--check-config"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert f"daemon.socket = {configured.daemon.socket}  ({configured.path}:2)" in said.out
    assert "tables replay: " in said.out
    assert main(["--config", str(configured.path), "--check-config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"] == ["replay"]
    assert not os.path.exists(configured.daemon.socket)


# --- limits ----------------------------------------------------------------------------------------------------------


def test_limits_bound_what_clients_create(configured: Configured) -> None:
    daemon = configured.start("[limits]\nmemory = '4 MiB'\nstreams = 64\nclients = 1\n")
    with daemon.connect() as client:
        client.create_tables([table()])
        with pytest.raises(sr.ShmReplayError, match=r"arena 'more' needs [0-9.]+ MiB: [0-9.]+ MiB are in use, this"):
            client.create_tables([table("more", max_size=100_000)])
        with pytest.raises(
            ValueError, match=r"max_streams is 65; this shmreplayd allows at most 64 \(limits.streams\)"
        ):
            client.create_tables([table("more", max_streams=65)])
        assert list(client.tables()) == ["replay"]
        with pytest.raises(sr.ShmReplayError, match="already serves 1 clients"):
            daemon.connect()


# --- the log ---------------------------------------------------------------------------------------------------------


def test_a_json_log_is_an_object_a_line(configured: Configured) -> None:
    daemon = configured.start("[log]\nformat = 'json'\n" + TABLES)
    entries = [json.loads(line) for line in daemon.log().splitlines()]
    assert {entry["instance"] for entry in entries} == {daemon.instance}
    assert {entry["pid"] for entry in entries} == {daemon.pid}
    assert "listens at" in entries[-1]["message"]
    assert entries[-1]["level"] == "INFO"


# --- reloading -------------------------------------------------------------------------------------------------------


def test_a_reload_changes_what_can_be_changed_and_names_what_can_not(
    configured: Configured, tmp_path: pathlib.Path
) -> None:
    daemon = configured.start(TABLES)
    with daemon.connect() as client:
        configured.reload(
            f"[limits]\nstreams = 9\n[memory]\nnuma = 'interleave'\n[checkpoints]\ndirectory = '{tmp_path}/saved'\n"
            f"[log]\nlevel = 'WARNING'\n{TABLES}{ONE_MORE}"
        )
        eventually(lambda: sorted(client.tables()) == ["other", "replay"])
        for line in (
            "memory.numa is still default; it becomes interleave after a restart of the daemon",
            f"checkpoints.directory is still unset; it becomes {tmp_path}/saved after a restart of the daemon",
        ):
            assert f"WARNING {line}" in daemon.log()
        with pytest.raises(ValueError, match="allows at most 9"):
            client.create_tables([table("more", max_streams=10)])
        before = len(daemon.log())
        client.drop_table("other")
        assert "dropped" not in daemon.log()[before:]  # INFO is below WARNING


def test_a_reload_of_what_cannot_be_changes_nothing(configured: Configured) -> None:
    daemon = configured.start(TABLES)
    said = configured.reload("[log]\nlevel = 'ERROR'\n[limits]\nstreams = 0\n")
    assert f"ERROR {configured.path}:4: limits.streams is 0; expected a whole number of at least 1" in said
    assert "ERROR the configuration was not reloaded: nothing has changed" in said
    assert "INFO the configuration is reloaded from" in configured.reload(TABLES)
    with daemon.connect() as client:
        assert list(client.tables()) == ["replay"]
    assert daemon.stop() == 0


def test_a_reload_begins_and_ends_checkpoints_at_an_interval(configured: Configured, tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "saved"
    saving = f"[checkpoints]\ndirectory = '{directory}'\nkeep = 3\n"
    daemon = configured.start(saving + TABLES)

    def num_saved() -> int:
        return daemon.log().count("saved: ")

    configured.reload(f"{saving}interval_s = 0.05\n{TABLES}")
    eventually(lambda: num_saved() >= 3)
    configured.reload(saving + TABLES)
    with daemon.connect() as client:
        client.checkpoint()  # behind any that was being saved
        before = num_saved()
        client.checkpoint()
        assert num_saved() == before + 1
    assert len(list(directory.glob("*.checkpoint"))) == 3


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saves", [False, True])
def test_with_keep_tables_a_restart_goes_unnoticed(configured: Configured, tmp_path: pathlib.Path, saves: bool) -> None:
    text = "[daemon]\nkeep_tables = true\n"
    if saves:
        text += f"[checkpoints]\ndirectory = '{tmp_path}/saved'\nat_stop = true\nrestore = true\n"
    daemon = configured.start(text + TABLES)
    with daemon.connect() as client:
        handle = client.table("replay")
        keys = [handle.insert(STEP)]
        assert daemon.stop() == 0
        keys.append(handle.insert(STEP, timeout_s=0))
        assert handle.sample(1, timeout_s=0).data["n"].tolist() == [7]
        configured.start(text + TABLES)
        keys.append(handle.insert(STEP, timeout_s=0))
        assert client.table("replay").keys().tolist() == keys
    assert "keeping 1 tables for the next shmreplayd of this instance" in daemon.log()
    assert ("checkpoint" in daemon.log() and len(os.listdir(tmp_path / "saved")) > 0) if saves else True
    configured.reload(TABLES)
    assert daemon.stop() == 0
    assert daemon.left_behind() == []
