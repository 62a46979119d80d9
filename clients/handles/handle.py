"""Handle: what every call of a table needs: its mapped arena, attaching again after a fork, and errors with reasons."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from shmreplay import _core, errors
from shmreplay.clients.batches.arrangement import Arrangement, Arrangements
from shmreplay.clients.batches.native import NativeOutput
from shmreplay.clients.batches.sample_options import Columns, PadTo
from shmreplay.clients.handles.attached_client import AttachedClient
from shmreplay.clients.handles.blocking import (
    explain_chunks,
    explain_inserts,
    explain_lock,
    explain_looks,
    explain_room,
    explain_samples,
    report_eviction,
    report_wait,
)
from shmreplay.clients.handles.gather_threads import GatherThreads
from shmreplay.clients.handles.randomness import Randomness
from shmreplay.clients.handles.step_conversion import StepConversion
from shmreplay.clients.handles.structure_error import shown_by_items
from shmreplay.clients.handles.unattached import unattached
from shmreplay.clients.link.attachments import Attachment, specs_of
from shmreplay.tables.plan import plan
from shmreplay.tables.table import Table

T = TypeVar("T")

LOOK = "sample(count=False)"
EXPECTED_PRIORITY = _core.EXPECTED_PRIORITY
_INSERTS = ("insert", "insert_batch", "extend")


class Stop:
    """Set when the results of a handle's calls are no longer wanted, as when a sampler is closed."""

    is_set = False


