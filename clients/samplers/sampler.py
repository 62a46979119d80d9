"""Sampler: an iterator of batches that a thread samples ahead, in arrays that are used again."""

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
from shmreplay.clients.handles.handle import Handle, Stop, raise_closed
from shmreplay.clients.handles.unattached import refuse_pickle
from shmreplay.clients.link.connection import fork_count
from shmreplay.clients.samplers.ahead import Ahead
from shmreplay.errors import ShmReplayError

DEFAULT_PREFETCH = 2
SPARE_SETS = 3  # in addition to the batches ready: the caller's batch, the one before it, and one being written

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)
S = TypeVar("S", bound="BatchStream[Any]")


@dataclass(frozen=True)
class Source:
    """What a sampler draws its batches from.

    Attributes:
        where: the name in error texts.
        sample: draws a batch; called with the seconds to wait, the arrays to write into or None, and a list that gets
            the batch, also if this raises.
        handles: the handles that it samples with; only this sampler uses them.
        stop: ends calls of these handles.
        consumes: whether sampling uses items up.
        takes_out: whether batches can be written into given arrays.
    """

    where: str
    sample: Callable[[float | None, Any, list[Batch]], Batch]
    handles: Sequence[Handle]
    stop: Stop
    consumes: bool
    takes_out: bool = True

    def end_waits(self) -> None:
        """Ends the waits of other threads in `sample`, at once."""
        for handle in self.handles:
            handle._native.end_waits()


class Draws(Protocol[B_co]):
    """Makes a sampler's batches, one for each call. Safe to use from threads."""

    def __call__(self, timeout_s: float | None, drawn: list[Any]) -> B_co:
        """The next batch. The list gets what is drawn, also if this raises; its last entry is the best form of it."""

    def anew(self) -> Draws[B_co]:
        """Returns the same for a forked child, with its own memory."""

    def close(self) -> None:
        """Frees its memory. It is not called again afterwards."""


class BatchStream(Generic[B]):
    """An endless iterator of the batches that `draw` makes, in a thread ahead of time; also a context manager."""

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
        # Ends the thread when the sampler is collected as garbage. It does not wait for the thread's end, because the
        # finalizer may run in any thread, even in that one.
        weakref.finalize(self, ahead.end).atexit = False
        return ahead

    @property
    def prefetch(self) -> int:
        """How many batches are sampled ahead."""
        return self._prefetch

    @property
    def is_closed(self) -> bool:
        """Whether the sampler or its client was closed."""
        return self._is_closed

    def __iter__(self: S) -> S:
        return self

    def __next__(self) -> B:
        drawn: list[Any] = []
        try:
            return self._next(drawn)
        except BaseException as error:
            if drawn:
                error.batch = drawn[-1]  # type: ignore[attr-defined]  # no call: see ARCHITECTURE.md, "Ctrl-C"
            raise

    def _next(self, drawn: list[Any]) -> B:
        """The next batch. The list gets what this call itself draws, also if it raises."""
        if self._is_closed:
            self._raise_closed()
        if self._fork_count != fork_count():
            self._begin_anew()
        if self._ahead is None:
            return self._draw(self._timeout_s, drawn)
        batch = self._ahead.take()
        if batch is None:
            self._raise_closed()
        return batch

    def _begin_anew(self) -> None:
        """Starts again in a forked child, which lacks the parent's threads; one of them may have held any lock."""
        with _replacing:
            if self._fork_count != fork_count():
                self._draw = self._draw.anew()
                self._ahead = None if self._ahead is None else self._new_thread()
                self._fork_count = fork_count()

    def close(self) -> None:
        """Ends the thread and blocked calls of `next` at once. Idempotent. Batches already returned stay valid."""
        self._is_closed = self._source.stop.is_set = True
        if self._ahead is None:
            self._source.end_waits()
        else:
            self._ahead.end()
            self._ahead.join()
        for handle in self._source.handles:
            handle._end_threads()
        if self._fork_count == fork_count():  # in a forked child, its memory is the parent's
            self._draw.close()

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_sampler(self)

    def _raise_closed(self) -> NoReturn:
        for handle in self._source.handles:
            if handle._client.is_closed:
                raise_closed(handle.name)
        raise ShmReplayError(f"{self._source.where}: this sampler is closed; make another one")

    def __repr__(self) -> str:
        return f"<shmreplay sampler of {self._source.where}{' closed' if self._is_closed else ''}>"


