"""Whole files: a file appears complete or not at all, and an incomplete one leaves nothing wrong behind."""

import errno
import os
import pathlib
import stat
import subprocess
import sys
from typing import Any

import pytest

from shmreplay.clients.cli.items.whole_file import whole_file


@pytest.fixture(params=["unnamed", "named"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With files that have no name, and without."""
    if request.param == "named":
        opened = os.open

        def open_named(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            return opened(path, flags, *rest, **options)

        monkeypatch.setattr(os, "open", open_named)
    return str(request.param)


def write(path: str, error: BaseException | None = None) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        if error is not None:
            raise error


def test_a_file_is_there_when_it_is_whole(kind: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "made"
    for content in (b"first", b"second"):
        with whole_file(str(path)) as file:
            file.write(content)
            assert not path.exists() or path.read_bytes() == b"first"
        assert path.read_bytes() == content
        assert os.listdir(tmp_path) == ["made"]


@pytest.mark.parametrize("before", [None, b"before"])
def test_an_error_leaves_what_was_there(kind: str, before: bytes | None, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "made"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(KeyboardInterrupt):
        write(str(path), KeyboardInterrupt())
    assert os.listdir(tmp_path) == ([] if before is None else ["made"])
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("before", [None, b"before"])
def test_a_failing_last_step_leaves_what_was_there(
    kind: str, before: bytes | None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "made"
    if before is not None:
        path.write_bytes(before)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace" if before is not None or kind == "named" else "link", fail)
    with pytest.raises(OSError, match=f"^{path} cannot be written: No space left on device$"):
        write(str(path))
    assert os.listdir(tmp_path) == ([] if before is None else ["made"])


def test_a_kill_leaves_nothing(tmp_path: pathlib.Path) -> None:
    source = (
        "import os, signal, sys; from shmreplay.clients.cli.items.whole_file import whole_file\n"
        "with whole_file(sys.argv[1]) as file:\n    file.write(b'half'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run([sys.executable, "-c", source, str(tmp_path / "made")], check=False, cwd="/")
    assert ran.returncode == -9
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_file_keeps_its_permissions(kind: str, mode: int, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "made"
    path.touch()
    path.chmod(mode)
    with whole_file(str(path)):
        pass
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_permissions_of_any(kind: str, tmp_path: pathlib.Path) -> None:
    with whole_file(str(tmp_path / "made")):
        pass
    (tmp_path / "other").touch()
    assert (tmp_path / "made").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_names_may_be_as_long_as_the_file_system_lets_them(kind: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / ("n" * 255)
    for _ in range(2):
        with whole_file(str(path)):
            pass
    assert os.listdir(tmp_path) == [path.name]
    with pytest.raises(OSError, match=r"nn cannot be written: File name too long$"):
        write(f"{path}n")


def test_errors_say_the_path_as_it_was_given(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=r"^none/made cannot be written: No such file or directory$"):
        write("none/made")
    with pytest.raises(OSError, match=r"^/dev/null is no regular file; expected the name of one"):
        write("/dev/null")
