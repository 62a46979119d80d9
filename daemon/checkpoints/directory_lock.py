"""A lock for a label in a directory of checkpoints.

Two daemons that share both would remove each other's checkpoints and restore the wrong ones.
"""

from __future__ import annotations

import logging
import os

from shmreplay.base.lock_file import Held, LockFile
from shmreplay.checkpoints.checkpoint_directory import CheckpointDirectory
from shmreplay.daemon.loop.bounded_wait import within
from shmreplay.daemon.loop.workers import Workers
from shmreplay.errors import CheckpointFailed

log = logging.getLogger("shmreplayd")

WAIT_S = 5.0  # for the previous daemon, which may be about to end


async def lock_directory(directory: CheckpointDirectory, workers: Workers) -> LockFile:
    """Makes the directory if it is missing, and locks the label in it.

    Raises CheckpointFailed if the directory cannot be written to, or if another process holds the lock; the text has
    its pid.
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
            f"process {holder} already saves checkpoints of {directory.label!r} in {directory.path} (it holds {path}); "
            "give each daemon its own directory"
        ) from None
