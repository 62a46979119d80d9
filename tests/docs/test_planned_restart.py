"""The loop that docs/reliability.md shows: its actors and its learner go on over restarts of the daemon."""

import pathlib
import re
from collections.abc import Callable

import pytest

import shmreplay as sr
from tests.support.daemons import Script, StartDaemon
from tests.support.repository import ROOT
from tests.support.waiting import eventually

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def work_of(client: sr.Client) -> tuple[int, int]:
    """How many inserts and samples there were."""
    found = client.tables().get("replay", {"inserts": 0, "samples": 0})
    return found["inserts"], found["samples"]


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.one_quick
def test_the_loop_of_the_page_goes_on_over_restarts(
    make_daemon: StartDaemon, run_script: Callable[..., Script], tmp_path: pathlib.Path, saves: bool
) -> None:
    flags = ("--checkpoint-dir", str(tmp_path / "saved"), "--checkpoint-at-stop", "--restore") if saves else ()
    [block] = BLOCKS
    daemon = make_daemon().start(*flags)
    scripts = [
        run_script(f"import sys\n{block}\n{name}(sys.argv[1], lambda: False)", daemon.socket)
        for name in ("act", "act", "learn")
    ]

    def all_are_at_work() -> bool:
        for script in scripts:
            if script.process.poll() is not None:
                pytest.fail(f"the loop ended: {script.finish()}")
        inserts, samples = work_of(client)
        attached = {entry["pid"] for entry in client.stats()["arenas"].get("replay", {}).get("sessions", [])}
        return inserts > before[0] and samples > before[1] and attached >= {script.pid for script in scripts}

    for _ in range(3):
        with daemon.connect() as client:
            before = work_of(client)
            eventually(all_are_at_work)
        daemon.stop()
        daemon.start(*flags)
