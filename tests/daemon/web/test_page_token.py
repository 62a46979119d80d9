"""The token of the page: only users who may connect can read its file, and only the whole token is accepted."""

import os
import pathlib
import stat

import pytest

from shmreplay.daemon.web.page_token import PageToken
from shmreplay.errors import ShmReplayError


def test_the_file_has_it_and_is_its_owners_alone(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "token"
    file.write_text("of a daemon that was killed\n")
    file.chmod(0o666)
    token = PageToken(str(file), None)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    value = file.read_text().strip()
    assert token.is_in(f"Bearer {value}")
    assert token.is_in(f"bearer  {value} ")
    for wrong in ("", value, f"Basic {value}", f"Bearer {value[:-1]}", f"Bearer {value}x", "Bearer ", "Bearer é"):
        assert not token.is_in(wrong), wrong
    token.close()
    assert not file.exists()
    token.close()  # the file is gone: nothing to do


def test_each_start_has_another_and_the_group_may_read_it(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "token"
    first = PageToken(str(file), None)
    value = file.read_text().strip()
    second = PageToken(str(file), os.getegid())
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.stat().st_gid == os.getegid()
    assert first.is_in(f"Bearer {value}")
    assert not second.is_in(f"Bearer {value}")


def test_where_it_cannot_be_written_the_error_says_what_to_do(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ShmReplayError, match=r"cannot write the token of the page to .*unset web\.listen"):
        PageToken(str(tmp_path / "none" / "token"), None)