class Handle:
    """One table of an attached arena. In a forked child it attaches again."""

    def __init__(
        self, client: AttachedClient, name: str, attachment: Attachment, seed: Any = None, stop: Stop | None = None
    ) -> None:
        self._client = client
        self._name = name
        self._random = Randomness(seed)
        self._warned_stale = False
        self._stop = stop
        self._threads: GatherThreads | None = None
        self._bind(attachment)

    def _bind(self, attachment: Attachment) -> None:
        self._arena = attachment.arena
        self._spec = attachment.table
        self._has_spans = self._spec.item is not None or self._spec.item_steps > 1
        self._index = attachment.index
        self._sig = attachment.table.sig
        self._native = attachment.arena.table(attachment.index)
        self._arrangements = Arrangements(self._sig)
        client, arena, name, spec = self._client, self._arena, self._name, self._spec
        control, stop = arena.table(attachment.index), self._stop

        warned = set[str]()

        def observe(what: str, pid: int, seconds: int) -> None:
            if what == "ended":
                if client.is_closed:
                    raise_closed(name)
                if stop is not None and stop.is_set:
                    raise errors.ShmReplayError(f"table {name!r}: the sampler was closed while it waited")
            elif what != "evicted":
                report_wait(arena, control, name, what, pid, seconds)
            elif what not in warned:
                warned.add(what)
                report_eviction(arena, control, spec)

        self._conversion = StepConversion(self._sig, self._arena)
        self._native.bind(
            self._sig.native_plan(),
            [
                None if leaf.spec.is_coded else (leaf.spec.dtype, leaf.spec.shape, leaf.spec.cast)
                for leaf in self._sig.leaves
            ],
            self._conversion.step,
            self._conversion.batch,
            observe,
            client._closed,
        )

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    @property
    def spec(self) -> Table:
        """The table as it was created."""
        return self._spec

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled_table(self._client, self._name, self._random, self)

    def __repr__(self) -> str:
        return f"<shmreplay table {self._name!r} at {self._client.address}>"

    @property
    def _where(self) -> str:
        return f"table {self._name!r}"

    def _check_open(self) -> None:
        if self._client.is_closed:
            raise_closed(self._name)

    def _control(self) -> _core.Table:
        self._check_open()
        self._refresh_after_fork()
        if self._native.dropped:
            raise errors.TableClosed(f"{self._where}: the table was dropped, or its server was closed")
        return self._native

    def _refresh_after_fork(self) -> None:
        if self._arena.forked:
            self._bind(self._client._attach(self._name))

    def _repeat(self, call: str, timeout_s: float | None, attempt: Callable[[_core.Table], tuple[int, T]]) -> T:
        """Returns the answer of `attempt` once its status is 0. After a fork it attaches again and repeats the attempt.

        Raises the error of any other status. If the error must carry results, the attempt raises it itself.
        """
        while True:
            self._check_open()
            status, answer = attempt(self._native)
            if status == 0:
                return answer
            self._recover_or_raise(status, call, timeout_s)

    def _structure(
        self, call: str, timeout_s: float | None = None, *, waits: bool = False, count: bool = False
    ) -> tuple[bytes, list[NativeOutput] | None]:
        """Names and outputs of the table's items. The outputs are None as long as the table has never had an item.

        Args:
            waits: wait for the first item.
            count: the wait is that of a sample, which the rate limiter must admit.
        """

        def ask(native: _core.Table) -> tuple[int, tuple[bytes, list[NativeOutput] | None]]:
            status, names, outputs = native.structure(waits, count, timeout_s)
            return status, (names, outputs)

        return self._repeat(call, timeout_s, ask)

    def _own_threads(self) -> None:
        """To be called before a call that may start threads, so that they end with the client."""
        if self._threads is None or self._threads.native is not self._native:
            self._threads = GatherThreads(self._native)
            self._client._add_dependent(self._threads)

    def _end_threads(self) -> None:
        if self._threads is not None:
            self._threads.close()

    def _arrange(
        self, call: str, columns: Columns, pad_to: PadTo, time_major: bool, timeout_s: float | None
    ) -> Arrangement:
        """The arrangement for these options. All calls but `get` wait for the first item, which fixes the structure."""
        if self._arrangements.items is None:
            names, outputs = self._structure(call, timeout_s, waits=call != "get", count=call != LOOK)
            if outputs is not None:
                self._arrangements.learn(names, outputs)
        return self._arrangements.of(columns, pad_to, time_major)

    def _recover(self, status: int) -> bool:
        """Attaches again if the status says that this process was forked. Returns whether the call can be repeated."""
        if status != _core.STATUS_FORKED:
            return False
        self._bind(self._client._attach(self._name))
        return True

    def _recover_or_raise(self, status: int, call: str, timeout_s: float | None) -> None:
        if not self._recover(status):
            self._raise_status(status, call, timeout_s)

    def _raise_status(self, status: int, call: str, timeout_s: float | None, asked: int = 0, **parts: Any) -> NoReturn:
        """Raises the error that a native status stands for, with the numbers that explain it."""
        if status == _core.STATUS_SESSION_LOST and self._client.is_closed:
            raise_closed(self._name)
        if status == _core.STATUS_INTERRUPTED:
            raise KeyboardInterrupt
        if status == _core.STATUS_TIMEOUT:
            self._raise_timeout(call, timeout_s, asked, parts)
        if status == _core.STATUS_STRUCTURE and call in _INSERTS:
            raise errors.SignatureMismatch(
                f"{self._where}: its items are spans, trajectories or windows, made by a writer: they show "
                f"{shown_by_items(self._arena, self._index, self._sig)}. {call} makes single-step items, which have no "
                "step axis: they belong in another table"
            )
        name, message = _core.STATUS_ERRORS[status]
        error = getattr(errors, name, None) or getattr(builtins, name)
        details = self._limits_named(message)
        if status == _core.STATUS_LOCK_TIMEOUT:
            details = explain_lock(self._arena)
        elif status == _core.STATUS_ARENA_FULL:
            details = f": {explain_chunks(self._arena)}{details}"
        raise_with(error(f"{self._where}: {call}: {message}{details}"), **parts)

    def _limits_named(self, message: str) -> str:
        """The numbers of the limits that a message names. Each is the arena's: the largest of all its tables."""
        spec = plan(specs_of(self._arena))
        numbers = {"max_streams": spec.max_streams, "max_sessions": spec.max_sessions, "chunk_steps": spec.chunk_steps}
        named = [f"{name} is {number}" for name, number in numbers.items() if name in message]
        return f" ({', '.join(named)})" if named else ""

    def _refuse_single_steps(self, call: str) -> NoReturn:
        self._control()  # if the table is gone, that is the error to raise
        declared, remedy = f"item_steps={self._spec.item_steps}", "table.writer() and create_item(length=...)"
        if self._spec.item is not None:
            declared, remedy = "item=, a window or pattern", "table.writer() and append(...)"
        raise ValueError(
            f"{self._where}: {call} makes single-step items, but the table was declared with {declared}; use {remedy}"
        )

    def _raise_timeout(self, call: str, timeout_s: float | None, asked: int, parts: dict[str, Any]) -> NoReturn:
        info = {**self._native.info(), "can_insert": self._native.can_insert(1)}
        # An append waits for room only; an insert, whose step is an item at once, for room or for the rate limiter.
        reasons = {"sample": explain_samples, "view": explain_samples, LOOK: explain_looks, "append": explain_room}
        reason = reasons.get(call, explain_inserts)(self._arena, info)
        done = ""
        if (batch := parts.get("batch")) is not None:
            done = f" after {len(batch)} of {asked} items, which are in the error's .batch"
        if (keys := parts.get("keys")) is not None and len(keys) > 0:
            done = f" after {len(keys)} items, whose keys are in the error's .keys"
        raise errors.RateLimitTimeout(
            f"{self._where}: {call} not admitted within {timeout_s} s{done}: {reason}", **parts
        )

    def _warn_if_stale(self, updated: int, asked: int, call: str = "update_priorities") -> None:
        if updated > 0 or asked == 0 or self._warned_stale:
            return
        self._warned_stale = True
        warn_stale(self._where, call, asked, stacklevel=4)


def warn_stale(where: str, call: str, asked: int, stacklevel: int) -> None:
    """Warns of a change that found none of its items. `stacklevel` counts this function, too."""
    warnings.warn(
        f"{where}: {call} hit none of {asked} items; they are gone by now, or the keys are of "
        "another table. Said once.",
        stacklevel=stacklevel,
    )


def pickled_table(client: AttachedClient, name: str, random: Randomness, handle: Any) -> tuple[Any, ...]:
    """What `__reduce__` of a table's handle returns: client and name, and a seed for random numbers of its own."""
    table = cast(Any, client).table  # it always is a Client
    return unattached, (type(handle), repr(handle), table, name, random.for_pickle())


def raise_closed(name: str) -> NoReturn:
    raise errors.ShmReplayError(f"table {name!r}: its client is closed; connect anew")


def raise_with(error: BaseException, **parts: Any) -> NoReturn:
    """Raises an error with the results so far as attributes: items that a call consumed must not be lost with it."""
    for name, value in parts.items():
        if value is not None:
            setattr(error, name, value)
    raise error
