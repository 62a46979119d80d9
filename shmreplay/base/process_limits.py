"""Limits of a process (ulimit) in errors: which one the kernel meant, its value, and how to raise it."""

from __future__ import annotations

import errno

from shmreplay import _core

# The kernel lacked something for this process. That says nothing of the file which was asked for.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def with_limit(error: OSError) -> str:
    """The text of an error, and the limit behind it, unless the text names that already."""
    return _joined(str(error), error)


def reason_with_limit(error: OSError) -> str:
    """As `with_limit`, without the number of the error and the file."""
    return _joined(error.strerror or str(error), error)


def _joined(text: str, error: OSError) -> str:
    limit = _core.limit_behind(error.errno or 0)
    return text if not limit or limit in text else f"{text} ({limit})"
