"""Keys: decodes the bytes that a terminal sends into names of keys."""

from __future__ import annotations

_ESCAPES = {
    b"[A": "up", b"[B": "down", b"[C": "right", b"[D": "left",
    b"OA": "up", b"OB": "down", b"OC": "right", b"OD": "left",
    b"[5~": "page up", b"[6~": "page down", b"[H": "home", b"[F": "end", b"[1~": "home", b"[4~": "end", b"[7~": "home",
    b"[8~": "end", b"OH": "home", b"OF": "end", b"[Z": "back tab", b"[3~": "delete",
}  # fmt: skip
_CONTROLS = {
    0x03: "interrupt", 0x09: "tab", 0x0A: "enter", 0x0D: "enter", 0x08: "backspace", 0x7F: "backspace", 0x0C: "redraw",
    0x15: "clear",
}  # fmt: skip
ESCAPE = 0x1B


class Keys:
    """Decodes keys. An escape sequence may come in pieces; an escape that nothing follows is the escape key."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def is_open(self) -> bool:
        """Whether the last bytes may be the beginning of a sequence."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are complete now: names such as `up`, and characters."""
        data, self._rest = self._rest + data, b""
        found: list[str] = []
        while data:
            taken, key = _first(data)
            if taken == 0:
                self._rest = data
                break
            if key:
                found.append(key)
            data = data[taken:]
        return found

    def end(self) -> list[str]:
        """Nothing followed: what is left is the escape key, or bytes that no key sends."""
        rest, self._rest = self._rest, b""
        return ["escape"] if rest == bytes([ESCAPE]) else []


def _first(data: bytes) -> tuple[int, str]:
    """How many bytes the first key takes (0 if it is incomplete), and its name, which may be empty."""
    if data[0] != ESCAPE:
        return _character(data)
    if len(data) == 1:
        return 0, ""
    if data[1] not in b"[O":
        return 1, "escape"
    for length in range(2, len(data)):
        if 0x40 <= data[length] <= 0x7E:
            return length + 1, _ESCAPES.get(data[1 : length + 1], "")
    return 0, ""


def _character(data: bytes) -> tuple[int, str]:
    first = data[0]
    if first < 0x20 or first == 0x7F:
        return 1, _CONTROLS.get(first, "")
    length = 2 if 0xC0 <= first < 0xE0 else 3 if 0xE0 <= first < 0xF0 else 4 if 0xF0 <= first < 0xF8 else 1
    if len(data) < length:
        return 0, ""
    return length, data[:length].decode(errors="ignore")
