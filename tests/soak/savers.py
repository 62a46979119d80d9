"""Processes that have checkpoints saved, and read them."""

import contextlib
from typing import NoReturn

import shmreplay as sr
from shmreplay.checkpoints.checkpoint_file import verify
from tests.soak.worker import Worker


def save(worker: Worker) -> NoReturn:
    """A checkpoint may be given up for a writer, or be lost with its daemon; one that was saved is whole."""
    while True:
        worker.log.say("save")
        try:
            path = worker.client.checkpoint()
        except (sr.CheckpointFailed, sr.DaemonUnavailable) as error:
            if isinstance(error, sr.DamagedCheckpoint):
                raise
            worker.log.say("failed")
            continue
        with contextlib.suppress(FileNotFoundError):  # others saved newer ones
            verify(path)
            worker.log.say("verified")
