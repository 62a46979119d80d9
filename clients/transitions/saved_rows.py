"""SavedRows: the items of a table as whole arrays, which extend puts into another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmreplay.clients.tables.table import TableHandle
from shmreplay.clients.transitions.layout import Layout, Part

SCALARS = ("reward", "terminated", "truncated")


@dataclass(frozen=True)
class SavedRows:
    """Rows, each once, in the order of their episodes; and the final observation of each episode.

    Attributes:
        columns: arrays `[N, ...]`, as `extend` takes them.
        ends: bool `[N]`, True on an episode's last row.
        finals: the observations after these rows.
        priorities: of the items, `[N]`.
    """

    columns: dict[str, Any]
    ends: NDArray[np.bool_]
    finals: Any
    priorities: NDArray[np.float64]

    @classmethod
    def of(cls, table: TableHandle, layout: Layout) -> SavedRows | None:
        """The rows of all items; None if there are none. Every episode must have been ended, or its last rows lack."""
        keys = table.keys()
        if len(keys) == 0:
            return None
        batch = table.get(keys, columns=["observation", "action", *SCALARS])
        order = np.lexsort((batch.steps, batch.episodes))
        episodes, steps = batch.episodes[order], batch.steps[order]
        ends = np.append((np.diff(episodes) != 0) | (np.diff(steps) != 1), True)
        data = batch.data

        def newest(part: Part, column: NDArray[Any]) -> NDArray[Any]:
            return column if part.frames == 1 else column[:, -1]

        observations = layout.of_parts(lambda part, column: newest(part, column)[order], data["observation"])
        columns = {"observation": observations, "action": data["action"][order]}
        for name in SCALARS:  # of n steps in a window of several; the row's own is the first
            columns[name] = data[name][order] if data[name].ndim == 1 else data[name][order, 0]
        last = table.get(batch.keys[order][ends], columns=["next_observation"]).data
        return cls(columns, ends, layout.of_parts(newest, last["next_observation"]), batch.priorities[order])

    def put_into(self, table: TableHandle) -> None:
        """Puts the rows in; if the table is smaller, the oldest leave again."""
        final_steps = {"observation": self.finals}
        keys = table.extend(self.columns, episode_ends=self.ends, final_steps=final_steps, count=False)
        table.update_priorities(keys, self.priorities)
