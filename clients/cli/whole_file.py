"""A file that is there as a whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[IO[bytes]]:
    """A file to write to, beside `path`, that takes its place at the end; whatever ends it early leaves nothing.

    A symbolic link stays one, and what it leads to is replaced.

    Raises OSError, also for what is there and no file, such as a device.
    """
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path} is no regular file; expected the name of one, or of one to be made")
    directory, name = os.path.split(path)
    fd, made = tempfile.mkstemp(prefix=f".{name}.", dir=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(made, 0o666 & ~_umask())
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
        raise


def _umask() -> int:
    """It can only be read by setting it; other threads that make files meanwhile are none here."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
