"""Sampler: batches one after the other, sampled ahead by a thread, in arrays that are used again."""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import numpy as np

from shmreplay.clients.batches.array_set import ArraySet
from shmreplay.clients.batches.batch import Batch
from shmreplay.clients.handles.handle import Handle, Stop, raise_closed, raise_with
from shmreplay.clients.link.connection import fork_count
from shmreplay.clients.samplers.ahead import Ahead
from shmreplay.errors import ShmReplayError

DEFAULT_PREFETCH = 2
SPARE_SETS = 3  # beside those of the batches that wait: the caller's batch, the one before it, and one being written

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)
S = TypeVar("S", bound="BatchStream[Any]")


@dataclass(frozen=True)
class Source:
    """What a sampler samples from.

    Attributes:
        where: how errors name it.
        sample: called with seconds to wait and what to write into, or None.
        handles: those it samples with, of this sampler alone.
        stop: theirs.
        consumes: whether sampling takes items away.
        takes_out: whether batches can be written into given arrays.
    """

    where: str
    sample: Callable[[float | None, Any], Batch]
    handles: Sequence[Handle]
    stop: Stop
    consumes: bool
    takes_out: bool = True

    def end_waits(self) -> None:
        """Ends the waits of other threads in `sample`, at once."""
        for handle in self.handles:
            handle._native.end_waits()


class Draws(Protocol[B_co]):
    """What makes a sampler's batches, one a call. Safe to use from threads."""

    def __call__(self, timeout_s: float | None) -> B_co:
        """The next batch."""

    def anew(self) -> Draws[B_co]:
        """The same for a forked child, with memory of its own."""

    def close(self) -> None:
        """Lets go of what it has. Nobody calls it any more."""


class BatchStream(Generic[B]):
    """An endless iterator of what `draw` makes, ahead of time by a thread, and a context manager."""

    def __init__(self, source: Source, prefetch: int, timeout_s: float | None, draw: Draws[B]) -> None:
        self._source = source
        self._prefetch = prefetch
        self._timeout_s = timeout_s
        self._draw = draw
        self._is_closed = False
        self._fork_count = fork_count()
        self._ahead = self._new_thread() if prefetch > 0 else None
        for client in {handle._client for handle in source.handles}:
            client._add_dependent(self)

    def _new_thread(self) -> Ahead[B]:
        source = self._source
        ahead = Ahead(self._draw, source.end_waits, source.stop, self._prefetch, self._timeout_s)
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

    def __iter__(self: S) -> S:
        return self

    def __next__(self) -> B:
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
        if self._fork_count == fork_count():  # else what it has is the parent's
            self._draw.close()

    def __enter__(self: S) -> S:
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


class Sampler(BatchStream[Batch]):
    """An endless iterator of batches, and a context manager. Made by `TableHandle.sampler` and `Mix.sampler`.

    It ends with `close`, at the end of a `with`, when it is garbage (a `for` loop over it was left), when its client is
    closed and when Python ends; its thread ends with it, out of whatever it waits for. Safe to use from threads, each
    of which gets other batches. In a forked child it goes on with a thread, arrays and random numbers of its own.
    """

    def __init__(self, source: Source, prefetch: int | None, timeout_s: float | None) -> None:
        prefetch = check_prefetch(source, prefetch)
        super().__init__(source, prefetch, timeout_s, Draw(source, prefetch))


def check_prefetch(source: Source, prefetch: int | None) -> int:
    """How many batches wait: None is 2, or 0 where items are consumed. Raises ValueError or TypeError for none such."""
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


def check_names(where: str, sample: Callable[..., Batch], options: dict[str, Any]) -> None:
    """Raises ValueError or TypeError for options that `sample` does not have, or that a sampler sets itself."""
    if "out" in options:
        raise ValueError(f"{where}: a sampler has arrays of its own; leave out= away, or call sample()")
    found = inspect.signature(sample)
    found = found.replace(parameters=[part for part in found.parameters.values() if part.name != "n"])
    try:
        found.bind(timeout_s=None, **options)
    except TypeError as error:
        raise TypeError(f"{where}: sampler: {error}; expected options of sample()") from None


def decoded(batch: Batch) -> Batch:
    """The batch, its data made now. Whatever keeps it from that carries the batch: its items may be nowhere else."""
    try:
        _ = batch.data
    except BaseException as error:  # noqa: BLE001  # raised again
        raise_with(error, batch=batch)
    return batch


class Draw:
    """One batch after the other, written into arrays that nobody holds any more.

    With `at_borders` those arrays begin at borders of 64 bytes; only what the first batch comes in may not.
    """

    def __init__(self, source: Source, prefetch: int, at_borders: bool = False) -> None:
        self._source = source
        self._prefetch = prefetch
        self._at_borders = at_borders
        # 0: every batch gets new arrays
        self._num_sets = prefetch + SPARE_SETS if source.takes_out and not source.consumes else 0
        self._sets: list[ArraySet] = []
        self._lock = threading.Lock()

    def anew(self) -> Draw:
        """The same, with arrays of its own."""
        return Draw(self._source, self._prefetch, self._at_borders)

    def close(self) -> None:
        """Lets go of the arrays that nobody else has."""
        with self._lock:
            self._sets.clear()

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
            self._put(ArraySet(batch, self._at_borders))
        return batch

    def _sample(self, timeout_s: float | None, out: Any) -> Batch:
        return decoded(self._source.sample(timeout_s, out))  # by the thread that samples ahead, not by the learner

    def _take(self) -> ArraySet | None:
        with self._lock:
            for i, arrays in enumerate(self._sets):
                if arrays.is_free():
                    return self._sets.pop(i)
            return self._sets[-1].another() if self._at_borders and self._sets else None

    def _put(self, arrays: ArraySet) -> None:
        with self._lock:
            self._sets.append(arrays)
            del self._sets[: -self._num_sets]  # where a caller keeps all batches, the oldest sets are forgotten


_replacing = threading.Lock()  # a sampler's thread, after a fork


def _after_fork() -> None:
    global _replacing
    _replacing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
