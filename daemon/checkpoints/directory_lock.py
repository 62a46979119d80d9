"""One daemon a directory of checkpoints and label: two would remove each other's, and restore what is not theirs."""

from __future__ import annotations

import logging
import os

from shmreplay.checkpoints.checkpoint_directory import CheckpointDirectory
from shmreplay.daemon.loop.bounded_wait import within
from shmreplay.daemon.loop.lock_file import Held, LockFile
from shmreplay.daemon.loop.workers import Workers
from shmreplay.errors import CheckpointFailed

log = logging.getLogger("shmreplayd")

WAIT_S = 5.0  # for a daemon that is just ending


async def lock_directory(directory: CheckpointDirectory, workers: Workers) -> LockFile:
    """Makes the directory if it is missing, and takes the lock of its label, which shows that it can be written to.

    Raises CheckpointFailed if it cannot, or names the process that saves checkpoints of this label there.
    """
    path = os.path.join(directory.path, f"shmreplay.{directory.label}.lock")
    try:
        os.makedirs(directory.path, 0o700, exist_ok=True)
        try:
            lock = LockFile(path)
        except Held as holder:
            log.info("waiting for process %s, which saves checkpoints in %s", holder, directory.path)
            lock = await _wait(path, directory, workers, str(holder))
        lock.write(f"{os.getpid()}\n")
    except OSError as error:
        raise CheckpointFailed(f"no checkpoint can be written to {directory.path}: {error}") from error
    return lock


async def _wait(path: str, directory: CheckpointDirectory, workers: Workers, holder: str) -> LockFile:
    try:
        return await within(WAIT_S, workers.run(lambda: LockFile(path, waits=True)))
    except TimeoutError:
        raise CheckpointFailed(
            f"process {holder} saves checkpoints of {directory.label!r} in {directory.path} already (it holds {path}); "
            "choose another directory, one for each daemon"
        ) from None
