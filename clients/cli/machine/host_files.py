"""HostFiles: what the files in /proc, /etc and /run say about this machine. Unreadable ones count as absent."""

from __future__ import annotations

import os


class HostFiles:
    """The files below `root`, which is / except in tests."""

    def __init__(self, root: str = "/") -> None:
        self._root = root

    def path(self, path: str) -> str:
        """An absolute path, below the root."""
        return os.path.join(self._root, path.lstrip("/"))

    def exists(self, path: str) -> bool:
        return os.path.exists(self.path(path))

    def text(self, path: str) -> str:
        """A file's text; "" if there is none."""
        try:
            with open(self.path(path), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def number(self, path: str) -> int | None:
        """The number in a file; None if there is none."""
        text = self.text(path).strip()
        return int(text) if text.isdecimal() else None

    def memory(self, name: str) -> int | None:
        """A number of /proc/meminfo in its own unit, kB or pages; None if there is none."""
        for line in self.text("/proc/meminfo").splitlines():
            label, _, rest = line.partition(":")
            if label == name and (number := rest.split()) and number[0].isdecimal():
                return int(number[0])
        return None

    def logind(self, name: str, default: str) -> str:
        """A setting of logind.conf, or of the drop-in files that override it."""
        found = default
        for path in self._logind_files():
            for line in self.text(path).splitlines():
                key, has_value, value = line.partition("=")
                if has_value and key.strip() == name:
                    found = value.strip() or default
        return found

    def _logind_files(self) -> list[str]:
        places = ("/usr/lib/systemd", "/run/systemd", "/etc/systemd")  # a later one overrides an earlier one
        mains = [f"{place}/logind.conf" for place in places if self.exists(f"{place}/logind.conf")]
        drop_ins: dict[str, str] = {}
        for place in places:
            folder = f"{place}/logind.conf.d"
            if os.path.isdir(self.path(folder)):
                names = (name for name in os.listdir(self.path(folder)) if name.endswith(".conf"))
                drop_ins.update({name: f"{folder}/{name}" for name in names})
        return [*mains[-1:], *(drop_ins[name] for name in sorted(drop_ins))]
