"""TableControl: the calls about a table as a whole: reset, rate limiter, pauses, info, memory."""

from __future__ import annotations

import math
from typing import Any

from shmreplay.base.checks import check_float
from shmreplay.clients.batches.arguments import check_count
from shmreplay.clients.handles.handle import Handle
from shmreplay.clients.link.attachments import specs_of
from shmreplay.clients.tables.info import TableInfo
from shmreplay.estimates import Estimate, estimate
from shmreplay.rate_limiters import RateLimiter, check_limiter
from shmreplay.selectors import Prioritized
from shmreplay.tables.table import warn_if_never_sampled


class TableControl(Handle):
    """Changes and figures of the whole table."""

    def reset(self, timeout_s: float | None = None) -> None:
        """Deletes all items and sets the counters to zero. Inserts that wait for the rate limiter are then admitted.

        Raises:
            RateLimitTimeout: the arena's lock was not free within `timeout_s`.
        """
        self._control().reset(timeout_s)

    def set_rate_limiter(self, limiter: RateLimiter, rebase: bool = True, timeout_s: float | None = None) -> None:
        """Gives the table another rate limiter, for all its users.

        Args:
            rebase: set the difference to the middle of the new bounds. False keeps the counters as they are: a change
                late in a run may then block one side until the other has caught up.

        Warns:
            UserWarning: its `min_size_to_sample` is more than the table's `max_size`.

        Raises:
            TypeError: it is not a rate limiter.
            RateLimitTimeout: the arena's lock was not free within `timeout_s`.
        """
        check_limiter(self._where, limiter)
        numbers: dict[str, Any] = limiter.numbers()
        self._control().set_rate_limiter(**numbers, rebase=rebase, timeout_s=timeout_s)
        warn_if_never_sampled(self._name, self._spec.max_size, limiter, stacklevel=2)

    def set_priority_exponent(self, exponent: float, timeout_s: float | None = None) -> None:
        """Gives a Prioritized sampler another exponent, for all users of the table, while it is in use.

        Inserts and updates use it at once. The weights of existing items change slice by slice, also by the calls of
        other processes. Until all have changed, a draw reports the probability that it really had, by the old exponent
        or the new one. `info().sampler` has the new exponent; `spec.sampler` stays as created.

        Args:
            exponent: finite, >= 0.
            timeout_s: seconds to wait for the arena's lock.

        Raises:
            ValueError: the sampler is not Prioritized, or the exponent is out of range.
            TypeError: it is not a number.
            RateLimitTimeout: the arena's lock was not free in time. If the change had begun, other calls finish it, as
                after a Ctrl-C.
        """
        exponent = check_float(self._where, "exponent", exponent)
        if not (math.isfinite(exponent) and exponent >= 0):
            raise ValueError(f"{self._where}: exponent is {exponent}; expected a finite number >= 0")
        if not isinstance(self._spec.sampler, Prioritized):
            raise ValueError(
                f"{self._where}: its sampler is {self._spec.sampler!r}; only a Prioritized sampler has a priority "
                "exponent"
            )
        self._control().set_priority_exponent(exponent, timeout_s)

    def pause(self, inserts: bool = True, samples: bool = True, timeout_s: float | None = None) -> None:
        """Makes inserts, samples or both wait until `resume`, as if the rate limiter did not admit them.

        Raises:
            RateLimitTimeout: the arena's lock was not free within `timeout_s`.
        """
        self._control().pause(inserts, samples, timeout_s)

    def resume(self, timeout_s: float | None = None) -> None:
        """Ends a pause. Does nothing if the table is not paused.

        Raises:
            RateLimitTimeout: the arena's lock was not free within `timeout_s`.
        """
        self._control().resume(timeout_s)

    def __len__(self) -> int:
        return int(self._control().size)

    def info(self) -> TableInfo:
        """Counters, rate limiter, blocked callers, priorities: see `TableInfo`."""
        return TableInfo.read(self._control())

    def shard_infos(self) -> tuple[TableInfo, ...]:
        """The info of each shard, in order. A table without shards counts as one shard."""
        return (self.info(),)

    def can_insert(self, n: int = 1) -> bool:
        """Whether the rate limiter would admit n inserts now."""
        return bool(self._control().can_insert(check_count(self._where, "n", n)))

    def can_sample(self, n: int = 1) -> bool:
        """Whether all of `sample(n)` would be admitted now, by the rate limiter and by `max_times_sampled`.

        If items are removed after more than one sample, and the sampler is neither Fifo nor Lifo, nobody can tell which
        of them that call would remove: the size may then fall below `min_size_to_sample` after all.
        """
        return bool(self._control().can_sample(check_count(self._where, "n", n)))

    def estimate(self) -> Estimate:
        """The memory that the table's arena takes, term by term, for all tables that share it."""
        return estimate(specs_of(self._arena))
