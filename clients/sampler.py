"""Sampler: batches one after the other, sampled ahead by a thread, in arrays that are used again."""

from __future__ import annotations

import atexit
import inspect
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from shmreplay.clients.array_set import ArraySet
from shmreplay.clients.arrays import check_count
from shmreplay.clients.batch import Batch
from shmreplay.clients.connection import fork_count
from shmreplay.clients.handle import Handle, Stop, raise_closed
from shmreplay.errors import RateLimitTimeout, ShmReplayError

if TYPE_CHECKING:
    from shmreplay.clients.table_reads import TableReads

DEFAULT_PREFETCH = 2
SPARE_SETS = 3  # beside those of the batches that wait: the caller's batch, the one before it, and one being written


@dataclass(frozen=True)
class Source:
    """What a sampler samples from.

    Attributes:
        where: how errors name it.
        sample: called with `timeout_s=`, `out=` and the sampler's options.
        handles: those it samples with, of this sampler alone.
        stop: theirs.
        consumes: whether sampling takes items away.
        takes_out: whether batches can be written into given arrays.
    """

    where: str
    sample: Callable[..., Batch]
    handles: Sequence[Handle]
    stop: Stop
    consumes: bool
    takes_out: bool = True

    def end_waits(self) -> None:
        """Ends the waits of other threads in `sample`, at once."""
        for handle in self.handles:
            handle._native.end_waits()


def sampler_of(sample: Callable[..., Batch]) -> inspect.Signature:
    """The signature of a table's `sample` without its `n`."""
    found = inspect.signature(sample)
    return found.replace(parameters=[part for part in found.parameters.values() if part.name != "n"])


def table_sampler(
    table: TableReads,
    batch_size: int,
    prefetch: int | None,
    seed: Any,
    timeout_s: float | None,
    options: dict[str, Any],
) -> Sampler:
    """See `TableHandle.sampler`."""
    table._control()  # a table that is gone says so
    batch_size = check_count(table._where, "batch_size", batch_size)
    stop, client = Stop(), table._client
    own = type(table)(client, table.name, client._attach(table.name), seed, stop)
    consumes = table.spec.consuming and options.get("count", True)
    source = Source(table._where, partial(own.sample, batch_size), [own], stop, consumes)
    return Sampler(source, prefetch, timeout_s, options)


class Sampler:
    """An endless iterator of batches, and a context manager. Made by `TableHandle.sampler` and `Mix.sampler`.

    It ends with `close`, at the end of a `with`, when it is garbage (a `for` loop over it was left), when its client is
    closed and when Python ends; its thread ends with it, out of whatever it waits for. Safe to use from threads, each
    of which gets other batches. In a forked child it goes on with a thread, arrays and random numbers of its own.
    """

    def __init__(self, source: Source, prefetch: int | None, timeout_s: float | None, options: dict[str, Any]) -> None:
        self._source = source
        self._prefetch = _check_prefetch(source, prefetch)
        _check_options(source, options)
        self._timeout_s = timeout_s
        num_sets = self._prefetch + SPARE_SETS if source.takes_out and not source.consumes else 0
        self._draw = Draw(source, options, num_sets)
        self._is_closed = False
        self._fork_count = fork_count()
        self._ahead = self._new_thread() if self._prefetch > 0 else None
        for client in {handle._client for handle in source.handles}:
            client._add_dependent(self)

    def _new_thread(self) -> Ahead:
        ahead = Ahead(self._draw, self._source.stop, self._prefetch, self._timeout_s)
        # Ends the thread of a sampler that is garbage. It does not wait for that: it may run anywhere, in that very
        # thread as well.
        weakref.finalize(self, ahead.end).atexit = False
        return ahead

    @property
    def prefetch(self) -> int:
        """How many batches are sampled ahead."""
        return self._prefetch

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, or the client closed."""
        return self._is_closed

    def __iter__(self) -> Sampler:
        return self

    def __next__(self) -> Batch:
        if self._is_closed:
            self._raise_closed()
        if self._fork_count != fork_count():
            self._begin_anew()
        if self._ahead is None:
            return self._draw(self._timeout_s)
        batch = self._ahead.take()
        if batch is None:
            self._raise_closed()
        return batch

    def _begin_anew(self) -> None:
        """In a forked child: the parent's thread is not here, and another one of it may have held any lock."""
        with _replacing:
            if self._fork_count != fork_count():
                self._draw = self._draw.anew()
                self._ahead = None if self._ahead is None else self._new_thread()
                self._fork_count = fork_count()

    def close(self) -> None:
        """Ends the thread and blocked calls of `next`, at once. Idempotent. Batches given out stay as they are."""
        self._is_closed = self._source.stop.is_set = True
        if self._ahead is None:
            self._source.end_waits()
        else:
            self._ahead.end()
            self._ahead.join()
        for handle in self._source.handles:
            handle._end_threads()

    def __enter__(self) -> Sampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _raise_closed(self) -> NoReturn:
        for handle in self._source.handles:
            if handle._client.is_closed:
                raise_closed(handle.name)
        raise ShmReplayError(f"{self._source.where}: this sampler is closed; make another one")

    def __repr__(self) -> str:
        return f"<shmreplay sampler of {self._source.where}{' closed' if self._is_closed else ''}>"


