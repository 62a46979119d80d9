"""The exceptions of shmreplay.

There is one class wherever a caller would act differently. Misuse that a caller cannot act on while running (a wrong
argument, a malformed priority) is a plain `ValueError` or `TypeError`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_PLEASE_REPORT = "please report"


class ShmReplayError(Exception):
    """Root of every error that shmreplay raises on purpose."""


class RateLimitTimeout(ShmReplayError, TimeoutError):
    """A call waited `timeout_s` for the rate limiter and was not admitted, or only in part.

    Attributes:
        batch: the batch of items drawn before the time was up, or None. On a table that consumes its items they are
            gone from the table, so this is the only place where they are. Of a view: copies of its items.
        keys: int64 array `[k]` with the keys of the items that were inserted before the time was up, or None. Of a
            call of a vector writer: what it would have returned, without what is not done.
        done: of a call of a vector writer, bool `[N]`: the rows with which there is nothing left to do; else None.
        num_rows: of `extend`: how many rows, the first ones, are in with all their items; else None.
    """

    def __init__(self, message: str = "", *, batch: Any = None, keys: Any = None) -> None:
        super().__init__(message)
        # Any, because the class of a batch lives with the clients, above this module.
        self.batch = batch
        self.keys = keys
        self.done: npt.NDArray[np.bool_] | None = None
        self.num_rows: int | None = None


class TableNotFound(ShmReplayError, LookupError):
    """The daemon has no table of this name."""


class TableClosed(ShmReplayError):
    """The table was dropped, or its server was closed, maybe while a call was waiting on it."""


class SignatureMismatch(ShmReplayError, ValueError):
    """Data does not fit the signature of its table; the text names the column, what was expected and what came."""


class ArenaFull(ShmReplayError):
    """No chunk is free for new steps, and the table says `on_full="error"`: raised at once, without a wait.

    In tables that wait for room instead, a wait of more than `timeout_s` ends in RateLimitTimeout.

    Attributes:
        keys: int64 array `[k]` with the keys of the items that were inserted before the arena was full, or None.
    """

    def __init__(self, message: str = "", *, keys: npt.NDArray[np.int64] | None = None) -> None:
        super().__init__(message)
        self.keys = keys


class DaemonUnavailable(ShmReplayError, ConnectionError):
    """Nobody answers at the daemon's address, or the connection was lost."""


class LayoutMismatch(ShmReplayError):
    """The segment was laid out by another version or build of shmreplay."""


class SegmentFailed(ShmReplayError):
    """The segment is damaged: it was truncated, or its undo log does not make sense. Its contents cannot be trusted."""


class SessionLost(ShmReplayError):
    """This process's session was taken back; nothing it had committed is lost. Connect anew."""


class CheckpointFailed(ShmReplayError):
    """No checkpoint was saved, or none restored; the text says why. What was there before is still there."""


class CheckpointNotFound(CheckpointFailed, FileNotFoundError):
    """There is nothing to restore: no such file or directory, or a directory without checkpoints."""


class DamagedCheckpoint(CheckpointFailed):
    """A checkpoint is not what was written; the text names the file, the section and its offset."""


class InternalError(ShmReplayError):
    """A fault of shmreplay itself, never of the caller. The text ends with "please report"."""

    def __init__(self, message: str = "") -> None:
        # The text survives pickling and the control socket, and says it once.
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

    A name that is none of these classes, nor ValueError, TypeError, PermissionError or OSError, becomes an
    `InternalError` that keeps the name: the daemon failed in a way nobody foresaw.
    """
    cls = _BY_NAME.get(name)
    return InternalError(f"{name}: {message}") if cls is None else cls(message)


# By which a request, a subcommand or a look at an arena fails; any other one is our own fault.
EXPECTED_ERRORS = (ShmReplayError, ValueError, TypeError, OSError)
