"""Keys, from the bytes that a terminal sends."""

import pytest

from shmreplay.clients.cli.top.keys import Keys


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"jjk", ["j", "j", "k"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["page up", "page down", "home", "end"]),
        (b"\x1b[1;5A", []),  # with Ctrl: no key of ours
        (b"\x1bq", ["escape", "q"]),
        (b"\t\r\n\x7f\x08\x15", ["tab", "enter", "enter", "backspace", "backspace", "clear"]),
        (b"\x1b[Z", ["back tab"]),
        ("é漢".encode(), ["é", "漢"]),
        (b"\xffa", ["a"]),
        (b"\x01\x02", []),
    ],
    ids=str,
)
def test_bytes_are_keys(data: bytes, keys: list[str]) -> None:
    assert Keys().feed(data) == keys


def test_a_key_may_come_in_pieces() -> None:
    keys = Keys()
    assert [keys.feed(bytes([byte])) for byte in b"\x1b[5~"] == [[], [], [], ["page up"]]
    assert not keys.is_open
    assert [keys.feed(bytes([byte])) for byte in "é".encode()] == [[], ["é"]]


def test_an_escape_that_nothing_follows_is_a_key() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b") == []
    assert keys.is_open
    assert keys.end() == ["escape"]
    assert keys.feed(b"\x1b[") == []
    assert keys.end() == []
    assert not keys.is_open
