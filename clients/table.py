"""TableHandle: a table as actors and learners use it. Its calls work on shared memory, without the daemon."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core, errors
from shmreplay.clients.batch import Batch, NativeBatch
from shmreplay.clients.blocking import explain_inserts, explain_samples, report_wait
from shmreplay.clients.info import TableInfo
from shmreplay.clients.randomness import Randomness
from shmreplay.clients.writer import Writer
from shmreplay.plan import Estimate, estimate
from shmreplay.rate_limiters import RateLimiter
from shmreplay.tables import Table

if TYPE_CHECKING:
    from shmreplay.clients.client import Attachment, Client

logger = logging.getLogger("shmreplay")

MAX_BATCH = 2**31 - 1
LEAVE_TO_TRAJECTORIES = "comes with trajectories and is not supported yet"


class TableHandle:
    """Made by `Client.table`. Safe to use from threads; a forked child attaches anew by itself.

    Every method raises ShmReplayError after `client.close()`, TableClosed once the table was dropped, SegmentFailed if
    its memory was damaged. Where there is a `timeout_s`, None waits for ever, 0 never waits, and Ctrl-C ends the wait.
    """

    def __init__(self, client: Client, name: str, attachment: Attachment, seed: Any = None) -> None:
        self._client = client
        self._name = name
        self._random = Randomness(seed)
        self._warned_stale = False
        self._bind(attachment)

    def _bind(self, attachment: Attachment) -> None:
        self._arena = attachment.arena
        self._spec = attachment.table
        self._sig = attachment.table.sig
        self._native = attachment.arena.table(attachment.index)
        arena, name, control = self._arena, self._name, self._arena.table(attachment.index)

        def observe(what: str, pid: int, seconds: int) -> None:
            report_wait(arena, control, name, what, pid, seconds)

        self._native.bind(
            self._sig.native_plan(),
            [(leaf.spec.dtype, leaf.spec.shape) for leaf in self._sig.leaves],
            self._sig.canonical,
            self._canonical_batch(),
            observe,
        )

    def _canonical_batch(self) -> Callable[[object], tuple[list[Any], int]]:
        sig = self._sig

        def convert(steps: object) -> tuple[list[Any], int]:
            n = sig.batch_size(steps)
            return sig.canonical(steps, batch=n), n

        return convert

    # --- inserting -----------------------------------------------------------------------------------------------

    def insert(self, step: Any, priority: float | None = None, timeout_s: float | None = None) -> int:
        """Inserts one step as one item, an episode of its own.

        Args:
            step: values in the table's structure, each of its column's dtype and shape; copied.
            priority: finite, >= 0. None: the largest live one if that is positive, else 1 (for a Prioritized sampler;
                1 for others).
            timeout_s: seconds to wait for the rate limiter and, in tables that keep their items, for room.

        Returns:
            The item's key.

        Raises:
            RateLimitTimeout: not admitted in time; nothing was inserted.
            SignatureMismatch: the step does not fit; the text names the column.
            ValueError: the priority is not finite or negative.
            ArenaFull: no room, and the table says `on_full="error"`.
        """
        while True:
            if self._client.is_closed:
                self._raise_closed()
            key = self._native.insert(step, priority, timeout_s)
            if key > 0:
                return key
            if key == _core.BAD_PRIORITY:
                raise ValueError(f"{self._where}: priority is {priority!r}; {_EXPECTED_PRIORITY}")
            self._recover_or_raise(-key, "insert", timeout_s)

    def insert_batch(
        self, steps: Any, priorities: ArrayLike | None = None, timeout_s: float | None = None
    ) -> NDArray[np.int64]:
        """Inserts N steps as N items, in order.

        Args:
            steps: the table's structure with arrays `[N, *shape]`.
            priorities: `[N]` finite, >= 0, or None as in `insert`.
            timeout_s: as in `insert`, for all of them together.

        Returns:
            int64 `[N]`: the keys.

        Raises:
            RateLimitTimeout: not all were admitted in time; `.keys` are those of the first ones, which went in.
            SignatureMismatch, ValueError, ArenaFull: as `insert`; with the first two nothing was inserted.
        """
        values = None if priorities is None else self._float_array(priorities, "priorities")
        while True:
            self._check_open()
            status, done, keys, raised, bad = self._native.insert_batch(steps, values, timeout_s)
            if bad >= 0 and values is not None:
                raise ValueError(f"{self._where}: priorities[{bad}] is {values[bad]}; {_EXPECTED_PRIORITY}")
            if raised is not None:
                raise raised
            if status == 0:
                return keys
            if done > 0 or not self._recover(status):
                self._raise_status(status, "insert_batch", timeout_s, keys=keys[:done])

    def writer(
        self, history: int | None = None, patterns: list[Any] | None = None, commit_every: int = 1
    ) -> Writer:
        """A writer of one stream of steps, for items of more than one step. Use it as a context manager.

        Args:
            history: steps that an item can reach back, the newest included; None: the table's `item_steps`.
            patterns: not supported yet.
            commit_every: 1.
        """
        if patterns:
            raise ValueError(f"{self._where}: patterns= {LEAVE_TO_TRAJECTORIES}; call create_item(length=...)")
        if commit_every != 1:
            raise ValueError(f"{self._where}: commit_every is {commit_every!r}; other than 1 is not supported yet")
        steps = self._spec.item_steps if history is None else _count(self._where, "history", history)
        self._check_open()
        self._refresh_after_fork()
        return Writer(self, steps)

    # --- sampling ------------------------------------------------------------------------------------------------

    def sample(
        self,
        n: int,
        timeout_s: float | None = None,
        at_least: int | None = None,
        pad_to: int | None = None,
        columns: Any = None,
        out: Any = None,
        time_major: bool = False,
        count: bool = True,
    ) -> Batch:
        """Draws n items by the table's sampler, with replacement where it is random.

        What the rate limiter admits is drawn at once; for the rest the call waits.

        Args:
            n: items, >= 1.
            timeout_s: seconds to wait for the rate limiter.
            at_least: return as soon as so many are drawn and no more are admitted; None: n.
            count: False draws without asking the limiter, and moves no counter and deletes nothing: a look.
            pad_to, columns, out, time_major: not supported yet.

        Raises:
            RateLimitTimeout: not all were admitted in time. Its `.batch` has those that were drawn, or is None: on a
                table that consumes its items they are nowhere else.
            ValueError: n or at_least is out of range.
        """
        n = _count(self._where, "n", n)
        enough = n if at_least is None else _count(self._where, "at_least", at_least, n)
        for name, value in (("pad_to", pad_to), ("columns", columns), ("out", out), ("time_major", time_major or None)):
            if value is not None:
                raise ValueError(f"{self._where}: {name}= {LEAVE_TO_TRAJECTORIES}")
        if not count and timeout_s is None and self._native.size == 0:
            raise ValueError(f"{self._where}: sample(count=False) of an empty table would never return; insert first")
        while True:
            self._check_open()
            uniforms = self._random.uniforms(n)
            status, done, parts, smallest, raised = self._native.sample(n, enough, count, uniforms, timeout_s)
            batch = None if parts is None else Batch(NativeBatch(*parts), done, self._sig, smallest)
            if status == 0 and batch is not None:
                return batch
            if raised is not None and batch is not None:
                self._raise_with_batch(raised, batch)
            if done > 0 or not self._recover(status):
                self._raise_status(status, "sample", timeout_s, batch=batch, asked=n)

    def get(self, keys: ArrayLike, timeout_s: float | None = None) -> Batch:
        """The live ones of the items, in the order given; moves no counter. An empty batch if none is left.

        Raises:
            TypeError: the keys are not int64.
        """
        wanted = self._key_array(keys)
        while True:
            self._check_open()
            status, done, parts, _, raised = self._native.get(wanted, timeout_s)
            if raised is not None:
                raise raised
            if status == 0:
                return self._empty_batch() if parts is None else Batch(NativeBatch(*parts), done, self._sig, 0.0)
            if not self._recover(status):
                self._raise_status(status, "get", timeout_s)

    def keys(self) -> NDArray[np.int64]:
        """Keys of the live items in insertion order, int64. Read without the lock: each was live during the call."""
        self._check_open()
        self._refresh_after_fork()
        return self._native.keys()

    # --- changing ------------------------------------------------------------------------------------------------

    def update_priorities(self, keys: ArrayLike, priorities: ArrayLike, timeout_s: float | None = None) -> int:
        """Gives items new priorities. Keys of items that are gone are skipped, whatever took their place.

        Args:
            keys: int64 `[B]`, as `batch.keys`.
            priorities: `[B]` or `[B, 1]`, finite, >= 0, of any real dtype.

        Returns:
            How many were still there. A call that hits none warns once.

        Raises:
            ValueError: a priority is not finite or negative (nothing was changed), or there are not as many as keys.
            TypeError: the keys are not int64.
        """
        wanted = self._key_array(keys)
        values = self._float_array(priorities, "priorities")
        if len(values) != len(wanted):
            raise ValueError(f"{self._where}: {len(values)} priorities for {len(wanted)} keys; expected one a key")
        while True:
            self._check_open()
            status, updated, bad = self._native.update_priorities(wanted, values, timeout_s)
            if bad >= 0:
                raise ValueError(f"{self._where}: priorities[{bad}] is {values[bad]}; {_EXPECTED_PRIORITY}")
            if status == 0:
                self._warn_if_stale(updated, len(wanted))
                return int(updated)
            if not self._recover(status):
                self._raise_status(status, "update_priorities", timeout_s)

    def delete(self, keys: ArrayLike, timeout_s: float | None = None) -> int:
        """Deletes items; keys of items that are gone are skipped. Returns how many were still there."""
        wanted = self._key_array(keys)
        while True:
            self._check_open()
            status, deleted = self._native.delete(wanted, timeout_s)
            if status == 0:
                return int(deleted)
            if not self._recover(status):
                self._raise_status(status, "delete", timeout_s)

    def reset(self, timeout_s: float | None = None) -> None:
        """Deletes all items and zeroes the counters. Inserts that wait for the rate limiter go on."""
        self._control().reset(timeout_s)

    def set_rate_limiter(self, limiter: RateLimiter, rebase: bool = True, timeout_s: float | None = None) -> None:
        """Gives the table another rate limiter, for all its users.

        Args:
            rebase: start the difference anew in the middle of the new bounds. False leaves the counters to speak: a
                change late in a run may then block one side until the other has caught up.
        """
        if not isinstance(limiter, RateLimiter):
            raise TypeError(f"{self._where}: expected a rate limiter of shmreplay.rate_limiters, got {limiter!r}")
        self._control().set_rate_limiter(**limiter.numbers(), rebase=rebase, timeout_s=timeout_s)

    def pause(self, inserts: bool = True, samples: bool = True, timeout_s: float | None = None) -> None:
        """Lets inserts, samples or both wait, as if the rate limiter did not admit them, until `resume`."""
        self._control().pause(inserts, samples, timeout_s)

    def resume(self, timeout_s: float | None = None) -> None:
        """Ends a pause. Does nothing if there is none."""
        self._control().resume(timeout_s)

    # --- looking -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._control().size)

    def info(self) -> TableInfo:
        """Counters, rate limiter, blocked callers, priorities: see `TableInfo`."""
        return TableInfo.read(self._control())

    def can_insert(self, n: int = 1) -> bool:
        """Whether the rate limiter would admit n inserts now."""
        return bool(self._control().can_insert(_count(self._where, "n", n)))

    def can_sample(self, n: int = 1) -> bool:
        """Whether `sample(n)` would be admitted whole now: by the rate limiter, and by what `max_times_sampled` leaves."""
        return bool(self._control().can_sample(_count(self._where, "n", n)))

    def estimate(self) -> Estimate:
        """Every term of the memory that the table's arena takes."""
        return estimate([self._spec])

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    @property
    def spec(self) -> Table:
        """The table as it was created."""
        return self._spec

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._where}: a handle can not be pickled; pickle its client and call client.table({self._name!r}) there"
        )

    def __repr__(self) -> str:
        return f"<shmreplay table {self._name!r} at {self._client.address}>"

    # --- inner ---------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"table {self._name!r}"

    def _raise_closed(self) -> NoReturn:
        raise errors.ShmReplayError(f"{self._where}: its client is closed; connect anew")

    def _check_open(self) -> None:
        if self._client.is_closed:
            self._raise_closed()

    def _control(self) -> _core.Table:
        self._check_open()
        self._refresh_after_fork()
        return self._native

    def _refresh_after_fork(self) -> None:
        if self._arena.forked:
            self._bind(self._client._attach(self._name))

    def _recover(self, status: int) -> bool:
        """After a fork: attaches anew, so that the call can be repeated."""
        if status != _core.STATUS_FORKED:
            return False
        self._bind(self._client._attach(self._name))
        return True

    def _recover_or_raise(self, status: int, call: str, timeout_s: float | None) -> None:
        if not self._recover(status):
            self._raise_status(status, call, timeout_s)

    def _raise_status(self, status: int, call: str, timeout_s: float | None, asked: int = 0, **parts: Any) -> NoReturn:
        """Raises what a native status stands for, with the numbers that explain a block."""
        if status == _core.STATUS_SESSION_LOST and self._client.is_closed:
            self._raise_closed()
        if status == _core.STATUS_INTERRUPTED:
            raise KeyboardInterrupt
        if status == _core.STATUS_TIMEOUT:
            self._raise_timeout(call, timeout_s, asked, parts)
        name, message = _core.STATUS_ERRORS[status]
        error = getattr(errors, name, None) or ValueError
        extra = {"keys": parts["keys"]} if status == _core.STATUS_ARENA_FULL and "keys" in parts else {}
        raise error(f"{self._where}: {call}: {message}", **extra)

    def _raise_timeout(self, call: str, timeout_s: float | None, asked: int, parts: dict[str, Any]) -> NoReturn:
        info = {**self._native.info(), "can_insert": self._native.can_insert(1)}
        explain = explain_samples if call == "sample" else explain_inserts
        done = ""
        if (batch := parts.get("batch")) is not None:
            done = f" after {len(batch)} of {asked} items, which are in the error's .batch"
        if (keys := parts.get("keys")) is not None and len(keys) > 0:
            done = f" after {len(keys)} items, whose keys are in the error's .keys"
        raise errors.RateLimitTimeout(
            f"{self._where}: {call} was not admitted within {timeout_s} s{done}: {explain(self._arena, info)}", **parts
        )

    def _raise_with_batch(self, raised: BaseException, batch: Batch) -> NoReturn:
        # A consumed item must not be lost to a signal: the exception of its handler carries what was drawn.
        raised.batch = batch  # type: ignore[attr-defined]
        raise raised

    def _key_array(self, keys: ArrayLike) -> NDArray[np.int64]:
        array = np.asarray(keys)
        if array.size == 0:
            return np.empty(0, np.int64)
        if array.dtype != np.int64:
            raise TypeError(f"{self._where}: keys have dtype {array.dtype}; expected int64, as batch.keys and insert give them")
        return np.ascontiguousarray(array).reshape(-1)

    def _float_array(self, values: ArrayLike, what: str) -> NDArray[np.float64]:
        try:
            array = np.asarray(values)
        except (TypeError, RuntimeError, ValueError) as error:
            raise TypeError(
                f"{self._where}: {what} can not be read as an array ({error}); expected real numbers in host memory"
            ) from error
        if array.dtype.kind not in "fiub":
            # Extension floats (bfloat16) say so by converting; complex numbers and objects do not.
            if not np.can_cast(array.dtype, np.float64, "same_kind"):
                raise TypeError(f"{self._where}: {what} have dtype {array.dtype}; expected real numbers")
        return np.ascontiguousarray(array, np.float64).reshape(-1)

    def _warn_if_stale(self, updated: int, asked: int) -> None:
        if updated > 0 or asked == 0 or self._warned_stale:
            return
        self._warned_stale = True
        warnings.warn(
            f"{self._where}: update_priorities hit none of {asked} items; they are gone by now, or the keys are another "
            "table's. Said once.",
            stacklevel=3,
        )

    def _empty_batch(self) -> Batch:
        columns = range(len(self._sig.leaves))
        empty = [np.empty((0, *leaf.spec.shape), leaf.spec.dtype) for leaf in self._sig.leaves]
        ints, floats = np.empty(0, np.int64), np.empty(0, np.float64)
        lengths = [np.empty(0, np.int32) for _ in columns]
        native = NativeBatch(
            b"", [True] * len(empty), list(columns), empty, lengths, [None] * len(empty), ints, floats, floats, ints, ints,
            ints, ints, ints,
        )
        return Batch(native, 0, self._sig, 0.0)


_EXPECTED_PRIORITY = f"priorities must be finite, >= 0 and at most {_core.MAX_PRIORITY:g}"


def _count(where: str, name: str, value: int, high: int = MAX_BATCH) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{where}: {name} is {value!r}; expected an integer")
    if not 1 <= value <= high:
        raise ValueError(f"{where}: {name} is {value}; expected 1 to {high}")
    return int(value)
