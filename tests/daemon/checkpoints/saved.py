"""What a table shows of itself, to be compared before a checkpoint and after its restore."""

from typing import Any

import numpy as np

import shmreplay as sr
from shmreplay.clients.tables.table import TableHandle

# Of processes and moments, not of the table; `bytes` counts chunks that writers have open, too.
PASSING = ("last_insert_s_ago", "last_sample_s_ago", "blocked_", "bytes", "views", "contiguous_views")
INFO = tuple(
    name for name in sr.TableInfo.__dataclass_fields__ if not name.startswith(PASSING) and "paused" not in name
)


def rows(first: int, n: int) -> dict[str, Any]:
    """A batch of n steps for tables that `daemons.table` makes; `n` counts from `first` on."""
    return {"x": np.zeros((n, 3), np.float32), "n": np.arange(first, first + n)}


def leaves(tree: Any) -> list[Any]:
    """The arrays of a batch's structure, in order."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in leaves(part)]
    return [np.asarray(tree)]


def facts(table: TableHandle) -> dict[str, Any]:
    """Items in order with every byte of them, counters, settings, and what the limiter says."""
    keys = table.keys()
    found: dict[str, Any] = {"keys": keys.tolist(), "info": {name: getattr(table.info(), name) for name in INFO}}
    if len(keys):
        batch = table.get(keys)
        for name in ("priorities", "times_sampled", "episodes", "steps", "ages"):
            found[name] = np.asarray(getattr(batch, name)).tolist()
        for name in ("data", "mask", "lengths"):
            found[name] = [(leaf.shape, leaf.dtype.str, leaf.tobytes()) for leaf in leaves(getattr(batch, name))]
    found["can_insert"] = [table.can_insert(n) for n in range(1, 12)]
    found["can_sample"] = [table.can_sample(n) for n in range(1, 12)]
    return found


def draws(table: TableHandle, n: int = 30) -> list[int]:
    """The keys that a seeded sampler draws, without moving anything."""
    if len(table) == 0:
        return []
    return [int(key) for key in table.sample(n, count=False, timeout_s=0).keys]
