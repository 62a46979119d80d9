"""ArenaSave: saves one arena into a checkpoint while clients go on.

One thread lets the native code copy slices of the arena, another one writes them to the file. At most NUM_SLICES slices
wait between the two. While the disk is slow, chunks that writers want back are copied into these slices. No writer
waits for the checkpoint: if it finds no other chunk, it takes one that is not copied yet, and the checkpoint fails.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from shmreplay import _core
from shmreplay.base.host_memory import check_memory, show_bytes
from shmreplay.checkpoints.checkpoint_file import RECORDS, SLICE_BYTES, Bytes, CheckpointWriter, SectionKind
from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.daemon.loop.workers import REMEDY
from shmreplay.errors import CheckpointFailed, LockTimeout

NUM_SLICES = 11  # 44 MiB; with the rest that a save needs, this stays below OTHER_BYTES
OTHER_BYTES = 64 * 2**20  # memory that a save needs in addition to the copy of the index
LOCK_TIMEOUT_S = 30.0  # for the arena's lock, whose holder may be stopped
CALL_TIMEOUT_S = 10.0  # for the lock, to close the session
_END = 4  # the core's number for the end of the parts


class ArenaSave:
    """The save of one arena. Call `run` in a worker thread; the event loop may read the rest meanwhile."""

    def __init__(self, arena: ManagedArena, number: int) -> None:
        self.arena = arena
        self._number = number
        self._cancelled = threading.Event()
        self._done_bytes = 0
        self._total_bytes = 0
        self._free: queue.SimpleQueue[Bytes | None] = queue.SimpleQueue()
        self._filled: queue.SimpleQueue[tuple[int, int, Bytes, int] | None] = queue.SimpleQueue()
        self._num_slices = 0

    def cancel(self) -> None:
        """Makes `run` raise CheckpointFailed soon."""
        self._cancelled.set()

    def describe(self) -> str:
        """The progress, for the client that waits."""
        if not self._total_bytes:
            holder = self.arena.lock_holder_pid()
            held = f"; its lock is held by process {holder}" if holder else ""
            return f"checkpoint of arena {self.arena.name!r}: copying its index{held}"
        done, total = show_bytes(self._done_bytes), show_bytes(self._total_bytes)
        return f"checkpoint of arena {self.arena.name!r}: {done} of {total} written"

    def run(self, writer: CheckpointWriter) -> dict[str, Any]:
        """Writes the arena's sections. Returns the arena's counters at the instant that the checkpoint shows.

        Raises CheckpointFailed, with the reason, if the checkpoint is given up; LockTimeout, which names the process,
        if one holds the arena's lock for too long; ShmReplayError if there is too little memory for the copy of the
        index; OSError if the file cannot be written.
        """
        try:
            return self._run(writer)
        except LockTimeout as error:
            holder = self.arena.lock_holder_pid()
            if holder is None:
                raise
            raise LockTimeout(
                f"process {holder} holds the arena's lock ({error}); continue it (SIGCONT), or kill it"
            ) from error

    def _run(self, writer: CheckpointWriter) -> dict[str, Any]:
        native = self.arena.native
        purpose = f"a checkpoint of arena {self.arena.name!r}, with a copy of its index,"
        check_memory(native.stats()["index_bytes"] + OTHER_BYTES, purpose)
        save = _core.CheckpointSave(native)
        pid = os.getpid()
        index, generation = native.open_session(pid, _core.process_start_time(pid), LOCK_TIMEOUT_S)
        try:
            if save.take(index, generation, LOCK_TIMEOUT_S):
                raise CheckpointFailed(f"arena {self.arena.name!r}: another checkpoint of it is already being saved")
            state: dict[str, Any] = save.state()
            self._total_bytes = save.total_bytes
            writer.write_plain(
                SectionKind.ARENA, {"arena": self.arena.name, "moment": time.time(), **state}, self._number
            )
            self._stream(save, writer)
            writer.write_plain(SectionKind.ARENA_END, {}, self._number)
            return state
        finally:
            save.close()
            native.close_session(index, generation, CALL_TIMEOUT_S)

    def _stream(self, save: _core.CheckpointSave, writer: CheckpointWriter) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="shmreplayd-checkpoint") as pool:
            try:
                copying = pool.submit(self._copy, save)
            except RuntimeError as error:
                raise CheckpointFailed(
                    f"no checkpoint was saved: shmreplayd cannot start a thread: {error}; {REMEDY}"
                ) from error
            try:
                while (item := self._filled.get()) is not None and not self._cancelled.is_set():
                    part, table, piece, num_bytes = item
                    if num_bytes:
                        writer.write(SectionKind(RECORDS + part), piece[:num_bytes], self._number, table)
                    self._done_bytes += num_bytes
                    self._free.put(piece)
            except BaseException:
                self._cancelled.set()
                raise
            finally:
                self._free.put(None)  # wakes the copying thread if it waits for a free slice
            copying.result()
        if self._cancelled.is_set():
            raise self._stopped()

    def _copy(self, save: _core.CheckpointSave) -> None:
        try:
            self._fill_all(save, time.monotonic())
        except BaseException:
            self._cancelled.set()  # the writing thread need not write the rest
            raise
        finally:
            self._filled.put(None)

    def _stopped(self) -> CheckpointFailed:
        return CheckpointFailed(f"the checkpoint of arena {self.arena.name!r} was stopped")

    def _fill_all(self, save: _core.CheckpointSave, started: float) -> None:
        while True:
            piece = self._slice()
            if piece is None or self._cancelled.is_set():
                raise self._stopped()
            part, table, num_bytes = save.fill(piece, LOCK_TIMEOUT_S)
            if save.was_given_up:
                raise CheckpointFailed(self._why_given_up(save, time.monotonic() - started))
            if part == _END:
                return
            self._filled.put((part, table, piece, num_bytes))

    def _slice(self) -> Bytes | None:
        """A slice to fill: a new one up to NUM_SLICES, then one that has been written."""
        if self._num_slices < NUM_SLICES and self._free.empty():
            self._num_slices += 1
            return np.empty(SLICE_BYTES, np.uint8)
        return self._free.get()

    def _why_given_up(self, save: _core.CheckpointSave, seconds: float) -> str:
        taken = save.chunks_taken * self.arena.native.stats()["chunk_bytes"]
        return (
            f"the checkpoint of arena {self.arena.name!r} was given up: writers needed chunks not copied yet. "
            f"In {seconds:.2f} s writers took {show_bytes(taken)}, and {show_bytes(self._done_bytes)} were written; "
            "use a faster disk, raise capacity_steps, or pause inserts meanwhile: client.pause(table, samples=False)"
        )
