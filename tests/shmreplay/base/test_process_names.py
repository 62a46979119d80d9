"""Names of processes."""

import os
import pathlib
import subprocess
import sys

import pytest

import shmreplay as sr
from shmreplay.base.process_names import MAX_NAME, describe_process, name_this_process, process_name, script_name
from tests.support.waiting import WAIT_S


def test_a_process_is_described_by_its_id_and_its_name_where_that_is_known() -> None:
    assert describe_process(12, "actor") == "process 12 ('actor')"
    assert describe_process(12, "") == "process 12"


def test_what_a_process_calls_itself_cannot_reach_the_terminal_as_it_is() -> None:
    assert describe_process(12, "a\x1b[2Jb\n") == "process 12 ('a\\x1b[2Jb\\n')"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["python", "train.py", "--seed", "1"], "train.py"),
        (["python3", "/home/me/src/train.py"], "train.py"),
        (["python", "-u", "-X", "dev", "-W", "error", "train.py"], "train.py"),
        (["python", "-m", "lab.actor", "-x"], "lab.actor"),
        (["python", "-mlab.actor"], "lab.actor"),
        (["python", "-c", "import lab; lab.run()"], ""),
        (["python"], ""),
        (["python", "-"], ""),
        (["python", "-m"], ""),
        ([""], ""),
    ],
    ids=str,
)
def test_the_script_of_a_command_line(arguments: list[str], name: str) -> None:
    assert script_name(arguments) == name


def ask_child(tmp_path: pathlib.Path, file: str, source: str, *options: str) -> str:
    """The name of a process that runs a script, while it waits for its input to end."""
    script = tmp_path / file
    script.write_text(source)
    command = [sys.executable, *options, str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        found = process_name(pid)
        child.communicate(timeout=WAIT_S)
    return found


WAITS = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


def test_a_process_that_runs_a_script_has_its_name(tmp_path: pathlib.Path) -> None:
    assert ask_child(tmp_path, "train_everything.py", WAITS) == "train_everything.py"
    name = ask_child(tmp_path, f"{'x' * 100}.py", WAITS)
    assert name == "x" * (MAX_NAME - 1) + "…"


def test_a_spawned_process_has_the_name_of_the_script_that_started_it(tmp_path: pathlib.Path) -> None:
    source = """
import multiprocessing, os, sys
def wait(pipe):
    print(os.getpid(), flush=True)
    pipe.recv()
if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context(%r).Process(target=wait, args=(theirs,))
    process.start()
    sys.stdin.read()
    ours.send(1)
    process.join()
"""
    for method in ("spawn", "forkserver", "fork"):
        assert ask_child(tmp_path, "train.py", source % method) == "train.py", method


def test_a_name_that_a_process_gives_itself_goes_first(tmp_path: pathlib.Path) -> None:
    source = f"from shmreplay.base.process_names import name_this_process; name_this_process('python-actor 3'); {WAITS}"
    assert ask_child(tmp_path, "train.py", source) == "python-actor 3"


def test_a_process_that_ended_has_no_name() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait(WAIT_S)
        assert process_name(child.pid) == ""
    assert process_name(os.getpid(), 1) == ""


@pytest.mark.parametrize("name", ["", "x" * 16, "ä" * 8, "a\nb", "a\x1b[2J"], ids=ascii)
def test_a_name_that_the_kernel_would_not_keep_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected 1 to 15 bytes without control characters"):
        sr.connect("/nowhere", name=name)


def test_a_name_is_a_text() -> None:
    with pytest.raises(TypeError, match="name is 3; expected a str"):
        name_this_process(3)  # type: ignore[arg-type]
