"""Checkpoints: saves all arenas on request, at an interval and at the stop; and restores them."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from shmreplay.base.host_memory import show_bytes
from shmreplay.base.lock_file import LockFile
from shmreplay.checkpoints.checkpoint_directory import CheckpointDirectory, find_checkpoints, labels_in
from shmreplay.checkpoints.checkpoint_file import CheckpointReader, CheckpointWriter, SectionKind
from shmreplay.daemon.arenas.arena import ManagedArena
from shmreplay.daemon.arenas.registry import OnProgress, Registry
from shmreplay.daemon.checkpoints.arena_save import ArenaSave
from shmreplay.daemon.checkpoints.directory_lock import lock_directory
from shmreplay.daemon.checkpoints.last_outcome import LastOutcome
from shmreplay.daemon.checkpoints.manifest import manifest
from shmreplay.daemon.checkpoints.retention import Retention
from shmreplay.daemon.config.checkpoint_options import CheckpointOptions
from shmreplay.daemon.loop.workers import Workers
from shmreplay.errors import (
    CheckpointFailed,
    CheckpointNotFound,
    DamagedCheckpoint,
    LockTimeout,
    SegmentFailed,
    ShmReplayError,
    TableClosed,
    TableNotFound,
)
from shmreplay.tables.packed_specs import unpack_specs
from shmreplay.tables.table import Table

log = logging.getLogger("shmreplayd")

LIMITERS = ("checkpoint", "config")  # where the settings of a restored rate limiter come from
LOG_S = 10.0  # how often the progress of a long checkpoint is logged
Result = TypeVar("Result")
EXPECTED = (ShmReplayError, OSError)  # errors that saving may raise; any other is a fault of ours


class Checkpoints:
    """Lives on the event loop. Saves one checkpoint at a time, on the workers."""

    def __init__(self, registry: Registry, workers: Workers, label: str, options: CheckpointOptions) -> None:
        self._registry = registry
        self._workers = workers
        self._label = label
        self._options = options
        self._lock = asyncio.Lock()
        self._current: ArenaSave | None = None
        self._is_closing = False
        self._timer: asyncio.Task[None] | None = None
        self._outcome = LastOutcome()
        self._directory: CheckpointDirectory | None = None
        self._retention: Retention | None = None
        self._directory_lock: LockFile | None = None

    async def open(self) -> None:
        """Locks the directory, if one is configured, for this daemon's checkpoints; `close` unlocks it.

        Raises CheckpointFailed if it cannot be written to, or another daemon saves checkpoints of this label there.
        """
        if self._options.directory is not None:
            self._directory = CheckpointDirectory(self._options.directory, self._label)
            self._directory_lock = await lock_directory(self._directory, self._workers)
            self._retention = Retention(self._directory, self._options.keep)

    def close(self) -> None:
        """Unlocks the directory. A second call does nothing."""
        lock, self._directory_lock = self._directory_lock, None
        if lock is not None:
            try:
                lock.release()
            except OSError as error:
                log.warning("%s stays, because it cannot be removed: %s", lock.path, error)

    @property
    def directory(self) -> CheckpointDirectory:
        """The configured directory. Raises CheckpointFailed if there is none."""
        if self._directory is None:
            raise CheckpointFailed(
                "no directory for checkpoints is configured; start shmreplayd with --checkpoint-dir DIR, or "
                "sr.Server with checkpoint_dir=DIR"
            )
        return self._directory

    def status(self) -> dict[str, Any] | None:
        """The last checkpoint saved, and the failure after it, for stats; None if none was tried."""
        return self._outcome.describe()

    def start(self) -> None:
        """Starts to save at the interval, if one is configured."""
        if self._options.interval_s is not None and self._directory is not None:
            self._timer = asyncio.ensure_future(self._save_at_interval(self._options.interval_s))

    def change(self, options: CheckpointOptions) -> None:
        """Applies new options. A new interval begins now; the directory does not change."""
        before, self._options = self._options, options
        if self._retention is not None:
            self._retention.keep = options.keep
        if options.interval_s != before.interval_s:
            if self._timer is not None:
                self._timer.cancel()
            self.start()

    async def _save_at_interval(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            # Shielded: cancelling the timer ends this wait, but the save goes on and keeps its lock.
            if self._registry.arenas:
                await asyncio.shield(self._save_and_log())

    async def _save_and_log(self) -> None:
        """Saves; logs any error, because the next checkpoint may succeed."""
        try:
            await self.save(lambda describe: None, only_new=True)
        except PartlySaved as error:
            log.error("%s", error)
        except (ShmReplayError, OSError) as error:
            log.error("no checkpoint was saved: %s", error)
        except Exception:
            log.exception("no checkpoint was saved")

    async def save(self, on_progress: OnProgress, *, only_new: bool = False) -> str:
        """Saves all arenas into a new checkpoint, removes old ones, and returns the path of the new one.

        With `only_new`, the path of the newest one if that says the same of the tables; then nothing is removed.
        Raises CheckpointFailed or OSError with the reason; the earlier checkpoints are then all still there. If an
        arena has failed, or a stopped process holds its lock, it raises PartlySaved once the others are saved.
        """
        directory = self.directory
        on_progress(self.describe)
        async with self._lock:
            if self._is_closing:
                raise CheckpointFailed("no checkpoint was saved: the daemon is stopping")
            started = time.monotonic()
            watching = asyncio.ensure_future(self._log_progress())
            try:
                if not self._registry.arenas:
                    raise CheckpointFailed("no checkpoint was saved: there are no tables")
                path, num_bytes, is_new, failed = await self._workers.run(
                    self._write, directory, self._registry.arenas, only_new
                )
            except BaseException as error:
                self._outcome.failed(str(error) or type(error).__name__)
                raise
            finally:
                watching.cancel()
                self._current = None
        seconds = time.monotonic() - started
        self._outcome.saved(path, num_bytes, seconds)
        if is_new:
            log.info("checkpoint %s saved: %s in %.2f s", path, show_bytes(num_bytes), seconds)
        else:
            log.info("no checkpoint was saved: nothing is new since %s", path)
        if failed:
            reason = f"checkpoint {path} was saved without {'; without '.join(failed)}"
            self._outcome.failed(reason)
            raise PartlySaved(reason)
        return path

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._current is not None

    def describe(self) -> str:
        """The progress, for the client that waits."""
        current = self._current
        return "checkpoint: waiting for an earlier one" if current is None else current.describe()

    async def _log_progress(self) -> None:
        while True:
            await asyncio.sleep(LOG_S)
            log.info("%s", self.describe())

    def _write(
        self, directory: CheckpointDirectory, arenas: Sequence[ManagedArena], only_new: bool
    ) -> tuple[str, int, bool, list[str]]:
        """Writes the file and removes old ones. Runs in a worker thread.

        An arena that has failed, or whose lock a stopped process holds, is left out. If that shows while it is
        written, the file is begun again without it. Returns the path, its size, whether it is new, and what was left
        out and why.
        """
        assert self._retention is not None
        directory.remove_partial_files()
        failed: list[str] = []
        newest = self._retention.newest(lambda: self._is_closing) if only_new else None
        while True:
            try:
                path, num_bytes, content = self._write_all(directory, arenas, newest)
            except _NothingNew as same:
                return same.path, os.stat(same.path).st_size, False, failed
            except _ArenaFailed as error:
                failed.append(str(error))
                arenas = [arena for arena in arenas if not set(_wholes(arena)) & set(_wholes(error.arena))]
                if not arenas:
                    raise CheckpointFailed(f"no checkpoint was saved: {'; '.join(failed)}") from error
            else:
                self._remove_old(path, arenas, content)
                return path, num_bytes, True, failed

    def _write_all(
        self, directory: CheckpointDirectory, arenas: Sequence[ManagedArena], newest: tuple[str, bytes] | None
    ) -> tuple[str, int, bytes]:
        """Returns the path, its size and its content. Raises _NothingNew if the `newest` one has the same content."""
        for arena in arenas:  # before the manifest, which reads all of them
            self._check(arena, arena.check_usable)
        with directory.create() as (fd, path):
            writer = CheckpointWriter(fd)
            writer.write_plain(SectionKind.MANIFEST, manifest(self._label, arenas))
            for number, arena in enumerate(arenas):
                state = self._check(arena, partial(self._save, arena, number, writer))
                for table in state["tables"]:
                    log.info(
                        "checkpoint: table %r at insert %d, %d items", table["name"], table["inserts"], table["size"]
                    )
            writer.end()
            content = writer.content.value()
            if newest is not None and newest[1] == content:
                raise _NothingNew(newest[0])
        return path, writer.num_bytes, content

    @staticmethod
    def _check(arena: ManagedArena, work: Callable[[], Result]) -> Result:
        """Does some work on an arena. Raises _ArenaFailed if it must be left out, CheckpointFailed if it is gone."""
        try:
            return work()
        except (SegmentFailed, LockTimeout) as error:
            raise _ArenaFailed(arena, error) from error
        except (TableClosed, TableNotFound) as error:
            text = f"no checkpoint was saved: arena {arena.name!r} was dropped meanwhile"
            raise CheckpointFailed(text) from error

    def _remove_old(self, path: str, arenas: Iterable[ManagedArena], content: bytes) -> None:
        """Removes old checkpoints. Only logs errors: the new one is saved in any case."""
        assert self._retention is not None
        try:
            self._retention.saved(path, (table.name for arena in arenas for table in arena.tables), content)
            for removed in self._retention.remove_old(self._registry.dropped, lambda: self._is_closing):
                log.info("checkpoint %s removed; the newest %d are kept", removed, self._options.keep)
        except (CheckpointFailed, OSError) as error:
            log.warning("checkpoints older than %s are kept: %s", path, error)

    def _save(self, arena: ManagedArena, number: int, writer: CheckpointWriter) -> dict[str, Any]:
        arena.check_usable()
        self._current = ArenaSave(arena, number)
        if self._is_closing:
            self._current.cancel()
        return self._current.run(writer)

    async def restore(
        self, path: str, asked: Sequence[Table], limiters: str, on_progress: OnProgress
    ) -> dict[str, Any]:
        """Restores a checkpoint, or the newest undamaged one of a directory. Returns its path, its tables, and notes.

        If the newest one of a directory is damaged, a note says so and the next older one is restored. Raises
        CheckpointNotFound if there is none, CheckpointFailed if all are damaged, and as `Registry.restore`.
        """
        if limiters not in LIMITERS:
            raise ValueError(f"limiters is {limiters!r}; expected one of {', '.join(map(repr, LIMITERS))}")
        try:
            is_directory = stat.S_ISDIR(os.stat(path).st_mode)
        except FileNotFoundError:
            raise CheckpointNotFound(f"there is no checkpoint {path}: no such file or directory") from None
        if is_directory:
            return await self._restore_newest(path, find_checkpoints(path), asked, limiters, on_progress)
        tables, notes = await self._restore_one(path, asked, limiters, on_progress)
        return {"path": path, "tables": tables, "notes": notes}

    async def _restore_newest(
        self, directory: str, paths: Sequence[str], asked: Sequence[Table], limiters: str, on_progress: OnProgress
    ) -> dict[str, Any]:
        damages: list[str] = []
        for number, path in enumerate(paths):
            try:
                tables, notes = await self._restore_this(path, asked, limiters, on_progress)
            except DamagedCheckpoint as error:
                is_last = number == len(paths) - 1
                log.error("%s; %s", error, "there is no older one" if is_last else "trying the next older one")
                damages.append(str(error))
            else:
                if damages:
                    damages[-1] += "; the next older one was restored"
                return {"path": path, "tables": tables, "notes": [*damages, *notes]}
        if damages:
            raise CheckpointFailed("; ".join([f"there is no whole checkpoint in {directory}", *damages]))
        raise CheckpointNotFound(f"there is no checkpoint in {directory}")

    async def _restore_one(
        self, path: str, asked: Sequence[Table], limiters: str, on_progress: OnProgress
    ) -> tuple[list[str], list[str]]:
        try:
            return await self._restore_this(path, asked, limiters, on_progress)
        except DamagedCheckpoint as error:
            older = [other for other in find_checkpoints(os.path.dirname(path) or ".") if other < os.path.abspath(path)]
            if not older:
                raise
            raise DamagedCheckpoint(f"{error}; the next older one is {older[0]}") from error

    async def _restore_this(
        self, path: str, asked: Sequence[Table], limiters: str, on_progress: OnProgress
    ) -> tuple[list[str], list[str]]:
        tables, notes = await self._registry.restore(path, asked, limiters, on_progress)
        if self._retention is not None:
            self._retention.comes_from(path, [table.name for table in tables])
        return list(dict.fromkeys(table.owner.name for table in tables)), notes

    # --- the start and the end -----------------------------------------------------------------------------------

    async def begin(self, *, restore: bool, is_embedded: bool, on_progress: OnProgress) -> None:
        """At the start, after the adoption: restores the newest checkpoint if asked to and no table was taken over.

        Otherwise logs which checkpoints there are. Raises CheckpointFailed if all are damaged: the user must decide.
        """
        if self._retention is None:
            return
        directory = self.directory
        paths = directory.checkpoints()
        if self._registry.arenas:
            self._retention.comes_from_all()
            if restore and paths:
                level, reason = await self._workers.run(self._why_not, paths[0])
                log.log(level, "checkpoint %s is not used: %s", paths[0], reason)
        elif restore and paths:
            found = await self._restore_newest(directory.path, paths, [], LIMITERS[0], on_progress)
            log.info("checkpoint %s restored", found["path"])
        elif restore:
            others = sorted(label for label in labels_in(directory.path) if label != self._label)
            hint = f" (it has checkpoints of {', '.join(map(repr, others))})" if others else ""
            log.warning("there is no checkpoint of %s in %s%s: starting empty", self._label, directory.path, hint)
        elif paths and not is_embedded:  # sr.Server says this itself, or restores later
            log.warning(
                "%s holds %d checkpoints of %r, and --restore was not given: starting empty; none of them is removed",
                directory.path, len(paths), self._label,
            )  # fmt: skip

    def _why_not(self, path: str) -> tuple[int, str]:
        """The log level and the reason why a checkpoint is not restored: a warning if tables are only in it."""
        there = {table.name for arena in self._registry.arenas for table in arena.tables}
        reason = f"tables {', '.join(sorted(map(repr, there)))} were taken over from memory"
        try:
            reader = CheckpointReader(path)
            reader.close()
            tables = {table.name for entry in reader.manifest["arenas"] for table in unpack_specs(entry["specs"])}
        except (OSError, ShmReplayError, LookupError, TypeError, ValueError) as error:
            return logging.WARNING, f"{reason}; the checkpoint cannot be read: {error}"
        missing = ", ".join(sorted(map(repr, tables - there)))
        if not missing:
            return logging.INFO, reason
        return (
            logging.WARNING,
            f"{reason}; only the checkpoint has {missing}; it is kept until a newer one has that too",
        )

    async def finish(self) -> None:
        """Saves a last checkpoint if configured, while callers of all tables wait. Then cancels any other save.

        Raises CheckpointFailed if the last checkpoint could not be saved: the caller must then keep the tables.
        """
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._options.at_stop and self._registry.arenas:
                await self._save_last()
        finally:
            self._is_closing = True
            if self._current is not None:
                self._current.cancel()
            async with self._lock:
                self.close()

    async def _save_last(self) -> None:
        try:
            await self._look_at_newest()
            await self._registry.set_stopping(True)
            await self.save(lambda describe: None, only_new=True)
        except Exception as error:
            await self._registry.set_stopping(False)
            reason = str(error) or type(error).__name__
            log.error("no checkpoint was saved at the stop: %s", reason, exc_info=not isinstance(error, EXPECTED))
            missing = "no whole checkpoint" if isinstance(error, PartlySaved) else "no checkpoint"
            raise CheckpointFailed(
                f"{missing} was saved at the stop, so the tables stay in shared memory; the next shmreplayd of this "
                "instance takes them over"
            ) from error

    async def _look_at_newest(self) -> None:
        """Reads the newest checkpoint if this daemon did not write it, before all callers wait."""
        assert self._retention is not None  # its directory is configured
        async with self._lock:
            await self._workers.run(self._retention.newest, lambda: self._is_closing)


def _wholes(arena: ManagedArena) -> list[str]:
    """The names of its tables; of shards, the name of the whole table: without one of them, the others are no use."""
    return [table.owner.name for table in arena.tables]


class PartlySaved(CheckpointFailed):
    """A checkpoint was saved, without the arenas that have failed. The text names both."""


class _NothingNew(Exception):
    """The newest checkpoint says the same, so what was written is removed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class _ArenaFailed(Exception):
    """An arena cannot be saved: it has failed, or a stopped process holds its lock."""

    def __init__(self, arena: ManagedArena, error: ShmReplayError) -> None:
        tables = ", ".join(dict.fromkeys(map(repr, _wholes(arena))))
        super().__init__(f"arena {arena.name!r}, which has table {tables}: {error}")
        self.arena = arena
