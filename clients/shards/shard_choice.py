"""Which shard of a table a writer gets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shmreplay import _core

_chosen = itertools.count()


def choose_shard(arenas: Sequence[_core.Arena]) -> int:
    """The shard with the fewest open streams.

    Among shards with equally many, the choice depends on the process' session, which no other living process has, and
    on how many choices this process has made before. So processes that begin at the same time, when no stream is open
    yet, spread evenly over the shards; and a process that replaces a dead one gets that one's shard.
    """
    streams = [arena.open_streams for arena in arenas]
    first = arenas[0].session + next(_chosen)
    return min(range(len(arenas)), key=lambda number: (streams[number], (number - first) % len(arenas)))
