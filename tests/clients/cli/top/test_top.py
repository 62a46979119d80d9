"""shmreplay top in a pseudo-terminal, beside a real daemon with processes at work."""

import contextlib
import io
import json
import os
import pathlib
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import shmreplay as sr
from shmreplay.clients.cli.main import main
from tests.support.daemons import DaemonProcess, Script, StartDaemon, new_daemon, table
from tests.support.terminal import LEFT, Terminal
from tests.support.waiting import eventually

STEP = {"x": np.zeros(3, np.float32), "n": np.int64(1)}
WORKER = """
import sys, time, numpy as np, shmreplay as sr
step = {"x": np.zeros(3, np.float32), "n": np.int64(1)}
replay = sr.connect(sys.argv[1]).table("replay")
for number in range(10**9):
    time.sleep(0.001)  # a step of its environment
    replay.insert(step)
    if number >= 20:
        replay.sample(4)
    if number == 30:
        print("at work", flush=True)
"""
WAITER = """
import sys, shmreplay as sr
with open("/proc/self/comm", "w") as name:
    name.write("a\\x1b[2Jb")
queue = sr.connect(sys.argv[1]).table("queue")
print("waits", flush=True)
queue.sample(1)
"""
ENTERED = b"\x1b[?1049h"


@dataclass(frozen=True)
class Scene:
    """A daemon, a process that inserts into and samples from `replay`, and one that waits for the empty `queue`."""

    daemon: DaemonProcess
    worker: int
    waiter: int

    def top(self, *arguments: str, **options: Any) -> Terminal:
        return Terminal("top", "--address", self.daemon.socket, "--interval", "0.2", *arguments, **options)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    daemon = new_daemon(tmp_path_factory.mktemp("top") / "daemon.sock").start()
    scripts: list[Script] = []
    try:
        with daemon.connect() as client:
            limiter = sr.rate_limiters.SampleToInsertRatio(4, 10, 200)
            queue = sr.Table.queue("queue", STEP, 50, max_streams=8)
            client.create_tables([table("replay", rate_limiter=limiter), queue])
            scripts += [Script(source, daemon.socket) for source in (WORKER, WAITER)]
            assert [script.line() for script in scripts] == ["at work", "waits"]
            eventually(lambda: bool(client.tables()["queue"]["blocked_samples"] == 1))
        yield Scene(daemon, *(script.pid for script in scripts))
    finally:
        for script in scripts:
            script.close()
        daemon.clean_up()


def cells(text: str, name: str) -> list[str]:
    """The words of a row; empty if it is not there."""
    return next((line[1:].split() for line in text.splitlines()[5:] if line[1:].split()[:1] == [name]), [])


def drop_if_there(client: sr.Client, name: str) -> None:
    with contextlib.suppress(sr.TableNotFound):
        client.drop_table(name)


def test_tables_are_watched_and_changed(scene: Scene) -> None:
    with scene.top() as terminal:
        # table, bar of the fill, fill, inserts/s, samples/s, ratio, ...
        terminal.until(lambda text: "-" not in cells(text, "replay")[3:5] and len(cells(text, "replay")) > 7)
        assert f"pid {scene.daemon.pid}, up " in terminal.lines[0]
        assert cells(terminal.text, "replay")[-1] == "ok"
        terminal.until(lambda text: "sample" in cells(text, "queue"))  # a wait is shown from its first second on
        assert f"{scene.waiter} waits " in terminal.text  # the queue is the selected one: first in order

        terminal.press("j")
        terminal.until("of 1,000 items")
        terminal.press("p")
        terminal.until("pause replay: i inserts, s samples, b both?")
        terminal.press("b")
        terminal.until("replay: inserts and samples are paused; r lets them go on")
        terminal.until(lambda text: any(word.startswith("paused") for word in cells(text, "replay")))
        terminal.press("r")
        terminal.until("replay: inserts and samples go on")
        terminal.until(lambda text: cells(text, "replay")[-1:] == ["ok"])

        terminal.press("+")
        terminal.until("replay: samples per insert (now 4): 4.4_")
        terminal.press("\x1b")
        terminal.until("nothing was done")
        terminal.press("s\x158\r")
        terminal.until("replay: 8 samples per insert")
        terminal.until(lambda text: any(word.endswith("/8") for word in cells(text, "replay")))
        terminal.press("Drepla\r")
        terminal.until("'repla' is not 'replay': nothing was dropped")
        terminal.press("d")
        terminal.until("its items stay when they are sampled")
        terminal.press("?")
        terminal.until("any key: back")
        terminal.press(" q")
        assert terminal.finish() == 0
        assert terminal.is_restored()
    with scene.daemon.connect() as client:
        assert client.table("replay").info().samples_per_insert == 8.0
        client.set_rate_limiter("replay", sr.rate_limiters.SampleToInsertRatio(4, 10, 200))