def _check_prefetch(source: Source, prefetch: int | None) -> int:
    if prefetch is None:
        return 0 if source.consumes else DEFAULT_PREFETCH
    if isinstance(prefetch, bool) or not isinstance(prefetch, (int, np.integer)):
        raise TypeError(f"{source.where}: prefetch is {prefetch!r}; expected a number of batches, or None")
    if prefetch < 0:
        raise ValueError(f"{source.where}: prefetch is {prefetch}; expected at least 0")
    if source.consumes and prefetch > 0:
        raise ValueError(
            f"{source.where}: prefetch is {prefetch}, but items are consumed (max_times_sampled): what was sampled "
            "ahead would be lost with the sampler; use prefetch=0"
        )
    return int(prefetch)


def _check_options(source: Source, options: dict[str, Any]) -> None:
    if "out" in options:
        raise ValueError(f"{source.where}: a sampler has arrays of its own; leave out= away, or call sample()")
    try:
        inspect.signature(source.sample).bind(timeout_s=None, **options)
    except TypeError as error:
        raise TypeError(f"{source.where}: sampler: {error}; expected options of sample()") from None


class Draw:
    """One batch after the other, written into arrays that nobody holds any more."""

    def __init__(self, source: Source, options: dict[str, Any], num_sets: int) -> None:
        self.source = source
        self._options = options
        self._num_sets = num_sets  # 0: every batch gets new arrays
        self._sets: list[ArraySet] = []
        self._lock = threading.Lock()

    def anew(self) -> Draw:
        """The same, with arrays of its own."""
        return Draw(self.source, self._options, self._num_sets)

    def __call__(self, timeout_s: float | None) -> Batch:
        if self._num_sets == 0:
            return self._sample(timeout_s, None)
        arrays = self._take()
        try:
            batch = self._sample(timeout_s, None if arrays is None else arrays.out)
        except ValueError:
            if arrays is None:
                raise
            # The table's longest item has grown out of them.
            with self._lock:
                self._sets.clear()
            arrays = None
            batch = self._sample(timeout_s, None)
        finally:
            if arrays is not None:
                self._put(arrays)
        if arrays is None:
            self._put(ArraySet(batch))
        return batch

    def _sample(self, timeout_s: float | None, out: Any) -> Batch:
        return self.source.sample(timeout_s=timeout_s, out=out, **self._options)

    def _take(self) -> ArraySet | None:
        with self._lock:
            for i, arrays in enumerate(self._sets):
                if arrays.is_free():
                    return self._sets.pop(i)
        return None

    def _put(self, arrays: ArraySet) -> None:
        with self._lock:
            self._sets.append(arrays)
            del self._sets[: -self._num_sets]  # of a caller who keeps all batches the oldest are let go


