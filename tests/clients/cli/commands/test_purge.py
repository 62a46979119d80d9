"""`shmreplay purge`: what dead instances left goes after a question, and nothing of the living does."""

import io
import json
import os
import pathlib
import uuid
from collections.abc import Iterator

import numpy as np
import pytest

from shmreplay.base.lock_file import LockFile
from shmreplay.clients.cli.main import main
from shmreplay.segments.segment import SegmentStore, lock_name
from tests.support.daemons import DaemonProcess, Run, new_daemon, table

STEP = {"x": np.zeros(3, np.float32), "n": np.int64(1)}

USER = """
import sys
import numpy as np
import shmreplay as sr
handle = sr.connect(sys.argv[1]).table("a")
print("attached", flush=True)
input()
handle.insert({"x": np.zeros(3, np.float32), "n": np.int64(1)})
print(len(handle), "items")
"""


@pytest.fixture
def segments() -> Iterator[pathlib.Path]:
    """A folder for segments of its own, on the file system of shared memory: a purge then looks at nobody else's."""
    folder = pathlib.Path("/dev/shm") / f"purge-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    yield folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


@pytest.fixture
def daemon(segments: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[DaemonProcess]:
    """A daemon with a table of one item there."""
    daemon = new_daemon(tmp_path / "daemon.sock", str(segments)).start()
    with daemon.connect() as client:
        client.create_tables([table("a")])
        client.table("a").insert(STEP)
    yield daemon
    daemon.clean_up()


class Typed(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    code = main(["purge", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_dead_instance_goes_once_the_answer_is_yes(
    daemon: DaemonProcess, segments: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.kill()
    left = sorted(file.name for file in segments.iterdir())
    assert len(left) == 3  # two segments and the lock
    monkeypatch.setattr("sys.stdin", Typed("n\n"))
    code, out, err = run(capsys, "--directory", str(segments))
    assert (code, out.splitlines()[0].endswith(", dead")) == (1, True)
    assert "Remove 1 dead instance with " in err
    assert err.endswith("Their items are lost. [y/N] shmreplay purge: nothing was done\n")
    assert sorted(file.name for file in segments.iterdir()) == left
    monkeypatch.setattr("sys.stdin", Typed("y\n"))
    code, out, _ = run(capsys, "--directory", str(segments))
    assert (code, out.splitlines()[-1].startswith("removed 1 instance, ")) == (0, True)
    assert list(segments.iterdir()) == []


def test_a_script_gives_yes(daemon: DaemonProcess, segments: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = daemon.instance
    daemon.kill()
    code, _, err = run(capsys, "--directory", str(segments))
    assert code == 1
    assert "stdin is not a terminal: give --yes" in err
    code, out, _ = run(capsys, "--directory", str(segments), "--yes", "--json")
    assert (code, json.loads(out)) == (0, {"removed": [instance], "kept": {}})
    code, out, _ = run(capsys, "--directory", str(segments), "--yes")
    assert (code, out) == (0, f"removed 0 instances, 0 B, from {segments}\n")


def test_an_instance_with_a_daemon_stays(
    daemon: DaemonProcess, segments: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(file.name for file in segments.iterdir())
    code, out, _ = run(capsys, "--directory", str(segments), "--yes")
    assert code == 0
    assert f"{daemon.instance}: 1 arena, " in out
    assert f"stays: its daemon runs, pid {daemon.pid}\n" in out
    code, _, err = run(capsys, "--directory", str(segments), "--yes", "--instance", daemon.instance)
    assert code == 1
    assert f"instance {daemon.instance!r} is not dead: its daemon runs, pid {daemon.pid}" in err
    assert sorted(file.name for file in segments.iterdir()) == before
    with daemon.connect() as client:
        assert len(client.table("a")) == 1


def test_an_instance_that_a_client_still_uses_stays_until_the_client_ends(
    daemon: DaemonProcess, segments: pathlib.Path, capsys: pytest.CaptureFixture[str], run_script: Run
) -> None:
    user = run_script(USER, daemon.socket)
    assert user.line() == "attached"
    daemon.kill()
    code, out, _ = run(capsys, "--directory", str(segments), "--yes", "--json")
    reason = "a running process uses arena 'a'"
    assert (code, json.loads(out)) == (0, {"removed": [], "kept": {daemon.instance: reason}})
    user.say()
    assert user.finish() == (0, "2 items\n", "")
    code, out, _ = run(capsys, "--directory", str(segments), "--yes", "--json")
    assert (code, json.loads(out)["removed"]) == (0, [daemon.instance])


def test_files_of_others_are_neither_listed_nor_removed(
    segments: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [
        "shmreplay",
        "shmreplay.a",
        "shmreplay.a.b.c",
        "shmreplay.a.b.c.index",
        "o.a.b.index",
        "shmreplay.ü.lock",
    ]
    for name in names:
        (segments / name).write_bytes(b"x")
    code, out, _ = run(capsys, "--directory", str(segments), "--yes")
    assert (code, out) == (0, f"removed 0 instances, 0 B, from {segments}\n")
    assert {file.name for file in segments.iterdir()} == set(names)


def test_a_lock_that_somebody_took_meanwhile_is_respected(
    segments: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon starts between the question and the answer."""
    store = SegmentStore(str(segments))
    (segments / "shmreplay.old.t.data").write_bytes(b"x" * 100)
    locks = []

    def start_daemon(question: str, is_answered: bool) -> None:
        locks.append(LockFile(store.path(lock_name("old"))))
        locks[0].write(f"{os.getpid()}\n")

    monkeypatch.setattr("shmreplay.clients.cli.commands.purge.confirm", start_daemon)
    code, out, _ = run(capsys, "--directory", str(segments))
    assert code == 1
    assert f"instance 'old' has a daemon by now, pid {os.getpid()}\nremoved 0 instances, 0 B" in out
    assert (segments / "shmreplay.old.t.data").exists()
    locks[0].release()


def test_an_unknown_instance_is_an_error_that_names_those_there_are(
    segments: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segments / "shmreplay.old.lock").touch()
    code, _, err = run(capsys, "--directory", str(segments), "--yes", "--instance", "new")
    assert (code, err) == (1, f"shmreplay purge: there is no instance 'new' in {segments}; there are: old\n")
    code, _, err = run(capsys, "--directory", str(segments), "--yes", "--instance", "../x")
    assert code == 1
    assert "instance name '../x': expected 1 to 64 of the characters" in err
