"""TableInserts: the calls of a table that put steps and items in, and those that make its writers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shmreplay import _core
from shmreplay.clients.batches.arguments import check_count, float_array
from shmreplay.clients.handles.handle import EXPECTED_PRIORITY, Handle, raise_closed
from shmreplay.clients.writers.extend import extend
from shmreplay.clients.writers.vector_writer import VectorWriter
from shmreplay.clients.writers.writer import Writer
from shmreplay.clients.writers.writer_rules import check_history, read_rules, room_for, steps_needed
from shmreplay.rules.end_columns import warn_if_ends_are_unknown
from shmreplay.rules.item_rules import Rule


class TableInserts(Handle):
    """Inserts, and writers."""

    def insert(self, step: Any, priority: float | None = None, timeout_s: float | None = None) -> int:
        """Inserts one step as one item, an episode of its own.

        Args:
            step: values in the table's structure, each of its column's dtype and shape, columns per item included. They
                are copied.
            priority: finite, >= 0. None: with a Prioritized sampler, the largest priority of a live item, so that new
                items are sampled soon; 1 if that is 0, and with other samplers.
            timeout_s: seconds to wait for the rate limiter and, in tables that evict no items, for room.

        Returns:
            The item's key. If a signal handler raises when the item is already in, its key is lost with the call; the
            error of `insert_batch` has the keys in that case.

        Raises:
            RateLimitTimeout: not admitted in time; nothing was inserted.
            SignatureMismatch: the step does not fit; the text names the column. Or the table's items have several
                steps.
            ValueError: the priority is negative or not finite; or the table declares `item` or `item_steps` > 1.
            ArenaFull: there is no room, and the table was created with `on_full="error"`.
        """
        if self._has_spans:
            self._refuse_single_steps("insert")
        values = None
        if self._sig.item_leaves:
            step, values = self._conversion.step_with_values(step)
        while True:  # the loop of _repeat() written out, because its calls make an insert a third slower
            if self._client.is_closed:
                raise_closed(self._name)
            key = self._native.insert(step, priority, timeout_s, values)
            if key > 0:
                return key
            if key == _core.BAD_PRIORITY:
                raise ValueError(f"{self._where}: priority is {priority!r}; {EXPECTED_PRIORITY}")
            self._recover_or_raise(-key, "insert", timeout_s)

    def insert_batch(
        self, steps: Any, priorities: ArrayLike | None = None, timeout_s: float | None = None
    ) -> NDArray[np.int64]:
        """Inserts N steps as N items, in order.

        Args:
            steps: the table's structure with arrays `[N, *shape]`. A column of variable shape, an optional or a
                compressed one may be a list of N values instead, with None for missing optional values. Or a list of N
                steps, each as `insert` takes it, unless the table's steps are lists themselves.
            priorities: `[N]`, finite, >= 0. None: as in `insert`.
            timeout_s: as in `insert`, for all steps together.

        Returns:
            int64 `[N]`: the keys.

        Raises:
            RateLimitTimeout: not all were admitted in time; `.keys` are those of the first ones, which went in. Any
                other error that ends the call half-way, such as KeyboardInterrupt, has `.keys`, too.
            SignatureMismatch, ValueError, ArenaFull: as `insert`; with the first two nothing was inserted.
        """
        if self._has_spans:
            self._refuse_single_steps("insert_batch")
        wanted = None if priorities is None else float_array(self._where, "priorities", priorities)
        values = None
        if self._sig.item_leaves:
            steps, values = self._conversion.batch_with_values(steps)

        went_in: list[NDArray[np.int64]] = []
        try:
            self._insert_into(went_in, steps, wanted, timeout_s, values)
            return went_in[0]
        except BaseException as error:
            if went_in:
                error.keys = went_in[0]  # type: ignore[attr-defined]  # no call: see ARCHITECTURE.md, "Ctrl-C"
            raise

    def _insert_into(
        self,
        went_in: list[NDArray[np.int64]],
        steps: Any,
        priorities: NDArray[np.float64] | None,
        timeout_s: float | None,
        values: Any,
    ) -> None:
        """Inserts steps, and puts the keys of those that went in into the list, also if it raises."""

        def insert(native: _core.Table) -> tuple[int, None]:
            status, raised, bad = native.insert_batch(steps, priorities, timeout_s, values, went_in)
            if bad >= 0 and priorities is not None:
                raise ValueError(f"{self._where}: priorities[{bad}] is {priorities[bad]}; {EXPECTED_PRIORITY}")
            if raised is not None:
                raise raised
            if status != 0 and went_in:
                self._raise_status(status, "insert_batch", timeout_s, keys=went_in[0])
            return status, None

        self._repeat("insert_batch", timeout_s, insert)

    def extend(
        self,
        columns: Any,
        episode_ends: ArrayLike | None = None,
        count: bool = True,
        timeout_s: float | None = None,
        *,
        final_steps: Any = None,
    ) -> NDArray[np.int64]:
        """Puts whole arrays in, as one stream: it makes the items that a writer would make by appending the rows.

        The items are those of the table's `item`. Without `item`, every row is an item, with the id of its episode and
        its step in it. A window that needs steps after the last row is made only if an episode ends there.

        Args:
            columns: the table's structure with arrays `[N, *shape]`, or lists as in `insert_batch`.
            episode_ends: bool `[N]`, True on an episode's last row. None: where the columns `terminated` or `truncated`
                are True, if the table has them. If given, it must be True there, unless the item crosses episodes.
            count: False does not wait for the rate limiter, not even if it is paused, and does not change its
                difference. The items count for `min_size_to_sample`.
            timeout_s: seconds to wait for the rate limiter and for room, for all rows together.
            final_steps: the final observations, and what else is known of these steps: the table's structure with
                arrays `[E, *shape]`, one row for each end of an episode, in order, also of those that terminated.
                Columns may be left out. Each is one more row of its stream, as in `Writer.end_episode`.

        Returns:
            int64: the keys, in the order of the rows.

        Raises:
            RateLimitTimeout: not all were admitted in time; `.keys` are those of the items that went in, `.num_rows`
                says how many rows are in with all their items. Any other error that ends the call half-way, such as
                KeyboardInterrupt, has both, too. A call for the rest begins another stream.
            SignatureMismatch: a column does not fit, or has another number of rows, also of `final_steps`. Nothing went
                in.
            TypeError, ValueError: `episode_ends` has a wrong dtype, shape or value; an episode ends without having
                terminated and the item needs its next observation, which `final_steps` does not give; `final_steps` is
                given, but the table has no item, or one that crosses episodes; a priority in a column is negative or
                not finite; the table was declared with `item_steps` > 1 and no item; or count=False with a queue or
                stack. Nothing went in.
        """
        if self._spec.item is None and self._spec.item_steps > 1:
            self._refuse_single_steps("extend")
        self._control()
        return extend(self, columns, episode_ends, final_steps, count, timeout_s)

    def writer(self, history: int | None = None, patterns: list[Any] | None = None, commit_every: int = 1) -> Writer:
        """A writer of one stream of steps, for items of more than one step. Use it as a context manager.

        Args:
            history: how many steps an item can reach back, the newest included. None: as many as the patterns and the
                table's `item_steps` need.
            patterns: windows (`sr.NStep(3)`, `sr.Sequence(80, 40)`, ...) and `sr.Pattern`s that make items by
                themselves. None: the table's `item`, if it has one; []: no patterns.
            commit_every: put the items of k steps in together, under one hold of the arena's lock. With k above 1, the
                items of up to k - 1 steps are held back in this process: they cannot be sampled yet, and `append` and
                `create_item` do not wait for rate limiters because of them. A killed process loses the items of at
                most its last k - 1 steps. A writer that is never closed puts in those that are admitted at once when
                it is collected as garbage, when its client is closed and when Python exits, and logs how many are lost.
                They go in when an item is made of the k-th step (one step later if that step makes none), when 32 are
                held back, before a call waits for room, and by `end_episode`, `flush` and `close`. Items that are held
                back during a `reset` of the table go in after it.

        Raises:
            ValueError: the arena has no room for such a history and the steps held back, or a pattern reaches further
                back; or `commit_every` is below 1.
            TypeError, SignatureMismatch: an entry of `patterns` is no pattern, names a column that does not exist, or
                makes other items than its table's `item` says.
            TableNotFound: a pattern's table is not in the arena.

        Warns:
            UserWarning: a window crosses the ends of episodes, as `Table` warns of its `item`.
        """
        commit_every = check_count(self._where, "commit_every", commit_every)
        return Writer(self, *self._plan_writer(1, history, patterns, commit_every), commit_every)

    def vector_writer(
        self, num_streams: int, history: int | None = None, patterns: list[Any] | None = None
    ) -> VectorWriter:
        """A writer of N streams whose environments step together, with one call for all. Use it as a context manager.

        Args:
            num_streams: N, at most the arena's `max_streams`.
            history, patterns: of each stream, as in `writer`.

        Raises:
            TypeError, ValueError, SignatureMismatch, TableNotFound: as in `writer`.
        """
        self._check_open()
        self._refresh_after_fork()
        most = self._arena.stats()["max_streams"]
        num_streams = check_count(self._where, "num_streams", num_streams, most)
        return VectorWriter(self, num_streams, *self._plan_writer(num_streams, history, patterns))

    def _plan_writer(
        self, num_streams: int, history: int | None, patterns: list[Any] | None, commit_every: int = 1
    ) -> tuple[int, list[Rule]]:
        """Checks a writer's arguments. Returns how many steps each stream holds, and its rules."""
        self._check_open()
        self._refresh_after_fork()
        declared = [] if self._spec.item is None else [self._spec.item]
        rules = read_rules(declared if patterns is None else patterns, self._where)
        for rule in rules if patterns is not None else ():
            warn_if_ends_are_unknown(self._sig, self._spec.ends, rule, f"{self._where}: it has a window", stacklevel=3)
        wanted = max(self._spec.item_steps, steps_needed(rules, self._sig))
        steps = wanted if history is None else check_count(self._where, "history", history)
        stats = self._arena.stats()
        # In addition to the chunks of its history, a stream has one that is not full yet, and for a moment one more,
        # until the oldest is freed.
        room = room_for((stats["num_chunks"] - 1) // num_streams, stats["chunk_steps"], rules, self._sig)
        check_history(steps, rules, self._sig, room, self._where)
        if commit_every > 1 and steps + commit_every > room:
            raise ValueError(
                f"{self._where}: commit_every is {commit_every}, and history {steps}, but the arena has room for "
                f"{max(room, 0)} steps of a stream; commit more often, or create the table with a larger capacity_steps"
            )
        return steps, rules
