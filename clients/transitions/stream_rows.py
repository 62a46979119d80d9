"""StreamRows: writes the rows of N streams from (observation, action, reward, next observation, done) of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.transitions.last_seen import LastSeen
from shmreplay.clients.writers.vector_writer import Keys, VectorWriter
from shmreplay.columns import structure
from shmreplay.columns.conversion import flatten
from shmreplay.columns.leaves import Leaf
from shmreplay.errors import SignatureMismatch

OBSERVATION = "observation"
ENDS = ("terminated", "truncated")

Mask = NDArray[np.bool_]


class StreamRows:
    """Transitions of N environments as rows of a vector writer. Its windows make the items.

    Row t is written once; the next observation of its transition is row t + 1, or the final step of the episode. So a
    transition becomes an item one call late: with the next `add`, with the end of its episode, or with `flush`. A
    window of n steps is an item n calls late.

    Nobody has to tell that an episode was broken off. If the observation of a call is not the next observation of the
    call before, byte for byte, the stream's episode ends there, with that next observation as its final one, and
    without having terminated.

    Args:
        writer: of the table, whose signature is a dict with `observation`, `terminated` and `truncated`; the caller
            closes it. For one thread at a time.
        timeout_s: seconds that each call waits for the rate limiter and for room. None: for ever.

    Raises:
        SignatureMismatch: the table's signature lacks one of these.
    """

    def __init__(self, writer: VectorWriter, timeout_s: float | None = None) -> None:
        self._writer = writer
        self._timeout_s = timeout_s
        self._sig = writer._sig
        root = self._sig.root
        if not isinstance(root, structure.DictNode) or not {OBSERVATION, *ENDS} <= set(root.keys):
            raise SignatureMismatch(
                f"{writer._where}: StreamRows writes transitions; expected a signature that is a dict with "
                f"{OBSERVATION!r}, 'terminated' and 'truncated'"
            )
        parts = dict(zip(root.keys, root.children, strict=True))
        self._observed = parts.pop(OBSERVATION)
        self._others = [
            (name, self._sig.leaves[node.index]) for name, node in parts.items() if isinstance(node, structure.LeafNode)
        ]
        self._columns = [self._sig.leaves[i] for i in structure.leaf_indices(self._observed)]
        self._last = LastSeen(writer.num_streams)
        self._told = LastSeen(writer.num_streams)
        self._under_way: Mask = np.zeros(writer.num_streams, np.bool_)
        self._is_over: Mask = np.zeros(writer.num_streams, np.bool_)
        self._is_even = False  # all streams are under way, and none is over

    @property
    def under_way(self) -> Mask:
        """Streams whose last transition is no item yet, bool `[N]`."""
        return self._under_way.copy()

    def add(
        self,
        step: Mapping[str, Any],
        next_observation: Any,
        told: tuple[Sequence[NDArray[Any]], Sequence[NDArray[Any]]] | None = None,
    ) -> None:
        """Writes a transition of each stream; all values are copied.

        Args:
            step: the table's structure with arrays `[N, *shape]`. Numbers of another dtype are converted if they are of
                the same kind, such as float64 to float32.
            next_observation: what the step led to; for a stream that is over its final observation, not the first one
                of the next episode.
            told: the observations and next observations to compare, if these are more than what is stored, such as
                whole stacks of frames. Give it with each call, or with none.

        Raises:
            SignatureMismatch: a value does not fit. Nothing was written.
            RateLimitTimeout: not all were admitted in time; the transitions of the other streams are lost, as if they
                had not been added. The next call goes on.
            ShmReplayError: the writer is closed.
        """
        observation = self._observation(step[OBSERVATION])
        following = self._observation(next_observation)
        self._end_what_is_left(observation if told is None else told[0], self._last if told is None else self._told)
        row = dict(step)
        row[OBSERVATION] = self._nested(observation)
        for name, leaf in self._others:
            if name in row and row[name].dtype != leaf.spec.dtype:
                row[name] = self._cast(row[name], leaf)
        over = row[ENDS[0]] | row[ENDS[1]]
        try:
            self._writer.append(row, timeout_s=self._timeout_s)
        except BaseException as error:
            self._keep(following, told, over, getattr(error, "done", np.zeros(len(over), np.bool_)))
            raise
        is_over = np.count_nonzero(over) > 0
        if self._is_even and not is_over:
            self._copy(following, told)
            return
        self._keep(following, told, over, None)
        if is_over:
            self._end(over)

    def flush(self, timeout_s: float | None = None) -> list[Keys]:
        """Makes items of the transitions that are none yet, and returns their keys, an array for each stream.

        The episodes end there without having terminated. Their transitions are as they were, but no window of several
        steps goes across. `timeout_s` stands for the one of all calls, if it is given.
        """
        return self._end(self._under_way.copy(), timeout_s)

    def _observation(self, value: Any) -> list[NDArray[Any]]:
        """The arrays of an observation, of their columns' dtypes."""
        parts: list[Any] = [value]
        if not isinstance(self._observed, structure.LeafNode):
            parts[:] = flatten(self._observed, value, f"{self._writer._where}: observation")
        for i, leaf in enumerate(self._columns):
            if parts[i].dtype != leaf.spec.dtype:
                parts[i] = self._cast(parts[i], leaf)
        return parts

    def _nested(self, parts: list[NDArray[Any]]) -> Any:
        if isinstance(self._observed, structure.LeafNode):
            return parts[0]
        values: list[Any] = [None] * len(self._sig.leaves)
        for leaf, part in zip(self._columns, parts, strict=True):
            values[leaf.index] = part
        return structure.unflatten(self._observed, values)

    def _cast(self, value: NDArray[Any], leaf: Leaf) -> NDArray[Any]:
        if leaf.spec.in_heap:  # the writer looks at its rows
            return value
        if not np.can_cast(value.dtype, leaf.spec.dtype, "same_kind"):
            raise SignatureMismatch(
                f"{self._writer._where}, column {leaf.path!r}: expected {leaf.spec.dtype} or another of its kind, "
                f"got {value.dtype}"
            )
        return value.astype(leaf.spec.dtype)

    def _end_what_is_left(self, observation: Sequence[NDArray[Any]], seen: LastSeen) -> None:
        """Ends the episodes under way that this observation does not continue."""
        differs = seen.differs(observation)
        if differs is None and self._is_even:
            return
        left = self._is_over if differs is None else self._is_over | differs
        self._end(self._under_way & left)

    def _copy(self, following: list[NDArray[Any]], told: Any, done: Mask | None = None) -> None:
        self._last.keep(following, done)
        if told is not None:
            self._told.keep(told[1], done)

    def _keep(self, following: list[NDArray[Any]], told: Any, over: Mask, done: Mask | None) -> None:
        """Notes what the rows that went in (`done`; None: all) led to."""
        self._copy(following, told, done)
        if done is None:
            done = np.ones(len(over), np.bool_)
        self._is_over[done] = over[done]
        self._under_way |= done
        self._is_even = bool(self._under_way.all() and not self._is_over.any())

    def _end(self, mask: Mask, timeout_s: float | None = None) -> list[Keys]:
        if not mask.any():
            return [np.empty(0, np.int64)] * self._writer.num_streams
        final_steps = self._nested(self._last.rows)
        try:
            timeout_s = self._timeout_s if timeout_s is None else timeout_s
            keys = self._writer.end_episodes(mask, {OBSERVATION: final_steps}, timeout_s=timeout_s)
        except BaseException as error:
            mask = mask & getattr(error, "done", np.zeros(len(mask), np.bool_))
            raise
        finally:
            self._under_way &= ~mask
            self._is_over &= ~mask
            self._is_even = False
        return keys