@dataclass
class Failure:
    """What ended an attempt to sample that began at `began`."""

    error: BaseException
    began: float


class Ahead:
    """A thread that samples ahead, and what it has in hand. Knows nothing of its Sampler, which may become garbage."""

    def __init__(self, draw: Draw, stop: Stop, prefetch: int, timeout_s: float | None) -> None:
        self._draw = draw
        self._stop = stop
        self._prefetch = prefetch
        self._timeout_s = timeout_s
        self._next_timeout_s = timeout_s  # of the next attempt
        self._fork_count = fork_count()
        self._changed = threading.Condition()  # with an RLock: a finalizer may run within
        self._ready = deque[Batch | Failure]()
        self._thread: threading.Thread | None = None
        self._is_over = False  # for those who take
        _threads.add(self)

    @property
    def is_own(self) -> bool:
        """Whether its thread is one of this process."""
        return self._fork_count == fork_count()

    def take(self) -> Batch | None:
        """The next batch; None if this has ended. Raises what ended the attempt in its place."""
        began = time.monotonic()
        with self._changed:
            if self._thread is None and not self._is_over:
                self._thread = threading.Thread(target=self._run, name="shmreplay-sampler", daemon=True)
                self._thread.start()
            while True:
                self._changed.wait_for(lambda: self._ready or self._is_over)
                if self._is_over:
                    return None
                outcome = self._ready.popleft()
                self._next_timeout_s = self._timeout_s
                self._changed.notify_all()
                if isinstance(outcome, Batch):
                    return outcome
                if not self._is_late(outcome, began):
                    try:
                        raise outcome.error
                    finally:
                        del outcome  # else error and frame would refer to each other

    def _is_late(self, failure: Failure, began: float) -> bool:
        """Whether a timeout came of a wait that was not this call's: then the next attempt gets what is left."""
        if not isinstance(failure.error, RateLimitTimeout) or failure.began >= began or self._timeout_s is None:
            return False
        left = self._timeout_s - (time.monotonic() - began)
        if left <= 0 < self._timeout_s:
            return False
        self._next_timeout_s = max(left, 0.0)
        return True

    def end(self) -> None:
        """Ends the thread, at once if it waits, and every `take`. Nothing in a forked child: it has no such thread."""
        if self.is_own:
            self._is_over = True
            self._end_thread()

    def _end_thread(self) -> None:
        self._stop.is_set = True
        with self._changed:
            self._changed.notify_all()
        self._draw.source.end_waits()

    def leave(self) -> None:
        """Ends the thread since Python ends. A daemon thread that takes sleeps on, as others in a call do."""
        if self.is_own:
            self._end_thread()

    def join(self) -> None:
        """Waits for the thread's end, and lets go of what it has sampled."""
        if self.is_own and self._thread is not None:
            self._thread.join()
            self._ready.clear()

    def _has_room(self) -> bool:
        if self._stop.is_set:
            return True
        return len(self._ready) < self._prefetch and not (self._ready and isinstance(self._ready[-1], Failure))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_room)
                if self._stop.is_set:
                    return
                timeout_s = self._next_timeout_s
            self._append(self._attempt(timeout_s))

    def _attempt(self, timeout_s: float | None) -> Batch | Failure:
        began = time.monotonic()
        try:
            return self._draw(timeout_s)
        except BaseException as error:  # noqa: BLE001  # whatever it is, next() raises it
            return Failure(error, began)

    def _append(self, outcome: Batch | Failure) -> None:
        with self._changed:
            if not self._stop.is_set:
                self._ready.append(outcome)
            self._changed.notify_all()


_threads = weakref.WeakSet[Ahead]()
_replacing = threading.Lock()  # a sampler's thread, after a fork


def _after_fork() -> None:
    global _replacing
    _replacing = threading.Lock()


def _end_all() -> None:
    own = list(_threads)
    for ahead in own:
        ahead.leave()
    for ahead in own:
        ahead.join()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_end_all)  # a thread that Python has to leave behind would be stopped anywhere
