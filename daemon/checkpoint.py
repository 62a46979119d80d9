"""Checkpoints of all arenas: on request, at an interval, and at the stop; and restoring one."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shmreplay import _core
from shmreplay.checkpoint_directory import CheckpointDirectory, find_checkpoints
from shmreplay.checkpoint_file import CheckpointWriter, Kind
from shmreplay.daemon.arena import ManagedArena
from shmreplay.daemon.registry import OnProgress, Registry
from shmreplay.daemon.saving import Saving
from shmreplay.daemon.workers import Workers
from shmreplay.errors import CheckpointFailed, DamagedCheckpoint, ShmReplayError
from shmreplay.host_memory import show_bytes
from shmreplay.protocol import package_version
from shmreplay.tables import Table

log = logging.getLogger("shmreplayd")

# What a plan may choose otherwise in another version.
GEOMETRY = ("chunk_steps", "num_chunks", "num_blocks", "block_bytes")
LIMITERS = ("checkpoint", "config")  # whose settings a restored limiter has
LOG_S = 10.0  # progress of a long one is logged so often


@dataclass(frozen=True)
class CheckpointOptions:
    """Where checkpoints go, and when they are made."""

    directory: str | None = None
    interval_s: float | None = None
    keep: int = 2
    at_stop: bool = False


class Checkpoints:
    """Lives on the event loop; one checkpoint is saved at a time, on the workers."""

    def __init__(self, registry: Registry, workers: Workers, label: str, options: CheckpointOptions) -> None:
        self._registry = registry
        self._workers = workers
        self._label = label
        self._options = options
        self._lock = asyncio.Lock()
        self._current: Saving | None = None
        self._is_closing = False
        self._timer: asyncio.Task[None] | None = None
        self.last: dict[str, Any] | None = None  # of the last one that was tried, for stats

    @property
    def directory(self) -> CheckpointDirectory:
        """Raises CheckpointFailed if none was configured."""
        if self._options.directory is None:
            raise CheckpointFailed(
                "no directory for checkpoints was configured; start shmreplayd with --checkpoint-dir DIR, or "
                "sr.Server with checkpoint_dir=DIR"
            )
        return CheckpointDirectory(self._options.directory, self._label)

    def start(self) -> None:
        """Begins to save at the interval, if one was configured."""
        if self._options.interval_s is not None:
            self._timer = asyncio.ensure_future(self._save_at_interval(self._options.interval_s))

    async def _save_at_interval(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.save(lambda describe: None)
            except (ShmReplayError, OSError) as error:
                log.error("no checkpoint was saved: %s", error)

    async def save(self, on_progress: OnProgress) -> str:
        """Saves all arenas into a new checkpoint and returns its path; older ones than the newest few are removed.

        Raises CheckpointFailed or OSError with the reason; the ones before it are still there then.
        """
        directory = self.directory
        on_progress(self.describe)
        async with self._lock:
            if self._is_closing:
                raise CheckpointFailed("no checkpoint was saved: the daemon is stopping")
            started = time.monotonic()
            watching = asyncio.ensure_future(self._log_progress())
            try:
                path, num_bytes = await self._workers.run(self._write, directory, self._registry.arenas)
            except BaseException as error:
                self.last = {"path": None, "error": str(error), "seconds": time.monotonic() - started}
                raise
            finally:
                watching.cancel()
                self._current = None
        seconds = time.monotonic() - started
        self.last = {"path": path, "error": None, "seconds": seconds, "bytes": num_bytes}
        log.info("checkpoint %s saved: %s in %.2f s", path, show_bytes(num_bytes), seconds)
        return path

    def describe(self) -> str:
        """How far it is, for the client that waits."""
        current = self._current
        return "checkpoint: waiting for an earlier one" if current is None else current.describe()

    async def _log_progress(self) -> None:
        while True:
            await asyncio.sleep(LOG_S)
            log.info("%s", self.describe())

    def _write(self, directory: CheckpointDirectory, arenas: Sequence[ManagedArena]) -> tuple[str, int]:
        """In a worker thread."""
        directory.remove_remains()
        with directory.create() as (fd, path):
            writer = CheckpointWriter(fd)
            writer.write_plain(Kind.MANIFEST, _manifest(self._label, arenas))
            for number, arena in enumerate(arenas):
                arena.check_usable()
                self._current = Saving(arena, number)
                if self._is_closing:
                    self._current.cancel()
                state = self._current.run(writer)
                for table in state["tables"]:
                    log.info(
                        "checkpoint: table %r at insert %d, %d items", table["name"], table["inserts"], table["size"]
                    )
            writer.end()
        for removed in directory.keep(self._options.keep):
            log.info("checkpoint %s removed: the newest %d are kept", removed, self._options.keep)
        return path, writer.num_bytes

    async def restore(
        self, path: str, asked: Sequence[Table], limiters: str, on_progress: OnProgress
    ) -> dict[str, Any]:
        """Restores a checkpoint, or the newest whole one of a directory, and says which, what tables, and notes.

        A damaged one of a directory is named in the notes and the one before it taken. Raises CheckpointFailed if there
        is none, and as `Registry.restore`.
        """
        if limiters not in LIMITERS:
            raise ValueError(f"limiters is {limiters!r}; expected one of {', '.join(map(repr, LIMITERS))}")
        if os.path.isdir(path):
            return await self._restore_newest(path, find_checkpoints(path), asked, limiters, on_progress)
        tables, notes = await self._restore_one(path, asked, limiters, on_progress)
        return {"path": path, "tables": tables, "notes": notes}

    async def _restore_newest(
        self, directory: str, paths: Sequence[str], asked: Sequence[Table], limiters: str, on_progress: OnProgress
    ) -> dict[str, Any]:
        damages: list[str] = []
        for path in paths:
            try:
                tables, notes = await self._registry.restore(path, asked, limiters, on_progress)
            except DamagedCheckpoint as error:
                log.error("%s; taking the one before it", error)
                damages.append(f"{error}; the one before it was taken")
            else:
                return {"path": path, "tables": tables, "notes": [*damages, *notes]}
        raise CheckpointFailed("; ".join([f"there is no whole checkpoint in {directory}", *damages]))

    async def _restore_one(
        self, path: str, asked: Sequence[Table], limiters: str, on_progress: OnProgress
    ) -> tuple[list[str], list[str]]:
        try:
            return await self._registry.restore(path, asked, limiters, on_progress)
        except DamagedCheckpoint as error:
            older = [other for other in find_checkpoints(os.path.dirname(path) or ".") if other < os.path.abspath(path)]
            hint = f"; the one before it is {older[0]}" if older else "; there is none before it"
            raise DamagedCheckpoint(f"{error}{hint}") from error

    async def restore_newest(self) -> None:
        """At the start of a daemon that took over no arena: the newest whole checkpoint of its own, if there is any.

        Raises CheckpointFailed if all of them are damaged: then somebody has to decide.
        """
        directory = self.directory
        paths = directory.checkpoints()
        if not paths:
            log.info("there is no checkpoint of %s in %s: starting empty", self._label, directory.path)
            return
        found = await self._restore_newest(directory.path, paths, [], LIMITERS[0], lambda describe: None)
        log.info("checkpoint %s restored", found["path"])

    async def close(self) -> None:
        """Saves a last one if that was configured; then ends one that is being saved."""
        if self._timer is not None:
            self._timer.cancel()
        if self._options.at_stop and self._registry.arenas:
            try:
                await self.save(lambda describe: None)
            except (ShmReplayError, OSError) as error:
                log.error("no checkpoint was saved at the stop: %s", error)
        self._is_closing = True
        if self._current is not None:
            self._current.cancel()
        async with self._lock:
            pass


def _manifest(label: str, arenas: Sequence[ManagedArena]) -> dict[str, Any]:
    return {
        "label": label,
        "created": time.time(),
        "package": package_version(),
        "layout_version": _core.LAYOUT_VERSION,
        "layout_hash": _core.layout_hash(),
        "arenas": [_arena_entry(arena) for arena in arenas],
    }


def _arena_entry(arena: ManagedArena) -> dict[str, Any]:
    """What the arena is made anew by: its specs, and the geometry that they were planned to."""
    stats = arena.native.stats()
    return {
        "name": arena.name,
        "specs": arena.native.specs,
        "geometry": {name: stats[name] for name in GEOMETRY},
        "bytes": sum(arena.sizes),
    }
