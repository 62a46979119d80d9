"""The exceptions of shmreplay.

There is a class for each case in which a caller acts differently. Misuse that a program cannot handle while it runs (a
wrong argument, a malformed priority) is a plain `ValueError` or `TypeError`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_PLEASE_REPORT = "please report"


class ShmReplayError(Exception):
    """Base class of all errors that shmreplay raises on purpose."""


class RateLimitTimeout(ShmReplayError, TimeoutError):
    """A call waited `timeout_s` for the rate limiter and was not admitted, or only in part.

    Attributes:
        batch: the batch of items drawn before the time was up, or None. If the table consumes its items, they are no
            longer in the table, so this is the only copy. For a view: copies of its items.
        keys: int64 array `[k]` with the keys of the items that were inserted before the time was up, or None. For a
            call of a vector writer: what it would have returned, without the rows that are not done.
        done: for a call of a vector writer, bool `[N]`: True for the rows that are done; otherwise None.
        num_rows: for `extend`, how many of the first rows are in with all their items; otherwise None.
    """

    def __init__(self, message: str = "", *, batch: Any = None, keys: Any = None) -> None:
        super().__init__(message)
        # Any, because the class of a batch is in the clients, which this module may not import.
        self.batch = batch
        self.keys = keys
        self.done: npt.NDArray[np.bool_] | None = None
        self.num_rows: int | None = None


class TableNotFound(ShmReplayError, LookupError):
    """The daemon has no table of this name."""


class TableClosed(ShmReplayError):
    """The table was dropped, or its server was closed, perhaps while a call waited on the table."""


class SignatureMismatch(ShmReplayError, ValueError):
    """Data does not fit the signature of its table; the text names the column, what was expected and what it got."""


class ArenaFull(ShmReplayError):
    """No chunk is free for new steps, and the table has `on_full="error"`. Raised at once, without a wait.

    In tables that wait for room instead, a wait longer than `timeout_s` raises RateLimitTimeout.

    Attributes:
        keys: int64 array `[k]` with the keys of the items that were inserted before the arena was full, or None.
    """

    def __init__(self, message: str = "", *, keys: npt.NDArray[np.int64] | None = None) -> None:
        super().__init__(message)
        self.keys = keys


class DaemonUnavailable(ShmReplayError, ConnectionError):
    """No daemon answers at the address, or the connection was lost."""


class LockTimeout(ShmReplayError):
    """An arena's lock was not free within a call's timeout: its holder is stopped, or other calls came first.

    Not among the names of `shmreplay`: catch ShmReplayError.
    """


class LayoutMismatch(ShmReplayError):
    """The segment was laid out by another version or build of shmreplay."""


class SegmentFailed(ShmReplayError):
    """The segment is damaged: it was truncated, or its undo log makes no sense. Its contents cannot be trusted."""


class SessionLost(ShmReplayError):
    """The daemon or another process took this process' session back. Nothing committed is lost. Connect again."""


class CheckpointFailed(ShmReplayError):
    """A checkpoint could not be saved or restored; the text says why. Nothing that was there before is lost."""


class CheckpointNotFound(CheckpointFailed, FileNotFoundError):
    """There is nothing to restore: no such file or directory, or a directory without checkpoints."""


class DamagedCheckpoint(CheckpointFailed):
    """The content of a checkpoint is damaged; the text names the file, the section and its offset."""


class InternalError(ShmReplayError):
    """A bug in shmreplay itself, never a mistake of the caller. The text ends with "please report"."""

    def __init__(self, message: str = "") -> None:
        # Added only once, although the text passes here again after pickling or the control socket.
        if not message.endswith(_PLEASE_REPORT):
            message = f"{message}; {_PLEASE_REPORT}" if message else _PLEASE_REPORT
        super().__init__(message)


_BY_NAME: dict[str, type[Exception]] = {
    cls.__name__: cls
    for cls in (
        ShmReplayError,
        RateLimitTimeout,
        TableNotFound,
        TableClosed,
        SignatureMismatch,
        ArenaFull,
        DaemonUnavailable,
        LockTimeout,
        LayoutMismatch,
        SegmentFailed,
        SessionLost,
        CheckpointFailed,
        CheckpointNotFound,
        DamagedCheckpoint,
        InternalError,
        ValueError,
        TypeError,
        PermissionError,
        OSError,
    )
}


def remote_error(name: str, message: str) -> Exception:
    """Remakes an error that the daemon reported by the name of its class.

    A name that is not one of shmreplay's classes, nor ValueError, TypeError, PermissionError or OSError, becomes an
    `InternalError` that keeps the name: it is an unforeseen failure of the daemon.
    """
    cls = _BY_NAME.get(name)
    return InternalError(f"{name}: {message}") if cls is None else cls(message)


# Errors that a request, a subcommand or reading an arena may raise. Any other one is a bug.
EXPECTED_ERRORS = (ShmReplayError, ValueError, TypeError, OSError)