def test_clients_are_watched_and_a_table_is_dropped(scene: Scene) -> None:
    with scene.daemon.connect() as client, contextlib.ExitStack() as leaving:
        client.create_tables([table("other")])
        leaving.callback(drop_if_there, client, "other")
        terminal = leaving.enter_context(scene.top())
        terminal.until(lambda text: bool(cells(text, "other")))
        terminal.press("\t")
        terminal.until(
            lambda text: (
                cells(text, str(scene.worker))[2:3] == ["both"] and "-" not in cells(text, str(scene.worker))[3:5]
            )
        )
        assert cells(terminal.text, str(scene.waiter))[1:3] == ["a?[2Jb", "idle"]
        assert "sample" in cells(terminal.text, str(scene.waiter))
        terminal.press("\tD")  # other is the first
        terminal.until("drop other and its 0 items: type its name:")
        terminal.press("other\r")
        terminal.until("other was dropped")
        terminal.until(lambda text: "[tables 2]" in text and not cells(text, "other"))
        assert "other" not in client.tables()
        terminal.press("q")
        assert terminal.finish() == 0


def test_it_goes_by_the_size_of_the_terminal(scene: Scene) -> None:
    with scene.top(columns=60, rows=9) as terminal:
        terminal.until(lambda text: bool(cells(text, "replay")) and "q quit" not in text)
        terminal.resize(140, 30)
        terminal.until(lambda text: " memory " in text and "tables 2" in text and terminal.lines[29].endswith("q quit"))
        terminal.press("q")
        assert terminal.finish() == 0


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"]
)
def test_without_colours_the_selected_row_has_a_sign(scene: Scene, environment: dict[str, str]) -> None:
    with scene.top(environment=environment) as terminal:
        terminal.until(lambda text: any(line.startswith(">queue") for line in text.splitlines()))
        terminal.press("q")
        assert terminal.finish() == 0
        assert not re.search(rb"\x1b\[[1-9][0-9;]*m", terminal.written)
        assert terminal.written.isascii() == ("PYTHONIOENCODING" in environment)  # with bars of plain characters


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=lambda value: str(value),
)
def test_however_it_ends_the_terminal_is_as_it_was(scene: Scene, number: signal.Signals, code: int) -> None:
    with scene.top() as terminal:
        terminal.until(lambda text: bool(cells(text, "replay")))
        if number == signal.SIGINT:
            terminal.press("\x03")
        else:
            os.kill(terminal.pid, number)
        assert terminal.finish() == code
        assert terminal.is_restored()
        assert b"Traceback" not in terminal.written


def test_it_can_be_stopped_and_go_on(scene: Scene) -> None:
    script = (
        f"{{command}} --address {scene.daemon.socket} --interval 0.2; echo stopped $?; fg > /dev/null; echo ended $?"
    )
    with Terminal("top", script=script) as terminal:
        terminal.until(lambda text: bool(cells(text, "replay")))
        terminal.press("\x1a")
        terminal.until(lambda _: terminal.written.count(ENTERED) == 2)
        between = terminal.written.split(LEFT, 1)[1].split(ENTERED)[0]
        assert between.strip().endswith(b"stopped 148")
        terminal.until(lambda text: bool(cells(text, "replay")))
        terminal.press("q")
        terminal.until("ended 0")
        assert terminal.finish() == 0
        assert terminal.written.count(LEFT) == 2


