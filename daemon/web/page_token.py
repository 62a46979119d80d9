"""PageToken: a secret that changes from the page need."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets

from shmreplay.errors import ShmReplayError


class PageToken:
    """A secret, new at each start of the daemon, in a file that only users who may connect can read.

    Args:
        path: of the file, which is replaced: mode 0600, or 0640 and the group if there is one.

    Raises ShmReplayError if the file cannot be written.
    """

    def __init__(self, path: str, group_id: int | None) -> None:
        self.path = path
        self._value = secrets.token_urlsafe(32)
        try:
            self._write(group_id)
        except OSError as error:
            raise ShmReplayError(
                f"cannot write the token of the page to {path}: {error.strerror}; the daemon needs to write to the "
                "directory of its socket; without that, unset web.listen"
            ) from error

    def _write(self, group_id: int | None) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)  # left by a daemon that was killed
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            if group_id is not None:
                os.fchown(fd, -1, group_id)
                os.fchmod(fd, 0o640)
            file.write(f"{self._value}\n")

    def is_in(self, authorization: str) -> bool:
        """Whether a header `Authorization: Bearer …` has the token. Compares in constant time."""
        kind, _, value = authorization.partition(" ")
        return hmac.compare_digest(value.strip().encode(), self._value.encode()) and kind.lower() == "bearer"

    def close(self) -> None:
        """Removes the file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
