"""The installed service under a real systemd: started by its socket, killed, hung, restarted, reloaded, misconfigured.

It takes root and half a minute, and is run when SHMREPLAY_BOOT=1 asks for it.
"""

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from shmreplay.clients.cli.main import main
from tests.support.waiting import eventually
from tests.system.booted import Booted, booted, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("SHMREPLAY_BOOT") != "1", reason="SHMREPLAY_BOOT=1 runs it"),
]
PROGRAM = "/etc/run-shmreplayd"
RUN = """#!/bin/sh
PYTHONPATH=/opt/shmreplay:/opt/site exec /opt/python/bin/python3 -m shmreplay.daemon "$@"
"""
CONFIG = "/etc/shmreplay/shmreplayd.toml"
# An actor that is attached all the while: it inserts whenever it is told to, and says how large the table is then.
ACTOR = """
import sys
sys.path[:0] = ["/opt/shmreplay", "/opt/site"]
import numpy as np
import shmreplay as sr
client = sr.connect(timeout_s=100)
client.create_tables([sr.Table("replay", {"x": np.float32(0)}, 100, max_streams=8)])
table = client.table("replay")
for line in sys.stdin:
    table.insert({"x": 1.0}, timeout_s=0)
    print(len(table), sr.connect(timeout_s=100).tables()["replay"]["size"], flush=True)
"""


@pytest.fixture
def machine(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Booted]:
    """A systemd to which the service was installed, and what `install` said is next was done."""
    if reason := why_not():
        pytest.skip(reason)
    files = tmp_path / "files"
    arguments = ["service", "install", "--system", "--root", str(files), "--program", PROGRAM, "--json"]
    assert main(arguments) == 0
    following = json.loads(capsys.readouterr().out)["next"]
    drop_in = files / "etc/systemd/system/shmreplayd.service.d/test.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nWatchdogSec=2\n", encoding="utf-8")
    program = files / PROGRAM.lstrip("/")
    program.write_text(RUN, encoding="utf-8")
    program.chmod(0o755)
    with booted(tmp_path, files / "etc") as machine:
        for command in following:
            if not command.startswith("usermod"):
                machine.run(*command.split(), check=True)
        yield machine


def test_the_service_is_what_the_page_says(machine: Booted) -> None:
    assert (machine.show("ActiveState"), machine.show("SubState")) == ("active", "running"), machine.journal()
    assert machine.show("StatusText").startswith("0 tables in 0 B; ")
    assert machine.run("stat", "-c", "%U %G %a", "/run/shmreplay").stdout == "shmreplay shmreplay 750\n"
    assert machine.run("stat", "-c", "%U %G %a", "/run/shmreplay/default.sock").stdout == "shmreplay shmreplay 660\n"
    command = machine.command("/opt/python/bin/python3", "-c", ACTOR)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as actor:
        assert actor.stdin is not None
        assert actor.stdout is not None
        size = 0

        def check_the_actor_works_on() -> None:
            nonlocal size
            size += 1
            assert actor.stdin is not None
            assert actor.stdout is not None
            print(flush=True, file=actor.stdin)
            assert actor.stdout.readline() == f"{size} {size}\n", machine.journal()

        check_the_actor_works_on()
        check_segments_are_the_groups(machine)
        for change in (
            ("systemctl", "kill", "-s", "KILL", "shmreplayd"),  # it dies
            ("systemctl", "kill", "-s", "STOP", "shmreplayd"),  # it hangs: the watchdog ends it
            ("systemctl", "restart", "shmreplayd"),  # an upgrade
            ("systemctl", "stop", "shmreplayd"),  # it is started again by who connects next
        ):
            before = machine.show("MainPID")
            machine.run(*change, check=True)
            if change[1] == "kill":
                eventually(lambda before=before: machine.show("MainPID") not in ("0", before))  # type: ignore[misc]
            check_the_actor_works_on()
            assert machine.show("MainPID") not in ("0", before)
        assert "Watchdog timeout (limit 2s)!" in machine.journal()
        check_reload(machine)
        check_misconfiguration(machine)
        actor.stdin.close()
    entries = machine.run("journalctl", "-o", "json", "SHMREPLAY_INSTANCE=default").stdout.splitlines()
    messages = [json.loads(entry)["MESSAGE"] for entry in entries]
    assert "arena 'replay' taken over with 1 live sessions" in messages


def check_segments_are_the_groups(machine: Booted) -> None:
    modes = machine.run("sh", "-c", "stat -c '%U %G %a' /dev/shm/shmreplay.default.replay.*").stdout.splitlines()
    assert modes == ["shmreplay shmreplay 660"] * 2


def check_reload(machine: Booted) -> None:
    machine.run("sed", "-i", 's/^#level = "INFO".*/level = "DEBUG"/', CONFIG, check=True)
    machine.run("systemctl", "reload", "shmreplayd", check=True)
    eventually(lambda: "the configuration is reloaded from" in machine.journal())
    assert machine.show("ActiveState") == "active"


def check_misconfiguration(machine: Booted) -> None:
    """It is not started again and again, and the journal has the line."""
    machine.run("sed", "-i", 's/^level = .*/level = "LOUD"/', CONFIG, check=True)
    assert machine.run("systemctl", "restart", "shmreplayd").returncode != 0
    assert machine.show("ExecMainStatus") == "2"
    assert machine.show("ActiveState") == "failed"
    assert "log.level is 'LOUD'; expected one of 'DEBUG'" in machine.journal()