def test_it_goes_on_with_the_next_daemon(make_daemon: StartDaemon) -> None:
    daemon = make_daemon().start()
    with daemon.connect() as client:
        client.create_tables([table("first")])
    with Terminal("top", "--address", daemon.socket, "--interval", "0.1") as terminal:
        terminal.until(lambda text: bool(cells(text, "first")))
        daemon.kill()
        terminal.until("trying again: no shmreplayd answered")
        assert cells(terminal.text, "first")  # the last figures stay
        terminal.press("r")
        terminal.until("trying again")
        daemon.start()
        terminal.until(f"pid {daemon.pid}, up ")
        terminal.until("0 deaths seen")
        daemon.signal(signal.SIGSTOP)  # one that says nothing: keys work all the same
        terminal.press("?")
        terminal.until("any key: back")
        terminal.press(" q")
        assert terminal.finish() == 0
        assert terminal.is_restored()
        daemon.signal(signal.SIGCONT)


def test_once_is_for_scripts(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["top", "--address", scene.daemon.socket, "--once", "--interval", "0.1"]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "\x1b" not in printed.out
    assert [line.split()[0] for line in printed.out.splitlines() if line][3:6] == ["table▲", "queue", "replay"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tables = {each["name"]: each for each in found["tables"]}
    assert found["daemon"]["pid"] == scene.daemon.pid
    assert tables["replay"]["inserts_per_s"] > 0
    assert (tables["replay"]["target"], tables["replay"]["state"]) == (4.0, "ok")
    (wait,) = tables["queue"]["waits"]
    assert (wait["side"], wait["pid"]) == ("sample", scene.waiter)
    assert "the table is empty" in wait["reason"]
    clients = {each["pid"]: each for each in found["clients"]}
    assert clients[scene.worker]["role"] == "both"
    assert clients[scene.waiter]["waits"] == [wait]


def test_clients_are_listed(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["clients", "--address", scene.daemon.socket]
    assert main(arguments) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert not any("\x1b" in line for line in lines)
    assert header.split() == [
        "pid", "role", "inserts", "samples", "updates", "open_streams", "pinned_chunks", "tables", "waits",
    ]  # fmt: skip
    found = {int(line.split()[0]): line.split() for line in lines}
    assert found[scene.worker][1].startswith("python")
    assert found[scene.worker][2] == "both"
    assert int(found[scene.worker][3]) >= 30
    assert found[scene.worker][-2:] == ["replay", "-"]
    assert found[scene.waiter][1] == "a?[2Jb"
    assert found[scene.waiter][-4:-2] == ["sample", "queue"]
    assert main([*arguments, "--json"]) == 0
    plain = {each["pid"]: each for each in json.loads(capsys.readouterr().out)}
    assert plain[scene.worker]["writes"] == ["replay"]
    (wait,) = plain[scene.waiter]["waits"]
    assert (wait["table"], wait["side"], wait["pid"]) == ("queue", "sample", scene.waiter)


def test_what_cannot_be_is_one_clear_line(
    scene: Scene, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())  # as a script has it
    for arguments, text in (
        (("--json",), "--json prints the figures once; give --once, too"),
        ((), "needs a terminal; --once prints the figures once, --once --json as JSON"),
    ):
        assert main(["top", "--address", scene.daemon.socket, *arguments]) == 1
        assert capsys.readouterr() == ("", f"shmreplay top: {text}\n")
    assert main(["top", "--address", str(tmp_path / "none.sock"), "--timeout", "0"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("shmreplay top: no shmreplayd answered (")
    assert len(printed.err.splitlines()) == 1
