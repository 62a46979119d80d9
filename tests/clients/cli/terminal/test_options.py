"""confirm: only yes is yes, and without a terminal it is an error unless --yes was given."""

import io

import pytest

from shmreplay.clients.cli.terminal.options import confirm
from shmreplay.errors import ShmReplayError


class Keyboard(io.StringIO):
    """A terminal at which this was typed."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("typed", ["y\n", "YES\n", " yes \n"])
def test_a_yes_is_one(typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard(typed))
    confirm("Drop it?", is_answered=False)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Drop it? [y/N] "), "a question is not part of the output"


@pytest.mark.parametrize("typed", ["\n", "n\n", "yep\n", ""])
def test_all_else_is_a_no(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard(typed))
    with pytest.raises(ShmReplayError, match=r"^nothing was done$"):
        confirm("Drop it?", is_answered=False)


def test_without_a_terminal_it_is_refused_unless_answered_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(ShmReplayError, match="give --yes"):
        confirm("Drop it?", is_answered=False)
    confirm("Drop it?", is_answered=True)
    assert capsys.readouterr() == ("", "")
