"""Upgrades as docs/operations.md has them: a version in the place of another, and another layout by a checkpoint."""

import os
import pathlib
import shutil
import sysconfig
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from tests.support.daemons import Script, StartDaemon, table
from tests.support.waiting import WAIT_S
from tests.system.booted import copy_package

RunScript = Callable[..., Script]

# Without the site's own shmreplay: that of the folder in $PYTHONPATH.
START_DAEMON = (
    'import os, sys; os.execv(sys.executable, [sys.executable, "-S", "-m", "shmreplay.daemon", *sys.argv[1:]])'
)
ACT = """
import os, sys
os.execv(sys.executable, [sys.executable, "-S", "-c", '''
import sys
import numpy as np
import shmreplay as sr
client = sr.connect(sys.argv[1], timeout_s=100)
replay = client.table("replay")
print(sr.__version__, flush=True)
for line in sys.stdin:
    replay.insert({"x": np.zeros(3, np.float32), "n": 1}, timeout_s=0)
    tables = client.tables() if line == "ask\\\\n" else {}
    print(len(replay), tables.get("replay", {}).get("size"), flush=True)
''', *sys.argv[1:]])
"""
NEXT_LAYOUT = """
import sys
from shmreplay import _core
_core.LAYOUT_VERSION += 1
from shmreplay.daemon.main import main
sys.exit(main())
"""


class Installation:
    """A folder where shmreplay is installed, as for a service: replaced as by pip, even while it is loaded."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def install(self, version: str) -> None:
        """Puts a version in the place of what is there."""
        shutil.rmtree(self._folder, ignore_errors=True)
        names = copy_package(self._folder) / "shmreplay" / "version.py"
        text = names.read_text(encoding="utf-8")
        assert f'VERSION = "{sr.__version__}"' in text
        names.write_text(text.replace(sr.__version__, version), encoding="utf-8")

    @property
    def environment(self) -> dict[str, Any]:
        """What `Popen` takes, to run it."""
        path = os.pathsep.join([str(self._folder), sysconfig.get_path("purelib")])
        return {"env": {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}}


@pytest.mark.long
def test_a_version_is_replaced_under_an_actor_that_works_on(
    make_daemon: StartDaemon, run_script: RunScript, tmp_path: pathlib.Path
) -> None:
    installation = Installation(tmp_path / "installed")
    installation.install("0.0.8")
    saved = str(tmp_path / "saved")
    flags = ("--keep-tables", "--checkpoint-dir", saved, "--checkpoint-at-stop", "--restore")
    daemon = make_daemon().start(*flags, source=START_DAEMON, **installation.environment)
    with daemon.connect() as client:
        client.create_tables([table()])
        assert client.stats()["daemon"]["version"] == "0.0.8"
        actor = run_script(ACT, daemon.socket, **installation.environment)
        assert actor.line() == "0.0.8"

        def inserts(size: int, answer: str = "none") -> None:
            actor.say(answer)
            assert actor.line() == f"{size} {size if answer == 'ask' else None}"

        inserts(1, "ask")
        segments = daemon.segments()
        installation.install("0.0.9")
        inserts(2, "ask")
        assert daemon.stop() == 0
        inserts(3)  # nobody is there meanwhile
        daemon.start(*flags, source=START_DAEMON, **installation.environment)
        inserts(4, "ask")  # and it finds the next one, of another version
        assert client.stats()["daemon"]["version"] == "0.0.9"
        assert daemon.segments() == segments
        assert client.table("replay").sample(8, timeout_s=0).data["n"].tolist() == [1] * 8
        fresh = run_script(ACT, daemon.socket, **installation.environment)
        assert fresh.line() == "0.0.9"
        fresh.say("ask")
        assert fresh.line() == "5 5"
        inserts(6, "ask")
    assert len(os.listdir(saved)) >= 1


def test_an_upgrade_to_another_layout_goes_by_the_last_checkpoint(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    flags = ("--checkpoint-dir", str(tmp_path / "saved"), "--checkpoint-at-stop", "--restore")
    daemon = make_daemon().start(*flags)
    with daemon.connect() as client:
        client.create_tables([table()])
        key = client.table("replay").insert({"x": np.zeros(3, np.float32), "n": 7})
    assert daemon.stop() == 0
    daemon.start(*flags, source=NEXT_LAYOUT)
    with daemon.connect() as client:
        assert client.table("replay").get([key]).data["n"].tolist() == [7]


@pytest.mark.long
def test_tables_of_another_layout_that_were_left_are_named_and_removed_when_that_is_asked_for(
    make_daemon: StartDaemon, tmp_path: pathlib.Path
) -> None:
    flags = ("--keep-tables", "--checkpoint-dir", str(tmp_path / "saved"), "--checkpoint-at-stop", "--restore")
    daemon = make_daemon().start(*flags)
    with daemon.connect() as client:
        client.create_tables([table()])
        replay = client.table("replay")
        key = replay.insert({"x": np.zeros(3, np.float32), "n": 7})
        assert daemon.stop() == 0
        assert daemon.run(*flags, source=NEXT_LAYOUT).wait(WAIT_S) == 1
        assert "arena 'replay' is not taken over: its layout version is" in daemon.log()
        assert "remove it, or start the daemon once with --discard" in daemon.log()
        replay.insert({"x": np.zeros(3, np.float32), "n": 8}, timeout_s=0)  # among themselves they go on

    daemon.start(*flags, "--discard", source=NEXT_LAYOUT)
    with daemon.connect() as client:
        assert client.table("replay").get([key]).data["n"].tolist() == [7]
