"""Rows: the parts of a step that a recorder writes, as far as its table has columns for them."""

from __future__ import annotations

from typing import Any

from shmreplay.clients.writers.stream_handle import StreamHandle
from shmreplay.errors import SignatureMismatch

BEFORE = ("observation", "action")  # known before the environment steps
AFTER = ("reward", "terminated", "truncated")


class Rows:
    """Makes rows of what is known before and after a step, and of the caller's own columns."""

    def __init__(self, writer: StreamHandle) -> None:
        tree = writer._sig.tree
        if not isinstance(tree, dict) or "observation" not in tree:
            raise SignatureMismatch(
                f"{writer._where}: a recorder writes steps with an 'observation'; expected a signature such as "
                f"shmreplay.clients.gymnasium.signature(env) gives, a dict of it and others, not {tree!r:.100}"
            )
        self._names = tree.keys()
        self._left_out = [name for name in (*BEFORE, *AFTER) if name not in self._names]
        self._where = writer._where
        self._put: dict[str, Any] = {}

    def put(self, values: dict[str, Any]) -> None:
        """Keeps columns of the caller's own for the next row. Raises SignatureMismatch for any other column."""
        for name in values:
            if name not in self._names or name in (*BEFORE, *AFTER):
                own = sorted(self._names - {*BEFORE, *AFTER})
                raise SignatureMismatch(
                    f"{self._where}: put({name}=...), which is no column of the caller's own; the table has "
                    f"{', '.join(own) or 'none'}"
                )
        self._put.update(values)

    def before(self, observation: Any, action: Any) -> dict[str, Any]:
        """The row of what is known before the step, with what was put."""
        return self._with_put(self._kept(BEFORE, (observation, action)))

    def after(self, reward: Any, terminated: Any, truncated: Any) -> dict[str, Any]:
        """The row of the step's outcome, with what was put meanwhile."""
        return self._with_put(self._kept(AFTER, (reward, terminated, truncated)))

    def final(self, observation: Any) -> dict[str, Any]:
        """The final step of an episode, with what was put."""
        return self._with_put({"observation": observation})

    def _with_put(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with what was put, which is kept no longer."""
        if self._put:
            row.update(self._put)
            self._put = {}
        return row

    def _kept(self, names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
        row = dict(zip(names, values, strict=True))
        for name in self._left_out:
            row.pop(name, None)
        return row