class Sampler(BatchStream[Batch]):
    """An endless iterator of batches, and a context manager. Made by `TableHandle.sampler` and `Mix.sampler`.

    It ends with `close`, at the end of a `with`, when it is collected as garbage (after a `for` loop over it was left),
    when its client is closed, and when Python exits. Its thread then ends, too, even while it waits. Safe to use from
    threads: each batch goes to one of them. In a forked child it goes on with its own thread, arrays and random
    numbers.
    """

    def __init__(self, source: Source, prefetch: int | None, timeout_s: float | None) -> None:
        prefetch = check_prefetch(source, prefetch)
        super().__init__(source, prefetch, timeout_s, Draw(source, prefetch))


def refuse_sampler(sampler: object) -> NoReturn:
    """Raises the TypeError for one that is pickled."""
    refuse_pickle(repr(sampler), "its thread and arrays are this process' own", "pass the table, and make one there")


def check_prefetch(source: Source, prefetch: int | None) -> int:
    """Returns how many batches to sample ahead; for None 2, or 0 if sampling consumes items.

    Raises:
        TypeError: `prefetch` is not an integer.
        ValueError: it is negative, or above 0 although sampling consumes items.
    """
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
        raise ValueError(f"{where}: a sampler uses its own arrays, so it takes no out=; remove it, or call sample()")
    found = inspect.signature(sample)
    found = found.replace(parameters=[part for part in found.parameters.values() if part.name != "n"])
    try:
        found.bind(timeout_s=None, **options)
    except TypeError as error:
        raise TypeError(f"{where}: sampler: {error}; expected options of sample()") from None


def decoded(batch: Batch) -> Batch:
    """Makes the batch's data, and returns the batch."""
    _ = batch.data
    return batch


class Draw:
    """Draws batches, and writes them into arrays of earlier batches that nobody refers to any more.

    With `at_borders`, these arrays begin at multiples of 64 bytes, except those of batches that got new arrays: the
    first one, and one whose items had outgrown the arrays.
    """

    def __init__(self, source: Source, prefetch: int, at_borders: bool = False) -> None:
        self._source = source
        self._prefetch = prefetch
        self._at_borders = at_borders
        # With 0, every batch gets new arrays.
        self._num_sets = prefetch + SPARE_SETS if source.takes_out and not source.consumes else 0
        self._sets: list[ArraySet] = []
        self._lock = threading.Lock()

    def anew(self) -> Draw:
        """Returns the same with its own arrays."""
        return Draw(self._source, self._prefetch, self._at_borders)

    def close(self) -> None:
        """Frees the arrays that nobody else refers to."""
        with self._lock:
            self._sets.clear()

    def __call__(self, timeout_s: float | None, drawn: list[Any]) -> Batch:
        if self._num_sets == 0:
            return self._sample(timeout_s, None, drawn)
        arrays = self._take()
        try:
            batch = self._sample(timeout_s, None if arrays is None else arrays.out, drawn)
        except ValueError:
            if arrays is None:
                raise
            # The table's longest item has outgrown the arrays.
            with self._lock:
                self._sets.clear()
            drawn.clear()
            arrays = None
            batch = self._sample(timeout_s, None, drawn)
        finally:
            if arrays is not None:
                self._put(arrays)
        if arrays is None:
            self._put(ArraySet(batch, self._at_borders))
        return batch

    def _sample(self, timeout_s: float | None, out: Any, drawn: list[Any]) -> Batch:
        return decoded(self._source.sample(timeout_s, out, drawn))  # decoded here, so by the thread, not by the learner

    def _take(self) -> ArraySet | None:
        with self._lock:
            for i, arrays in enumerate(self._sets):
                if arrays.is_free():
                    return self._sets.pop(i)
            return self._sets[-1].another() if self._at_borders and self._sets else None

    def _put(self, arrays: ArraySet) -> None:
        with self._lock:
            self._sets.append(arrays)
            del self._sets[: -self._num_sets]  # if a caller keeps all batches, the oldest sets are dropped


_replacing = threading.Lock()  # held while a sampler replaces its thread after a fork


def _after_fork() -> None:
    global _replacing
    _replacing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
